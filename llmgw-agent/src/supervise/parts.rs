//! Where a replica's parts come from.

use std::{
    ffi::OsString,
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use llmgw_core::{
    cluster::{
        replica::ReplicaSpec,
        weights::{FetchProgress, Weights},
    },
    error::{Chain, Coded},
    id::EngineName,
    units::Bytes,
};

use crate::{
    engine::{Engine, InstalledEngine},
    facts::gpu::visible,
};

/// Gets what a replica is started from: an engine and weights.
///
/// # Contract
/// * `installed` waits until the engine is there. While an installation fails and is tried again, it goes on
///   waiting and says what is wrong through `waiting`. It fails when waiting can't help.
/// * `weights` returns the path of a file that was verified, or of a directory whose files were. It fails when no source could be used; whether to
///   try again is the control plane's to decide.
/// * `proven` is called with what the other two gave, before each start. It fails when the engine was tried with
///   weights of such types and did not compute.
/// * Dropping a future leaves nothing half done that a later call would take for done.
/// * Calls for the same engine or weights at the same time share the work.
#[async_trait]
pub trait Parts: Debug + Send + Sync + 'static {
    /// The engine of this name, when this release knows it.
    fn engine(&self, name: &EngineName) -> Option<Arc<dyn Engine>>;

    /// The variables that show an engine the GPUs of these numbers alone.
    fn visible_gpus(&self, indices: &[u32]) -> Vec<(OsString, OsString)> {
        visible(&[], indices)
    }

    /// Waits for an engine.
    async fn installed(
        &self,
        name: &EngineName,
        waiting: &(dyn Fn(Failure) + Send + Sync),
    ) -> Result<InstalledEngine, Failure>;

    /// Makes sure that the engine computes with weights of the types in this file.
    ///
    /// What is sure already costs nothing; there is nothing to be sure of for an engine that comes from elsewhere.
    async fn proven(
        &self,
        _installed: &InstalledEngine,
        _spec: &ReplicaSpec,
        _weights: &Path,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Gets weights.
    async fn weights(
        &self,
        weights: &Weights,
        progress: &(dyn Fn(FetchProgress) + Send + Sync),
    ) -> Result<PathBuf, Failure>;

    /// The memory of the smallest of these GPUs, or main memory when none is named; `None` when that is not known.
    fn card(&self, gpus: &[u32]) -> Option<Bytes> {
        let _ = gpus;
        None
    }
}

/// Why a replica could not be started or has ended, as it is reported.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What went wrong, in one line.
    pub error: String,
    /// What would help.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure that needs no hint.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// The failure that an error and its causes tell.
    #[must_use]
    pub fn of<E: Coded + 'static>(error: &E) -> Self {
        Self {
            error: Chain(error).to_string(),
            hint: error.hint(),
        }
    }
}
