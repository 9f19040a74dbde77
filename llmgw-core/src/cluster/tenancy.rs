//! Levels: who a key belongs to, and what holds for all of them.
//!
//! Levels form a tree: the cluster itself, written `/`; organisations in it, `acme`; their teams, `acme/search`; and
//! these teams' projects, `acme/search/indexer`. A key belongs to one of them. Whatever is limited at any level of its
//! path holds for it, and so do its own limits: the tightest counts.

mod budget;
mod limits;
mod pass;
mod price;
pub mod quota;
mod window;

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{Deserialize, Serialize, de};

pub use self::{
    budget::{Budget, BudgetKind, ParseBudgetError},
    limits::Limits,
    pass::{Holding, Party, Pass},
    price::{Price, PriceList},
    window::{Period, Window},
};
use crate::{
    clock::Timestamp,
    id::{IdError, LevelName},
};

/// A level's place in the tree: no name for the cluster, then one for each level down to it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct LevelPath(Vec<LevelName>);

/// A level as it is kept.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Level {
    /// Where it is.
    pub path: LevelPath,
    /// What holds for all keys beneath it.
    pub limits: Limits,
    /// When it was made; for the cluster, when it was limited first.
    pub created_at: Timestamp,
}

/// Says why a text is no level.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseLevelError {
    /// There are more names than kinds of levels.
    #[error("{text:?} is no level: an organisation, a team and a project are the most")]
    TooDeep {
        /// The text, shortened.
        text: String,
    },
    /// A name can't be one.
    #[error(transparent)]
    Name(#[from] IdError),
}

// === impl LevelPath ===

impl LevelPath {
    /// The cluster itself.
    pub const CLUSTER: Self = Self(Vec::new());

    /// Whether it is the cluster itself.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.0.is_empty()
    }

    /// What such a level is called.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.0.len() {
            0 => "cluster",
            1 => "organisation",
            2 => "team",
            _ => "project",
        }
    }

    /// The level that it is in; `None` for the cluster.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    /// This level, the one that it is in, and so on up to the cluster.
    pub fn upwards(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// Whether this is `level`, or in it.
    #[must_use]
    pub fn is_within(&self, level: &Self) -> bool {
        self.0.starts_with(&level.0)
    }

    /// It, or the level that it is in which is so many below the cluster.
    #[must_use]
    pub fn cut(&self, depth: usize) -> Self {
        Self(self.0.iter().take(depth).cloned().collect())
    }

    /// The organisation that it is, or is in; `None` for the cluster.
    #[must_use]
    pub fn organisation(&self) -> Option<Self> {
        let first = self.0.first()?;
        Some(Self(vec![first.clone()]))
    }
}

impl fmt::Display for LevelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cluster() {
            return f.pad("/");
        }
        let names: Vec<&str> = self.0.iter().map(LevelName::as_str).collect();
        f.pad(&names.join("/"))
    }
}

impl FromStr for LevelPath {
    type Err = ParseLevelError;

    fn from_str(text: &str) -> Result<Self, ParseLevelError> {
        if text == "/" {
            return Ok(Self::CLUSTER);
        }
        if text.split('/').count() > MAX_DEPTH {
            return Err(ParseLevelError::TooDeep {
                text: text.chars().take(64).collect(),
            });
        }
        let names: Result<Vec<LevelName>, IdError> = text.split('/').map(str::parse).collect();
        Ok(Self(names?))
    }
}

impl PartialOrd for LevelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LevelPath {
    /// By the bytes of the text, as the stores list them.
    fn cmp(&self, other: &Self) -> Ordering {
        self.to_string().cmp(&other.to_string())
    }
}

impl Serialize for LevelPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LevelPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

const MAX_DEPTH: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str) -> LevelPath {
        text.parse().unwrap()
    }

    #[test]
    fn a_level_is_its_text() {
        for (text, kind) in [
            ("/", "cluster"),
            ("acme", "organisation"),
            ("acme/search", "team"),
            ("acme/search/in-dexer.2", "project"),
        ] {
            assert_eq!(level(text).to_string(), text);
            assert_eq!(level(text).kind(), kind);
        }
        for bad in ["", "//", "a/", "/a", "a//b", "a/../b", "a b", "a/b/c/d"] {
            assert!(bad.parse::<LevelPath>().is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<LevelPath>("\"a/b/c/d\"").is_err());
    }

    #[test]
    fn a_level_is_within_itself_and_all_that_it_is_in() {
        let project = level("acme/search/indexer");
        let up: Vec<String> = project.upwards().map(|level| level.to_string()).collect();
        assert_eq!(up, ["acme/search/indexer", "acme/search", "acme", "/"]);
        assert!(project.upwards().all(|above| project.is_within(&above)));
        assert!(!level("acme").is_within(&project));
        assert!(!level("acme2").is_within(&level("acme")));
        assert_eq!(project.organisation(), Some(level("acme")));
        assert_eq!(LevelPath::CLUSTER.organisation(), None);
    }

    #[test]
    fn levels_are_in_the_order_of_their_bytes() {
        let mut levels: Vec<LevelPath> = ["a/b", "a-b", "a", "B", "/"].map(level).into();
        levels.sort();
        let texts: Vec<String> = levels.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["/", "B", "a", "a-b", "a/b"]);
    }
}
