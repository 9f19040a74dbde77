//! Which desired states count: none that is older than one that was followed before, also across restarts.

use std::{
    io,
    path::{Path, PathBuf},
};

use llmgw_core::{
    api::agent::DesiredState,
    error::{Code, Coded},
};
use serde::{Deserialize, Serialize};

use crate::durable;

/// The highest desired state that was followed, kept on disk.
///
/// Only its rank is stored: a state that is followed again after a restart comes from a control plane, never
/// from this file.
#[derive(Debug)]
pub struct Fence {
    path: PathBuf,
    highest: Rank,
}

/// The place of a desired state in the order of all: first the lease epoch, then the revision within it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Rank {
    /// The lease epoch.
    pub epoch: u64,
    /// The revision.
    pub revision: u64,
}

/// Says why the fence can't be used, or why a state does not pass it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The file can't be read or written.
    #[error("using {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The state is older than one that was followed.
    #[error(
        "the desired state (epoch {}, revision {}) is older than the one that was followed (epoch {}, \
         revision {})",
        got.epoch, got.revision, kept.epoch, kept.revision
    )]
    Stale {
        /// What came.
        got: Rank,
        /// What was followed.
        kept: Rank,
    },
}

// === impl Fence ===

impl Fence {
    /// Reads what was kept at `path`; nothing was, when there is no such file.
    ///
    /// # Errors
    /// When the file is there and can't be read: without it, an old order could not be told from a new one.
    pub fn open(path: &Path) -> Result<Self, FenceError> {
        let highest = match durable::read(path, durable::SMALL) {
            Ok(json) => serde_json::from_slice(&json).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Rank::default()),
            Err(error) => Err(error),
        };
        Ok(Self {
            highest: highest.map_err(|source| FenceError::File {
                path: path.to_owned(),
                source,
            })?,
            path: path.to_owned(),
        })
    }

    /// Lets a state pass when it is not older than the highest, which it then is. The same one passes again.
    ///
    /// Blocks for as long as the disk does. The rank is on the disk before this returns.
    ///
    /// # Errors
    /// When the state is too old, or its rank can't be written: then it must not be followed either.
    pub fn pass(&mut self, state: &DesiredState) -> Result<(), FenceError> {
        let got = Rank {
            epoch: state.epoch,
            revision: state.revision,
        };
        if got < self.highest {
            return Err(FenceError::Stale {
                got,
                kept: self.highest,
            });
        }
        if got > self.highest {
            let written = serde_json::to_vec(&got)
                .map_err(io::Error::from)
                .and_then(|json| durable::write(&self.path, &json));
            written.map_err(|source| FenceError::File {
                path: self.path.clone(),
                source,
            })?;
            self.highest = got;
        }
        Ok(())
    }

    /// The highest rank that was followed.
    #[must_use]
    pub fn highest(&self) -> Rank {
        self.highest
    }
}

// === impl FenceError ===

impl Coded for FenceError {
    fn code(&self) -> Code {
        match self {
            Self::File { .. } => Code::Unavailable,
            Self::Stale { .. } => Code::Fenced,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, .. } => Some(format!(
                "make {} readable and writable; if it is damaged, and only then, remove it",
                path.display()
            )),
            Self::Stale { .. } => Some(
                "the control plane's store may have been put back to an older state; orders count again when \
                 its epoch is higher"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use llmgw_core::cluster::weights::WeightsOrders;

    use super::*;

    fn state(epoch: u64, revision: u64) -> DesiredState {
        DesiredState {
            epoch,
            revision,
            engines: Vec::new(),
            replicas: Vec::new(),
            weights: WeightsOrders::default(),
        }
    }

    #[test]
    fn an_older_state_does_not_pass_even_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("desired.json");
        let mut fence = Fence::open(&path).unwrap();
        for passing in [state(1, 7), state(1, 7), state(1, 9), state(2, 1)] {
            fence.pass(&passing).unwrap();
        }
        let mut again = Fence::open(&path).unwrap();
        assert_eq!(again.highest(), fence.highest());
        for late in [state(2, 0), state(1, 100)] {
            let error = again.pass(&late).unwrap_err();
            assert!(matches!(error, FenceError::Stale { .. }), "{error}");
            assert_eq!(error.code(), Code::Fenced);
        }
        again.pass(&state(2, 1)).unwrap();
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("desired.json");
        fs::write(&path, "{").unwrap();
        let error = Fence::open(&path).unwrap_err();
        assert!(error.hint().unwrap().contains("desired.json"), "{error}");
        // What is none is not waited for.
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = Fence::open(&path).unwrap_err();
        let said = llmgw_core::error::Chain(&error).to_string();
        assert!(
            said.contains("desired.json") && said.contains("a pipe"),
            "{said}"
        );
    }

    #[test]
    fn a_state_whose_rank_can_not_be_kept_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let mut fence = Fence::open(&dir.path().join("gone/desired.json")).unwrap();
        assert!(fence.pass(&state(1, 1)).is_err());
        assert_eq!(fence.highest(), Rank::default());
    }
}
