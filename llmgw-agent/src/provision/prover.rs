use std::fmt::Debug;

use async_trait::async_trait;

use super::ComputeProblem;
use crate::engine::InstalledEngine;

/// Computes with a build in the place of the agent's own check: for builds that can't compute.
///
/// # Contract
/// * `prove` starts the very program that models will be started with, computes with it, and ends it with all
///   that it started, whatever happens: also when the future is dropped.
/// * It is bounded in time and memory, and needs nothing but the build.
/// * `Ok` means that the right numbers came out, on a GPU when `on_gpu` is set.
#[async_trait]
pub trait Prover: Debug + Send + Sync + 'static {
    /// Computes with `installed`.
    async fn prove(&self, installed: &InstalledEngine, on_gpu: bool) -> Result<(), ComputeProblem>;
}
