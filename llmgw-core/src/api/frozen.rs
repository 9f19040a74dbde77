//! The admin API, `/api/v1`: that nothing is moved, for too many nodes fell silent at once, and that it goes on.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{id::NodeId, units::Span};

/// Too many nodes fell silent at once: nothing is moved.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Frozen {
    /// Whole seconds since then.
    pub seconds: u64,
    /// The nodes that were silent then, by host name, then by id.
    pub silent: Vec<SilentNode>,
    /// How many nodes there were, those included.
    pub of: usize,
}

/// A node that is not heard.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct SilentNode {
    /// What people call it.
    pub hostname: String,
    /// Its id.
    pub id: NodeId,
}

/// `POST thaw` answers this.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Thawed {
    /// What was frozen, for which nodes: they are given up until they are heard again.
    pub thawed: Frozen,
}

// === impl Frozen ===

impl Frozen {
    /// What an order to go on is about, as it stands in the audit log: how many nodes, and which, the first of them.
    #[must_use]
    pub fn subject(&self) -> String {
        let named = self.silent.iter().take(NAMED);
        let ids: Vec<String> = named.map(|node| node.id.to_string()).collect();
        let more = self.silent.len().saturating_sub(NAMED);
        let rest = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!(
            "{} of {} nodes: {}{rest}",
            self.silent.len(),
            self.of,
            ids.join(" ")
        )
    }
}

impl fmt::Display for Frozen {
    /// The sentence for people, with what would help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seconds,
            silent,
            of,
        } = self;
        write!(
            f,
            "{} of {of} nodes fell silent at once {} ago: nothing is moved until they are heard again; `llmgw ctl thaw` \
             goes on without them",
            silent.len(),
            Span(Duration::from_secs(*seconds)),
        )
    }
}

/// Nodes that an entry in the audit log names: a data hall has more than a line holds.
const NAMED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(silent: u64) -> Frozen {
        let node = |at| SilentNode {
            hostname: format!("n{at}"),
            id: NodeId::imagined(at),
        };
        Frozen {
            seconds: 130,
            silent: (0..silent).map(node).collect(),
            of: 100,
        }
    }

    #[test]
    fn people_are_told_since_when_how_many_and_what_goes_on() {
        assert_eq!(
            frozen(3).to_string(),
            "3 of 100 nodes fell silent at once 2m 10s ago: nothing is moved until they are heard again; \
             `llmgw ctl thaw` goes on without them"
        );
    }

    #[test]
    fn an_entry_names_twenty_nodes_at_most() {
        let few = frozen(2).subject();
        let ids = format!("{} {}", NodeId::imagined(0), NodeId::imagined(1));
        assert_eq!(few, format!("2 of 100 nodes: {ids}"));
        let many = frozen(35).subject();
        assert!(many.ends_with(" and 15 more"), "{many}");
        assert!(!many.contains(&NodeId::imagined(20).to_string()));
    }
}
