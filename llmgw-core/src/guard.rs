//! The guard: finds what a policy looks for in prompts and answers, and says what to do about it.
//!
//! All of it is pure but for [`Guard`], which holds the rules in force, so that they can be replaced while calls are under
//! way. A body is checked by the places of its texts ([`RuleSet::check_body`]), and changed in place: nothing is written
//! anew. An answer that comes in events is checked by a [`StreamCheck`], which lets no text pass that could still be
//! the beginning of something.
//!
//! | module | does |
//! |---|---|
//! | `pii` | finds kinds of data by their forms |
//! | `matcher` | makes what a rule looks for ready to be looked for |
//! | `rules` | the rules that hold at each level |
//! | `text` | the texts of a body, whatever API it is of |
//! | `check` | a text or a body as a whole |
//! | `window` `stream` | texts that come in pieces |

mod check;
mod matcher;
mod pieces;
mod pii;
mod rules;
mod stream;
mod text;
mod window;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use self::{
    check::{Blocked, Replaced, Verdict},
    rules::{RuleSet, Rules},
    stream::StreamCheck,
    text::Body,
};
use crate::cluster::{catalog::DefinitionError, guard::Policy};

/// The rules in force. Whoever checks a call takes them once, and keeps them until the call is over.
#[derive(Debug)]
pub struct Guard {
    rules: ArcSwap<Rules>,
}

// === impl Guard ===

impl Guard {
    /// A guard with these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules),
        }
    }

    /// Has these rules in force from now on, for calls that come in from now on.
    pub fn replace(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
    }

    /// Makes a policy ready and has it in force from now on.
    ///
    /// # Errors
    /// When it can't be made ready; then nothing changes.
    pub fn replace_policy(&self, policy: Policy) -> Result<(), DefinitionError> {
        self.replace(Rules::ready(policy)?);
        Ok(())
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }
}

impl Default for Guard {
    /// With the [baseline](Policy::baseline) in force.
    fn default() -> Self {
        Self::new(Rules::default())
    }
}
