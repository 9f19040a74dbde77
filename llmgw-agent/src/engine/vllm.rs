//! vLLM's OpenAI server, from a Python environment.
//!
//! What is written here was read in `vllm/engine/arg_utils.py`, `vllm/config/` and `vllm/entrypoints/` of vLLM
//! 0.33.0.

use std::{ffi::OsString, time::Duration};

use llmgw_core::{
    cluster::{catalog::KvCache, engine::custom::StopSignal, replica::ReplicaSpec},
    id::{EngineName, ReplicaId},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    COMPILING, Engine, EngineCommand, HOST, LaunchProblem, LaunchRequest, WeightsForm,
    environment::search_path, gpu::Share, metrics, openai,
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
        let LaunchRequest {
            engine,
            spec,
            weights,
            port,
            card,
        } = request;
        let profile = &spec.profile;
        let python = engine.launch.program();
        let mut args: Vec<OsString> = vec![
            // Isolated: neither the user's own packages nor PYTHON* variables change what is run.
            "-I".into(),
            "-m".into(),
            "vllm.entrypoints.cli.main".into(),
            "serve".into(),
            weights.into(),
            "--host".into(),
            HOST.into(),
            "--port".into(),
            port.to_string().into(),
            // Both names are served, and listed: the second tells the replica from any other.
            "--served-model-name".into(),
            spec.model.as_str().into(),
            spec.id.to_string().into(),
            // For each request: pages are shared, so that nothing is multiplied by the parallel ones.
            "--max-model-len".into(),
            profile.context.to_string().into(),
            "--max-num-seqs".into(),
            profile.parallel.to_string().into(),
            "--tensor-parallel-size".into(),
            spec.gpus.len().max(1).to_string().into(),
            "--disable-access-log-for-endpoints".into(),
            "/health,/metrics,/v1/models".into(),
        ];
        // Of a replica that fails its check nothing is started; whole GPUs are vLLM's own choice, 0.92.
        if let Ok(Some(share)) = Share::of(spec, *card) {
            args.push("--gpu-memory-utilization".into());
            args.push(share.text().into());
        }
        if profile.needs.kv_cache == KvCache::F8 {
            args.extend(["--kv-cache-dtype".into(), "fp8".into()]);
        }
        let mut env = Vec::new();
        env.extend([
            ("PATH".into(), search_path(python)),
            ("VLLM_NO_USAGE_STATS".into(), "1".into()),
            // All that it reads is in the directory: nothing is asked of a hub.
            ("HF_HUB_OFFLINE".into(), "1".into()),
        ]);
        EngineCommand {
            program: python.to_owned(),
            args,
            env,
        }
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

#[cfg(test)]
mod tests;
