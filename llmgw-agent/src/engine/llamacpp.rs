//! llama.cpp: its own `llama-server`, or the same server inside a Python package behind our launcher.

use std::ffi::OsString;

use llmgw_core::{
    cluster::{
        catalog::{Pooling, Profile},
        replica::ReplicaSpec,
    },
    id::{EngineName, ReplicaId},
    units::Bytes,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Engine, EngineCommand, HOST, Launch, LaunchRequest, openai};

/// Describes llama.cpp's server.
#[derive(Debug)]
pub(super) struct LlamaCppEngine {
    name: EngineName,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    #[serde(default)]
    aliases: Vec<String>,
}

#[derive(Deserialize)]
struct Slot {
    is_processing: bool,
}

// === impl LlamaCppEngine ===

impl LlamaCppEngine {
    pub(super) const NAME: &'static str = "llamacpp";

    pub(super) fn new(name: EngineName) -> Self {
        Self { name }
    }
}

impl Engine for LlamaCppEngine {
    fn name(&self) -> &EngineName {
        &self.name
    }

    fn command(&self, request: &LaunchRequest<'_>) -> EngineCommand {
        let LaunchRequest {
            engine,
            spec,
            weights,
            port,
            card: _,
        } = request;
        let profile = &spec.profile;
        let port = port.to_string();
        let parallel = profile.parallel.to_string();
        let cache = prompt_cache_mib(profile.memory).to_string();
        // Its threads wait for each other hundreds of times a token, and would do so at full speed for a while: where replicas
        // share cores, each then keeps the others from what it waits for. So few turns cost one replica alone 4 %.
        let env = match spec.gpus.is_empty() {
            true => vec![("GOMP_SPINCOUNT".into(), "200".into())],
            false => Vec::new(),
        };
        match &engine.launch {
            Launch::Wheel { python, launcher } => EngineCommand {
                program: python.clone(),
                args: vec![
                    // Isolated: neither the user's own packages nor PYTHON* variables change what is run.
                    "-I".into(),
                    launcher.into(),
                    "--model".into(),
                    weights.into(),
                    "--alias".into(),
                    spec.model.as_str().into(),
                    "--alias".into(),
                    spec.id.to_string().into(),
                    "--host".into(),
                    HOST.into(),
                    "--port".into(),
                    port.into(),
                    "--context".into(),
                    profile.context.to_string().into(),
                    "--parallel".into(),
                    parallel.into(),
                    "--cache-ram".into(),
                    cache.into(),
                ]
                .into_iter()
                .chain(for_launcher(profile.needs.pooling))
                .collect(),
                env,
            },
            program => {
                // llama-server divides its context among the slots; a profile says it per request.
                let total = profile
                    .context
                    .0
                    .saturating_mul(u64::from(profile.parallel));
                let aliases = format!("{},{}", spec.model, spec.id);
                let mut args: Vec<OsString> = vec![
                    "-m".into(),
                    weights.into(),
                    "--host".into(),
                    HOST.into(),
                    "--port".into(),
                    port.into(),
                    "--ctx-size".into(),
                    total.to_string().into(),
                    "--parallel".into(),
                    parallel.into(),
                    "--alias".into(),
                    aliases.into(),
                    "--cache-ram".into(),
                    cache.into(),
                    "--metrics".into(),
                    "--slots".into(),
                    "--no-webui".into(),
                ];
                args.extend(for_server(profile));
                EngineCommand {
                    program: program.program().to_owned(),
                    args,
                    env,
                }
            }
        }
    }

    fn health_path(&self) -> &str {
        "/health"
    }

    fn identity_path(&self) -> Option<&str> {
        Some("/v1/models")
    }

    fn is_identity(&self, body: &[u8], replica: ReplicaId) -> bool {
        let Ok(list) = serde_json::from_slice::<ModelList>(body) else {
            return false;
        };
        let replica = replica.to_string();
        // Builds that know a single alias show the whole list as the one name.
        let names = |text: &str| text.split(',').any(|name| name == replica);
        list.data
            .iter()
            .any(|model| names(&model.id) || model.aliases.iter().any(|alias| names(alias)))
    }

    fn probe_request(&self, spec: &ReplicaSpec) -> Option<(&str, Value)> {
        Some(match spec.profile.needs.pooling {
            None => (openai::COMPLETIONS, openai::one_token(spec)),
            Some(Pooling::Rank) => (openai::RERANK, openai::one_score(spec)),
            Some(_) => (openai::EMBEDDINGS, openai::one_vector(spec)),
        })
    }

    fn probe_answered(&self, body: &[u8]) -> bool {
        openai::is_token(body) || openai::is_vector_or_score(body)
    }

    fn busy_path(&self) -> Option<&str> {
        Some("/slots")
    }

    fn busy(&self, body: &[u8]) -> Option<usize> {
        let slots = serde_json::from_slice::<Vec<Slot>>(body).ok()?;
        Some(slots.iter().filter(|slot| slot.is_processing).count())
    }
}

/// What the launcher is told of pooling.
fn for_launcher(pooling: Option<Pooling>) -> impl Iterator<Item = OsString> {
    let told = pooling.map(|pooling| ["--pooling", word(pooling)].map(OsString::from));
    told.into_iter().flatten()
}

/// What the engine's own program is told of it.
fn for_server(profile: &Profile) -> Vec<OsString> {
    let Some(pooling) = profile.needs.pooling else {
        return Vec::new();
    };
    // A text is pooled at once: all that a request may have goes through in one batch.
    let whole = profile.context.to_string();
    let mut args = vec!["--batch-size", &whole, "--ubatch-size", &whole];
    match pooling {
        Pooling::Auto => args.push("--embeddings"),
        Pooling::Rank => args.push("--reranking"),
        Pooling::Mean | Pooling::Cls | Pooling::Last => {
            args.extend(["--embeddings", "--pooling", word(pooling)]);
        }
    }
    args.into_iter().map(OsString::from).collect()
}

fn word(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Auto => "auto",
        Pooling::Mean => "mean",
        Pooling::Cls => "cls",
        Pooling::Last => "last",
        Pooling::Rank => "rank",
    }
}

/// How much memory the engine may use to keep prompts of earlier requests: a sixteenth of the profile's.
///
/// The engine's default is 8 GiB whatever it was given, which on a small profile is many times the model.
/// A sixteenth is less than what a profile leaves beside weights and key-value cache (an estimate is rarely
/// closer than that), and still holds several conversations.
fn prompt_cache_mib(memory: Bytes) -> u64 {
    (memory.0 / 16 / Bytes::mib(1).0).min(ENGINE_DEFAULT_CACHE_MIB)
}

const ENGINE_DEFAULT_CACHE_MIB: u64 = 8_192;

#[cfg(test)]
mod tests;
