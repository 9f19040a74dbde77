//! One way to run a model: the form that people write, and the checked form of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    DefinitionError, OneOrMany, bounded,
    needs::{FabricNeed, GpusDefinition, KvCache, Needs, Pooling, Prefer, Shards, Written},
    problem,
};
use crate::{
    id::{EngineName, ProfileName},
    units::{Bytes, Cores, Tokens},
};

/// A profile as people write it.
///
/// ```yaml
/// name: q4-2gpu
/// memory: 8GiB
/// gpus: {count: 2, class: [H100, H200], memory: 22GiB}
/// cpu: 4
/// labels: {facility: north}
/// ```
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileDefinition {
    /// Its name; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The engine, one that this release knows or that an operator describes; `llamacpp` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Main memory that one replica needs in all: weights, cache and buffers. With shards: that each of them needs. When
    /// absent, the control plane reads the header of the weights, where a server has them, and estimates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Tokens of context for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Requests that run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// GPUs of one replica, or of each of its shards; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpusDefinition>,
    /// Processor cores that are kept for it; none are when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cores>,
    /// Disk that it needs besides that of its weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// Parts on different nodes; absent: it runs on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<Shards>,
    /// The network that its shards share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricNeed>,
    /// Only nodes of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only nodes with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether replicas of the model keep apart or come together.
    #[serde(default, skip_serializing_if = "Prefer::is_default")]
    pub prefer: Prefer,
    /// How the cache of keys and values is kept: `f8` halves it, for vLLM and SGLang.
    #[serde(default, skip_serializing_if = "KvCache::is_default")]
    pub kv_cache: KvCache,
    /// For models that embed or rerank: how what is made of each token becomes one answer, `auto` as the weights say.
    /// Absent: the model writes text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
}

/// One way to run a model.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Profile {
    /// Its name, unique in the model.
    pub name: ProfileName,
    /// The program that runs it.
    pub engine: EngineName,
    /// Main memory that one replica, or each of its shards, needs in all; zero until the control plane has estimated
    /// what the definition does not say.
    pub memory: Bytes,
    /// Context for each request.
    pub context: Tokens,
    /// Requests that run at the same time.
    pub parallel: u32,
    /// What else it needs of its nodes.
    #[serde(flatten)]
    pub needs: Needs,
}

// === impl Profile ===

impl Profile {
    /// Whether it is known how much memory it needs.
    #[must_use]
    pub fn is_sized(&self) -> bool {
        self.memory > Bytes::ZERO
    }
}

// === impl ProfileDefinition ===

impl ProfileDefinition {
    /// The plainest definition: so much main memory, and the defaults for all else.
    #[must_use]
    pub fn of_memory(memory: Bytes) -> Self {
        Self {
            name: None,
            engine: None,
            memory: Some(memory),
            context: None,
            parallel: None,
            gpus: None,
            cpu: None,
            disk: None,
            shards: None,
            fabric: None,
            pool: None,
            labels: BTreeMap::new(),
            prefer: Prefer::Spread,
            kv_cache: KvCache::Auto,
            pooling: None,
        }
    }

    /// Checks it; `path` is where it stands, such as `profiles[0]`.
    pub(super) fn checked(self, path: &str) -> Result<Profile, DefinitionError> {
        let field = |name: &str| format!("{path}.{name}");
        let Self {
            name,
            engine,
            memory,
            context,
            parallel,
            gpus,
            cpu,
            disk,
            shards,
            fabric,
            pool,
            labels,
            prefer,
            kv_cache,
            pooling,
        } = self;
        let name = name.as_deref().unwrap_or("default");
        let name: ProfileName = name
            .parse()
            .map_err(|e| problem(&field("name"), &e, None))?;
        let engine_name = engine.as_deref().unwrap_or("llamacpp");
        let engine: EngineName = engine_name
            .parse()
            .map_err(|e| problem(&field("engine"), &e, None))?;
        if kv_cache == KvCache::F8 && !matches!(engine.as_str(), "vllm" | "sglang") {
            return Err(problem(
                &field("kv_cache"),
                &format!("{engine} keeps its cache in no such form"),
                Some("leave kv_cache out, or use vllm or sglang"),
            ));
        }
        if pooling.is_some() && engine.as_str() != "llamacpp" {
            return Err(problem(
                &field("pooling"),
                &format!("{engine} is started for text alone"),
                Some("leave pooling out, or use llamacpp"),
            ));
        }
        if memory == Some(Bytes::ZERO) {
            return Err(problem(&field("memory"), &"0 B can't hold a model", None));
        }
        let memory = memory.unwrap_or(Bytes::ZERO);
        bounded(memory, &field("memory"))?;
        if let Some(disk) = disk {
            bounded(disk, &field("disk"))?;
        }
        let context = context.unwrap_or(DEFAULT_CONTEXT);
        if !(MIN_CONTEXT..=MAX_CONTEXT).contains(&context) {
            return Err(problem(
                &field("context"),
                &format!("{context} tokens is not between 256 and 16,777,216"),
                None,
            ));
        }
        let parallel = parallel.unwrap_or(DEFAULT_PARALLEL);
        if !(1..=MAX_PARALLEL).contains(&parallel) {
            return Err(problem(
                &field("parallel"),
                &format!("{parallel} is not between 1 and 256"),
                None,
            ));
        }
        let written = Written {
            gpus,
            cpu,
            disk,
            shards,
            fabric,
            pool,
            labels,
            prefer,
            kv_cache,
            pooling,
        };
        Ok(Profile {
            name,
            engine,
            memory,
            context: Tokens(context),
            parallel,
            needs: written.checked(path)?,
        })
    }
}

impl From<Profile> for ProfileDefinition {
    fn from(profile: Profile) -> Self {
        let Profile {
            name,
            engine,
            memory,
            context,
            parallel,
            needs,
        } = profile;
        let Needs {
            gpus,
            cpu,
            disk,
            shards,
            fabric,
            pool,
            labels,
            prefer,
            kv_cache,
            pooling,
        } = needs;
        Self {
            name: Some(name.to_string()),
            engine: Some(engine.to_string()),
            memory: (memory > Bytes::ZERO).then_some(memory),
            context: Some(context.0),
            parallel: Some(parallel),
            gpus: gpus.map(|gpus| GpusDefinition {
                count: gpus.count,
                class: (!gpus.classes.is_empty()).then_some(OneOrMany::Many(gpus.classes)),
                memory: gpus.memory,
            }),
            cpu,
            disk,
            shards,
            fabric,
            pool,
            labels,
            prefer,
            kv_cache,
            pooling,
        }
    }
}

const DEFAULT_CONTEXT: u64 = 4_096;
const MIN_CONTEXT: u64 = 256;
const MAX_CONTEXT: u64 = 1 << 24;
const DEFAULT_PARALLEL: u32 = 4;
const MAX_PARALLEL: u32 = 256;
