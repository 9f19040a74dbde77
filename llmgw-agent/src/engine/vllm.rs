//! vLLM's OpenAI server, from a Python environment.
//!
//! What is written here was read in `vllm/engine/arg_utils.py`, `vllm/config/` and `vllm/entrypoints/` of vLLM
//! 0.33.0.

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

/// Describes vLLM's server.
#[derive(Debug)]
pub(super) struct VllmEngine {
    name: EngineName,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

// === impl VllmEngine ===

impl VllmEngine {
    pub(super) const NAME: &'static str = "vllm";

    pub(super) fn new(name: EngineName) -> Self {
        Self { name }
    }
}

impl Engine for VllmEngine {
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
        // Its server waits for what it serves and ends its workers; workers that are asked first would cut it off.
        Some(StopSignal::Term)
    }

    fn health_path(&self) -> &str {
        "/health"
    }

    fn identity_path(&self) -> Option<&str> {
        Some("/v1/models")
    }

    fn is_identity(&self, body: &[u8], replica: ReplicaId) -> bool {
        let replica = replica.to_string();
        serde_json::from_slice::<ModelList>(body)
            .is_ok_and(|list| list.data.iter().any(|model| model.id == replica))
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
        metrics::count(body, "vllm:num_requests_running")
    }
}

const WORDS: Words = Words {
    start: &["vllm.entrypoints.cli.main", "serve"],
    // Both names are served, and listed: the second tells the replica from any other.
    identity: &[],
    context: "--max-model-len",
    parallel: "--max-num-seqs",
    always: &[
        "--disable-access-log-for-endpoints",
        "/health,/metrics,/v1/models",
    ],
    // Of whole GPUs it chooses 0.92 itself.
    share: "--gpu-memory-utilization",
    thousandths: None,
    cache_f8: "fp8",
    env: &[("VLLM_NO_USAGE_STATS", "1")],
};

#[cfg(test)]
mod tests;
