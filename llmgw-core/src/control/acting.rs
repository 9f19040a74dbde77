//! Who orders: the name under which an order is written down.

use std::{fmt, sync::Arc};

use super::{Control, ControlError};
use crate::error::Code;

/// Whoever orders something, as the audit log names them.
#[derive(Clone, Eq, PartialEq)]
pub struct Actor(Arc<str>);

/// Gives the roles to somebody.
///
/// # Contract
/// What is ordered through the roles that are given is written down under the actor's name. The roles are otherwise the
/// same: who may order what is decided before.
pub trait Acting: fmt::Debug + Send + Sync + 'static {
    /// The roles, for this actor.
    fn acting_as(&self, actor: &Actor) -> Control;
}

// === impl Actor ===

impl Actor {
    /// Somebody of this name, such as `ops`, or `alice (ops)` for one who says so of themselves.
    ///
    /// # Errors
    /// When the name is empty, longer than 200 characters, or has control characters.
    pub fn named(name: &str) -> Result<Self, ControlError> {
        let wrong = |problem: &str| {
            let message = format!("the actor's name {problem}");
            ControlError::new(Code::InvalidRequest, message)
        };
        let name = name.trim();
        if name.is_empty() {
            return Err(wrong("is empty"));
        }
        if name.chars().count() > MAX_NAME {
            return Err(wrong("is longer than 200 characters"));
        }
        if name.chars().any(char::is_control) {
            return Err(wrong("has a control character"));
        }
        Ok(Self(name.into()))
    }

    /// Whoever holds the token of the data directory.
    #[must_use]
    pub fn admin() -> Self {
        Self("admin".into())
    }

    /// This control plane itself.
    #[must_use]
    pub fn itself() -> Self {
        Self("llmgw".into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Two names of 64 characters, one in parentheses, and some air.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_read() {
        assert_eq!(Actor::named(" alice ").unwrap().as_str(), "alice");
        for bad in ["", "  ", "a\nb", &"x".repeat(201)] {
            assert!(Actor::named(bad).is_err(), "{bad:?}");
        }
    }
}
