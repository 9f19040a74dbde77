//! A key with all that holds for it.

use std::{collections::BTreeMap, fmt};

use super::{LevelPath, Limits};
use crate::{clock::Timestamp, cluster::account::ApiKey, id::KeyId, id::ModelName};

/// Whoever is limited: a key, or a level with all keys in it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Party {
    /// A key.
    Key(KeyId),
    /// A level.
    Level(LevelPath),
}

/// A key with all that holds for it. It is never changed, only made anew.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pass {
    key: ApiKey,
    /// Its own, those of its level, and so on up to the cluster; who limits nothing is left out.
    held: Vec<Holding>,
}

/// What holds for a key, and who says so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holding {
    /// Who is limited.
    pub party: Party,
    /// How.
    pub limits: Limits,
}

// === impl Pass ===

impl Pass {
    /// The pass of a key among these levels; `None` when a level of its path is not there: it then opens nothing.
    #[must_use]
    pub fn of(key: ApiKey, levels: &BTreeMap<LevelPath, Limits>) -> Option<Self> {
        let own = Holding {
            party: Party::Key(key.id),
            limits: key.limits.clone(),
        };
        let mut held = vec![own];
        for path in key.level.upwards() {
            let limits = match levels.get(&path) {
                Some(limits) => limits.clone(),
                // The cluster is there whether anybody has limited it or not.
                None if path.is_cluster() => Limits::default(),
                None => return None,
            };
            let party = Party::Level(path);
            held.push(Holding { party, limits });
        }
        held.retain(|holding| !holding.limits.is_empty());
        Some(Self { key, held })
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &ApiKey {
        &self.key
    }

    /// What holds for it: its own limits first, the cluster's last.
    #[must_use]
    pub fn held(&self) -> &[Holding] {
        &self.held
    }

    /// Whether the key opens nothing any more at `now`.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.key.has_expired(now)
    }

    /// Who does not let the key use a model that has these names; `None` when all do.
    pub fn refused_by<'n, I>(&self, names: I) -> Option<&Party>
    where
        I: Iterator<Item = &'n ModelName> + Clone,
    {
        let refusing = self
            .held
            .iter()
            .find(|holding| !holding.limits.allow(names.clone()));
        refusing.map(|holding| &holding.party)
    }
}

// === impl Party ===

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("this key"),
            Self::Level(path) if path.is_cluster() => f.write_str("this cluster"),
            Self::Level(path) => write!(f, "the {} {path}", path.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::account::KeyHash;

    fn name(text: &str) -> ModelName {
        text.parse().unwrap()
    }

    fn only(models: &[&str]) -> Limits {
        Limits {
            models: Some(models.iter().map(|text| name(text)).collect()),
            ..Limits::default()
        }
    }

    fn key(level: &str, limits: Limits) -> ApiKey {
        ApiKey {
            level: level.parse().unwrap(),
            limits,
            expires_at: Some(Timestamp(100)),
            ..ApiKey::new(KeyId::generate(), "a", KeyHash([0; 32]), Timestamp(0))
        }
    }

    fn levels(levels: &[(&str, Limits)]) -> BTreeMap<LevelPath, Limits> {
        let level = |(path, limits): &(&str, Limits)| (path.parse().unwrap(), limits.clone());
        levels.iter().map(level).collect()
    }

    #[test]
    fn what_any_level_of_the_path_forbids_is_forbidden() {
        let tree = levels(&[
            ("acme", only(&["a", "b"])),
            ("acme/search", Limits::default()),
            ("other", only(&[])),
        ]);
        let pass = Pass::of(key("acme/search", only(&["b", "c"])), &tree).unwrap();
        let refused = |model: &str| {
            let model = name(model);
            pass.refused_by([&model].into_iter())
                .map(ToString::to_string)
        };
        assert_eq!(refused("a").as_deref(), Some("this key"));
        assert_eq!(refused("b"), None);
        assert_eq!(refused("c").as_deref(), Some("the organisation acme"));
        assert_eq!(pass.held().len(), 2, "who limits nothing is not asked");
    }

    #[test]
    fn a_key_of_a_level_that_is_not_there_opens_nothing() {
        let tree = levels(&[("acme/search", Limits::default())]);
        assert_eq!(Pass::of(key("acme/search", Limits::default()), &tree), None);
        let free = Pass::of(key("/", Limits::default()), &tree).unwrap();
        assert!(free.held().is_empty());
        let all = levels(&[("/", only(&[]))]);
        let pass = Pass::of(key("/", Limits::default()), &all).unwrap();
        let model = name("m");
        let by = pass.refused_by([&model].into_iter()).unwrap();
        assert_eq!(by.to_string(), "this cluster");
    }

    #[test]
    fn a_key_expires_at_its_time() {
        let pass = Pass::of(key("/", Limits::default()), &BTreeMap::new()).unwrap();
        assert!(!pass.has_expired(Timestamp(99)));
        assert!(pass.has_expired(Timestamp(100)));
    }
}
