//! What operators said of their own engines, kept over restarts.
//!
//! An engine that runs when the agent starts is taken over before any control plane has said what should be: so what
//! it is asked, and how it is stopped, must be known here. Descriptions that are not wanted any more are kept too,
//! for a replica may still run by them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use llmgw_core::{
    cluster::engine::{EngineSource, WantedEngine, custom::CustomEngine},
    id::EngineName,
    units::Bytes,
};

use crate::durable;

/// The descriptions that this node has heard.
#[derive(Debug)]
pub(super) struct Customs {
    path: PathBuf,
    known: Mutex<BTreeMap<EngineName, CustomEngine>>,
}

// === impl Customs ===

impl Customs {
    /// Reads what an earlier life has kept. What can't be read is told in the log, and is as nothing.
    pub(super) fn open(path: PathBuf) -> Self {
        let known = match read(&path) {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "descriptions of engines can't be read");
                BTreeMap::new()
            }
        };
        Self {
            path,
            known: Mutex::new(known),
        }
    }

    /// The description of an engine, when it is one that an operator described.
    pub(super) fn get(&self, name: &EngineName) -> Option<CustomEngine> {
        self.lock().get(name).cloned()
    }

    /// Remembers what the wanted engines are, and brings it to the disk when it is new.
    pub(super) fn learn(&self, wanted: &[WantedEngine]) {
        let mut known = self.lock();
        let before = known.clone();
        for WantedEngine { name, source, .. } in wanted {
            match source {
                EngineSource::Custom(engine) => {
                    known.insert(name.clone(), engine.as_ref().clone());
                }
                // One that this release describes has taken its name.
                _ => {
                    known.remove(name);
                }
            }
        }
        let is_wanted = |name: &EngineName| wanted.iter().any(|one| one.name == *name);
        while known.len() > MOST {
            let Some(name) = known.keys().find(|name| !is_wanted(name)).cloned() else {
                break;
            };
            known.remove(&name);
        }
        if *known == before {
            return;
        }
        if let Err(error) = write(&self.path, &known) {
            // They are known for this life; the next one hears them again before it has to start anything.
            tracing::warn!(path = %self.path.display(), %error, "descriptions of engines can't be kept");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<EngineName, CustomEngine>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> io::Result<BTreeMap<EngineName, CustomEngine>> {
    let bytes = match durable::read(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    Ok(serde_json::from_slice(&bytes)?)
}

fn write(path: &Path, known: &BTreeMap<EngineName, CustomEngine>) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    durable::write(path, &serde_json::to_vec(known)?)
}

/// More than any site describes.
const MOST: usize = 64;
/// A description has at most about a MiB, and usually a KiB.
const LARGEST: Bytes = Bytes::mib(64);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(name: &str, health: &str) -> WantedEngine {
        let engine = json!({"command": ["/opt/mine", "{port}"], "health": health});
        let source = EngineSource::Custom(Box::new(serde_json::from_value(engine).unwrap()));
        WantedEngine::new(name.parse().unwrap(), source)
    }

    #[test]
    fn descriptions_outlive_the_agent_and_the_wish() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("engines").join("custom.json");
        let name = "mine".parse().unwrap();
        let customs = Customs::open(path.clone());
        customs.learn(&[described("mine", "/a")]);
        customs.learn(&[described("mine", "/b"), described("other", "/c")]);
        customs.learn(&[]);
        let customs = Customs::open(path.clone());
        assert_eq!(customs.get(&name).unwrap().health(), "/b");
        customs.learn(&[WantedEngine::new(name.clone(), EngineSource::Auto)]);
        assert!(Customs::open(path).get(&name).is_none());
    }

    #[test]
    fn what_can_not_be_read_is_as_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("custom.json");
        fs::write(&path, "{\"mine\": {\"command\": []}}").unwrap();
        let customs = Customs::open(path.clone());
        assert!(customs.get(&"mine".parse().unwrap()).is_none());
        customs.learn(&[described("mine", "/a")]);
        assert!(Customs::open(path).get(&"mine".parse().unwrap()).is_some());
    }

    #[test]
    fn only_so_many_are_kept_and_never_fewer_than_are_wanted() {
        let home = tempfile::tempdir().unwrap();
        let customs = Customs::open(home.path().join("custom.json"));
        for number in 0..MOST + 3 {
            customs.learn(&[described(&format!("e{number}"), "/h")]);
        }
        assert_eq!(customs.lock().len(), MOST);
        let last = format!("e{}", MOST + 2).parse().unwrap();
        assert!(customs.get(&last).is_some());
    }
}
