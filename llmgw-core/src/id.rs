//! Typed ids and checked names.
//!
//! An id is a UUID version 7 (RFC 9562) behind a type of its own, written with a prefix that says what it
//! names: `node-0197…`, `r-0197…`. A name is what a person chose, checked once at the border.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Serialize, de};
use uuid::Uuid;

/// Says why a text is not an id or a name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The text lacks the prefix or the UUID of this kind of id.
    #[error(
        "{text:?} is not a {kind} id; one looks like {prefix}-0197c2a4f0e17b6c9a3d5e8f10213243"
    )]
    Malformed {
        /// What the id should name.
        kind: &'static str,
        /// The prefix that was expected.
        prefix: &'static str,
        /// The offending text, shortened.
        text: String,
    },
    /// The text is not usable as a name of this kind.
    #[error("{text:?} is not a {kind} name: {problem}")]
    Name {
        /// What the name should name.
        kind: &'static str,
        /// The offending text, shortened.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new id, unique and ordered by the time of its making.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// Wraps a UUID; for tests and for rows read from a store.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// An id for what is only imagined, such as the replicas of a plan; no real one is like it.
            #[must_use]
            pub const fn imagined(number: u64) -> Self {
                Self(Uuid::from_u128(number as u128))
            }

            /// Whether it was [`imagined`](Self::imagined).
            #[must_use]
            pub const fn is_imagined(&self) -> bool {
                self.0.as_u128() >> 64 == 0
            }

            /// The UUID inside.
            #[must_use]
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }

            /// The prefix and the eight last digits: enough for a table, not for an API.
            #[must_use]
            pub fn short(&self) -> String {
                let digits = self.0.simple().to_string();
                let tail: String = digits.chars().skip(24).collect();
                format!(concat!($prefix, "-{}"), tail)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Written::new(concat!($prefix, "-"), self.0).as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "-"))
                    .and_then(|digits| Uuid::try_parse(digits).ok())
                    .map(Self)
                    .ok_or_else(|| IdError::Malformed {
                        kind: $kind,
                        prefix: $prefix,
                        text: shorten(text),
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(Written::new(concat!($prefix, "-"), self.0).as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $extra:literal) => {
        $(#[$doc])*
        #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                match name_problem(text, $extra) {
                    None => Ok(Self(text.to_owned())),
                    Some(problem) => {
                        Err(IdError::Name { kind: $kind, text: shorten(text), problem })
                    }
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

typed_id! {
    /// A machine with an agent.
    NodeId, "node", "node"
}
typed_id! {
    /// One running copy of a model.
    ReplicaId, "replica", "r"
}
typed_id! {
    /// A key that clients present to the gateway.
    KeyId, "key", "key"
}
typed_id! {
    /// A token that opens the admin API; not its secret.
    TokenId, "token", "token"
}
typed_id! {
    /// One client call, as it is named in logs, headers and accounts.
    RequestId, "request", "req"
}

typed_id! {
    /// A gateway, from its start to its end: the next process has another.
    GatewayId, "gateway", "gw"
}

checked_name! {
    /// What clients call a model; may contain `/` and `:`.
    ModelName, "model", "/:@+"
}
checked_name! {
    /// One way to run a model.
    ProfileName, "profile", ""
}
checked_name! {
    /// An inference server program, such as `llamacpp`.
    EngineName, "engine", ""
}

checked_name! {
    /// What an operator calls an organisation, a team or a project.
    LevelName, "level", ""
}

checked_name! {
    /// What an operator calls a hold.
    HoldName, "hold", ""
}

checked_name! {
    /// What an operator calls a rule of the guard.
    RuleName, "rule", ""
}

/// An id as text, without an allocation: it stands in each answer and each record of usage.
struct Written {
    text: [u8; Self::LONGEST],
    length: usize,
}

// === impl Written ===

impl Written {
    /// More than any prefix and the digits.
    const LONGEST: usize = 48;

    fn new(prefix: &str, id: Uuid) -> Self {
        let mut text = [0; Self::LONGEST];
        let (before, digits) = text.split_at_mut(prefix.len());
        before.copy_from_slice(prefix.as_bytes());
        let length = prefix.len() + id.simple().encode_lower(digits).len();
        Self { text, length }
    }

    fn as_str(&self) -> &str {
        // It is ASCII.
        str::from_utf8(self.text.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

fn name_problem(text: &str, extra: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.len() > MAX_NAME {
        return Some("it is longer than 128 characters");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || extra.contains(c);
    if !text.chars().all(allowed) {
        return Some(if extra.is_empty() {
            "use letters, digits, dot, dash and underscore"
        } else {
            "use letters, digits and any of . _ - / : @ +"
        });
    }
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if !edge(text.chars().next()) || !edge(text.chars().next_back()) {
        return Some("it must begin and end with a letter or a digit");
    }
    // Clients take such parts out of a path, and would then ask for another model.
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Some("a part between slashes is empty, . or ..");
    }
    None
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

const MAX_NAME: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_same_in_a_path() {
        for bad in ["a//b", "a/./b", "a/../b", "x/../../../../evil"] {
            let error = bad.parse::<ModelName>().unwrap_err().to_string();
            assert!(error.contains("between slashes"), "{error}");
        }
        for good in ["a/b", "a/b.c/d..e", "org/model:q4"] {
            assert!(good.parse::<ModelName>().is_ok(), "{good}");
        }
    }

    #[test]
    fn ids_survive_text_and_json() {
        let id = ReplicaId::generate();
        assert_eq!(id.to_string().parse::<ReplicaId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ReplicaId>(&json).unwrap(), id);
        assert_eq!(id.short().len(), "r-".len() + 8);
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        let error = NodeId::generate()
            .to_string()
            .parse::<ReplicaId>()
            .unwrap_err();
        assert!(error.to_string().contains("not a replica id"), "{error}");
    }

    #[test]
    fn model_names_may_contain_slashes_and_profile_names_may_not() {
        assert!("org/model:7b".parse::<ModelName>().is_ok());
        assert!("org/model".parse::<ProfileName>().is_err());
        for bad in ["", "a b", "-a", "a/", &"x".repeat(129)] {
            assert!(bad.parse::<ModelName>().is_err(), "{bad:?}");
        }
    }
}
