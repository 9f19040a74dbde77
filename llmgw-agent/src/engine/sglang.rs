//! SGLang's server, from a Python environment.
//!
//! What is written here was read in `sglang/srt/arg_groups/fields/`, `sglang/srt/entrypoints/http_server.py` and
//! `sglang/srt/mem_cache/kv_cache_configurator.py` of SGLang 0.5.23.

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
            "sglang.launch_server".into(),
            "--model-path".into(),
            weights.into(),
            "--host".into(),
            HOST.into(),
            "--port".into(),
            port.to_string().into(),
            // It serves one name alone. What tells the replica is the version of its weights, a text of ours that
            // it gives back.
            "--served-model-name".into(),
            spec.model.as_str().into(),
            "--weight-version".into(),
            spec.id.to_string().into(),
            "--context-length".into(),
            profile.context.to_string().into(),
            "--max-running-requests".into(),
            profile.parallel.to_string().into(),
            "--tensor-parallel-size".into(),
            spec.gpus.len().max(1).to_string().into(),
            "--enable-metrics".into(),
        ];
        // Of a replica that fails its check nothing is started; of whole GPUs SGLang itself chooses the part.
        if let Ok(Some(share)) = Share::of(spec, *card) {
            args.push("--mem-fraction-static".into());
            args.push(share.thousandths(STATIC_PART).text().into());
        }
        if profile.needs.kv_cache == KvCache::F8 {
            args.extend(["--kv-cache-dtype".into(), "fp8_e4m3".into()]);
        }
        let mut env = Vec::new();
        env.extend([
            ("PATH".into(), search_path(python)),
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

/// Of what a replica was given, the thousandths that are for weights and cache: the rest is for activations and
/// graphs, as [`SglangEngine`]'s flag leaves it out. The estimate of memory that placement uses has the same.
const STATIC_PART: u32 = 880;

#[cfg(test)]
mod tests;
