//! SGLang's server, from a Python environment.
//!
//! What is written here was read in `sglang/srt/arg_groups/fields/`, `sglang/srt/entrypoints/http_server.py` and
//! `sglang/srt/mem_cache/kv_cache_configurator.py` of SGLang 0.5.23.

use std::time::Duration;

use llmgw_core::{
    cluster::{engine::custom::StopSignal, replica::ReplicaSpec},
    id::{EngineName, ReplicaId},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    COMPILING, Engine, EngineCommand, LaunchProblem, LaunchRequest, WeightsForm,
    environment::{Words, command},
    gpu::Share,
    metrics, openai,
};

/// Describes SGLang's server.
#[derive(Debug)]
pub(super) struct SglangEngine {
    name: EngineName,
}

#[derive(Deserialize)]
struct ModelInfo {
    weight_version: String,
}

// === impl SglangEngine ===

impl SglangEngine {
    pub(super) const NAME: &'static str = "sglang";

    pub(super) fn new(name: EngineName) -> Self {
        Self { name }
    }
}

impl Engine for SglangEngine {
    fn name(&self) -> &EngineName {
        &self.name
    }

    fn weights(&self) -> WeightsForm {
        WeightsForm::Directory
    }

    fn check(&self, request: &LaunchRequest<'_>) -> Result<(), LaunchProblem> {
        Share::of(request.spec, request.card).map(|_| ())
    }

    fn command(&self, request: &LaunchRequest<'_>) -> EngineCommand {
        command(request, &WORDS)
    }

    fn warm_up(&self) -> Duration {
        COMPILING
    }

    fn stop_signal(&self) -> Option<StopSignal> {
        // Its server finishes what it serves and ends its schedulers.
        Some(StopSignal::Term)
    }

    fn health_path(&self) -> &str {
        // Also computes a token when nothing else is computed, and answers 503 while it starts.
        "/health"
    }

    fn identity_path(&self) -> Option<&str> {
        Some("/model_info")
    }

    fn is_identity(&self, body: &[u8], replica: ReplicaId) -> bool {
        serde_json::from_slice::<ModelInfo>(body)
            .is_ok_and(|info| info.weight_version == replica.to_string())
    }

    fn probe_request(&self, spec: &ReplicaSpec) -> Option<(&str, Value)> {
        Some((openai::COMPLETIONS, openai::one_token(spec)))
    }

    fn probe_answered(&self, body: &[u8]) -> bool {
        openai::is_token(body)
    }

    fn busy_path(&self) -> Option<&str> {
        Some("/metrics")
    }

    fn busy(&self, body: &[u8]) -> Option<usize> {
        metrics::count(body, "sglang:num_running_reqs")
    }
}

const WORDS: Words = Words {
    start: &["sglang.launch_server", "--model-path"],
    // It serves one name alone. What tells the replica is the version of its weights, a text of ours that it gives back.
    identity: &["--weight-version"],
    context: "--context-length",
    parallel: "--max-running-requests",
    always: &["--enable-metrics"],
    share: "--mem-fraction-static",
    thousandths: Some(STATIC_PART),
    cache_f8: "fp8_e4m3",
    env: &[],
};

/// Of what a replica was given, the thousandths that are for weights and cache: the rest is for activations and
/// graphs, as [`SglangEngine`]'s flag leaves it out. The estimate of memory that placement uses has the same.
const STATIC_PART: u32 = 880;

#[cfg(test)]
mod tests;
