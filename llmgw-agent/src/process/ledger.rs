//! What the agent must know after it was killed: which replicas it had started, and which processes they are.
//!
//! One JSON file per replica, in the data directory's `replicas/`. It is written before the process is started
//! (the intent: what, with which weights, at which port), and again when the process's identity is known. So a
//! killed agent leaves, for every process that it has started, a file; and a file without an identity says that
//! a process may exist that can't be adopted and is to be looked for by its marks.
//!
//! Not stored: states, failures, progress. What runs is asked how it is; what has failed is the control plane's
//! to decide.

use std::{collections::BTreeMap, fs, io, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use llmgw_core::{cluster::replica::ReplicaSpec, id::ReplicaId, units::Bytes};
use serde::{Deserialize, Serialize};

use super::identity::ProcessIdentity;
use crate::durable;

/// One replica that was to be started.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LedgerEntry {
    /// What was asked for.
    pub spec: ReplicaSpec,
    /// The version of the engine that runs it.
    pub engine_version: String,
    /// The file that holds its weights.
    pub weights: PathBuf,
    /// Where it listens on the loopback.
    pub port: u16,
    /// Where its outputs go.
    pub log: PathBuf,
    /// Its first process; absent before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// What it took of its GPUs' memory, measured when it was ready; absent for those that did not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_memory: BTreeMap<u32, Bytes>,
}

/// The entries of one data directory. Its methods block for as long as the disk does.
#[derive(Clone, Debug)]
pub struct Ledger {
    dir: PathBuf,
}

impl Ledger {
    /// The ledger in `dir`, which is made when it is missing.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        Ok(Self { dir })
    }

    /// Writes an entry in the place of the one before.
    ///
    /// # Errors
    /// When the disk refuses; the entry before is then still there.
    pub fn write(&self, entry: &LedgerEntry) -> io::Result<()> {
        let json = serde_json::to_vec_pretty(entry)?;
        durable::write(&self.path(entry.spec.id), &json)
    }

    /// Removes an entry, when there is one.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, replica: ReplicaId) -> io::Result<()> {
        durable::remove(&self.path(replica))
    }

    /// All entries, by their ids. Files that are no entries are removed: nobody could make use of them, and the
    /// processes that they may have named are found by their marks.
    ///
    /// # Errors
    /// When the disk refuses, or a file can't be read: then none is removed that may be an entry.
    pub fn load(&self) -> io::Result<Vec<LedgerEntry>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            let found = match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            if !found.is_file() {
                continue;
            }
            // What can't be read now is not known to be no entry.
            let json = if found.len() <= ENTRY_LIMIT {
                fs::read(&path)?
            } else {
                Vec::new()
            };
            let entry = serde_json::from_slice::<LedgerEntry>(&json).ok();
            match entry.filter(|entry| self.path(entry.spec.id) == path) {
                Some(entry) => entries.push(entry),
                None => {
                    tracing::warn!(file = %path.display(), "removing a file that is no ledger entry");
                    durable::remove(&path)?;
                }
            }
        }
        entries.sort_by_key(|entry: &LedgerEntry| entry.spec.id);
        Ok(entries)
    }

    fn path(&self, replica: ReplicaId) -> PathBuf {
        self.dir.join(format!("{replica}.json"))
    }
}

/// An entry has about one KiB; a model may list many sources.
const ENTRY_LIMIT: u64 = 1 << 20;
