//! Documents as trees whose parts know where they stand.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess},
};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

use super::Given;

/// Why a file can't be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct Misread {
    /// The file's name, with line and column where they are known.
    pub origin: String,
    /// What is wrong there.
    pub problem: String,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// From 1; absent of JSON.
    pub(super) line: Option<u64>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the document.
    Map(Vec<(String, Node)>),
}

/// Where something stands: the file, and the path in it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) path: String,
}

/// The fields of a map, and which of them were looked at.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) place: Place,
    entries: &'a [(String, Node)],
    seen: BTreeSet<&'a str>,
}

// === impl Node ===

impl Node {
    pub(super) fn parse(given: &Given<'_>) -> Result<Self, Misread> {
        let Given { name, text } = given;
        // A reader of YAML takes JSON too, but neither as much nor as fast; what is wrong it says better.
        if text.trim_start().starts_with(['{', '['])
            && let Ok(Spanned { value, .. }) = serde_json::from_str::<Spanned<Value>>(text)
        {
            return Ok(Self { line: None, value });
        }
        match serde_saphyr::from_str::<Spanned<Value>>(text) {
            Ok(node) => Ok(node.into()),
            Err(error) => {
                let error = error.without_snippet();
                let origin = match error.location() {
                    Some(place) => format!("{name}:{}:{}", place.line(), place.column()),
                    None => (*name).to_owned(),
                };
                let problem = UserMessageFormatter.format_message(error).into_owned();
                Err(Misread { origin, problem })
            }
        }
    }

    /// The value of a key, unless it is null.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let (_, node) = self.map()?.iter().find(|(name, _)| name == key)?;
        (node.value != Value::Null).then_some(node)
    }

    pub(super) fn map(&self) -> Option<&[(String, Self)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(nodes) => Some(nodes),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number, also one that only older YAML takes for one: `20_000`, `1e-6`.
    pub(super) fn number(&self) -> Option<f64> {
        let number = match &self.value {
            Value::Number(number) => *number,
            Value::Text(text) => text.trim().replace('_', "").parse().ok()?,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }

    pub(super) fn is_true(&self) -> bool {
        self.value == Value::Bool(true)
    }

    /// The name of the variable that LiteLLM reads the value from.
    pub(super) fn variable(&self) -> Option<&str> {
        self.text()?.strip_prefix("os.environ/")
    }

    /// Whether it says nothing: null, nothing, no, or 0.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Null | Value::Bool(false) => true,
            Value::Bool(true) => false,
            Value::Number(number) => *number == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::List(nodes) => nodes.is_empty(),
            Value::Map(entries) => entries.iter().all(|(_, node)| node.is_nothing()),
        }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        let line = spanned.referenced.line();
        Self {
            line: (line > 0).then_some(line),
            value: spanned.value,
        }
    }
}

// === impl Value ===

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
                Value::deserialize(inner)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }

            #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Number(value as f64))
            }

            #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Number(value as f64))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Number(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Value, E> {
                Ok(Value::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = seq.next_element::<Spanned<Value>>()? {
                    nodes.push(node.into());
                }
                Ok(Value::List(nodes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, node)) = map.next_entry::<String, Spanned<Value>>()? {
                    entries.push((key, node.into()));
                }
                Ok(Value::Map(entries))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

// === impl Place ===

impl Place {
    pub(super) fn of(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            path: String::new(),
        }
    }

    pub(super) fn key(&self, key: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.with(format!("{}{dot}{key}", self.path))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with(format!("{}[{index}]", self.path))
    }

    fn with(&self, path: String) -> Self {
        Self {
            file: self.file.clone(),
            path,
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// `None` when it is no map.
    pub(super) fn of(node: &'a Node, place: &Place) -> Option<Self> {
        Some(Self {
            place: place.clone(),
            entries: node.map()?,
            seen: BTreeSet::new(),
        })
    }

    /// The value of a key, which is looked at by that; `None` also for null.
    pub(super) fn take(&mut self, key: &'a str) -> Option<&'a Node> {
        self.seen.insert(key);
        let (_, node) = self.entries.iter().find(|(name, _)| name == key)?;
        (node.value != Value::Null).then_some(node)
    }

    /// Takes no notice of these.
    pub(super) fn pass_over(&mut self, keys: &[&'a str]) {
        self.seen.extend(keys);
    }

    /// What was not looked at and says something.
    pub(super) fn rest(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + '_ {
        let unseen = |(key, _): &&(String, Node)| !self.seen.contains(key.as_str());
        let all = self.entries.iter().filter(unseen);
        all.filter(|(_, node)| !node.is_nothing())
            .map(|(key, node)| (key.as_str(), node))
    }
}
