//! What a replica needs of its nodes besides main memory: GPUs, cores, disk, shards, a fabric, a choice of nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DefinitionError, OneOrMany, bounded, problem};
use crate::units::{Bytes, Cores};

/// What a replica needs of its nodes besides main memory.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Needs {
    /// GPUs of one replica, or of each of its shards; absent: it runs without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuNeed>,
    /// Processor cores that are kept for it.
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
    /// How the cache of keys and values is kept.
    #[serde(default, skip_serializing_if = "KvCache::is_default")]
    pub kv_cache: KvCache,
    /// Whether it makes vectors or scores of texts, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
}

/// GPUs as people write them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GpusDefinition {
    /// How many.
    pub count: u32,
    /// One class, or several that will all do, such as `H100`; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<OneOrMany>,
    /// Memory on each of them; absent: the whole GPU, which nobody else may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// GPUs of one node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GpuNeed {
    /// How many.
    pub count: u32,
    /// Classes that will do; any when empty. Case makes no difference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Memory on each of them; absent: the whole GPU, which nobody else may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Parts of one replica, each on a node of its own.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    /// How many.
    pub count: u32,
    /// How the model is cut.
    #[serde(default)]
    pub split: Split,
}

/// How a model is cut into shards.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// By layers: each shard holds some of them.
    #[default]
    Pipeline,
    /// Within layers: every shard works on every token.
    Tensor,
}

/// A network that shards share.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FabricNeed {
    /// The name of a fabric, or its kind, such as `infiniband`.
    pub name: String,
    /// Whether it has to be; otherwise it is only sought first.
    #[serde(default)]
    pub required: bool,
}

/// How replicas of one model are laid out.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefer {
    /// On different nodes: one that fails takes few of them along.
    #[default]
    Spread,
    /// On the same node: weights are fetched once.
    Pack,
}

/// How a number in the cache of keys and values is kept.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvCache {
    /// As the engine keeps it by itself: in 16 bits, or as the model says.
    #[default]
    Auto,
    /// In 8 bits: half the memory, on GPUs that can. Of vLLM and SGLang.
    F8,
}

/// How what a model makes of each token of a text becomes one answer: for models that embed or rerank.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// As the weights say.
    Auto,
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token.
    Last,
    /// A score of how well the text answers a query: of rerankers.
    Rank,
}

/// The needs of a profile as they were written.
pub(super) struct Written {
    pub(super) gpus: Option<GpusDefinition>,
    pub(super) cpu: Option<Cores>,
    pub(super) disk: Option<Bytes>,
    pub(super) shards: Option<Shards>,
    pub(super) fabric: Option<FabricNeed>,
    pub(super) pool: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) prefer: Prefer,
    pub(super) kv_cache: KvCache,
    pub(super) pooling: Option<Pooling>,
}

// === impl KvCache ===

impl KvCache {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Prefer ===

impl Prefer {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Written ===

impl Written {
    /// Checks them; `path` is where the profile stands.
    pub(super) fn checked(self, path: &str) -> Result<Needs, DefinitionError> {
        let field = |name: &str| format!("{path}.{name}");
        let Self {
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
        if cpu == Some(Cores::ZERO) {
            return Err(problem(
                &field("cpu"),
                &"0 cores run nothing",
                Some("leave cpu out to keep no cores for it"),
            ));
        }
        if cpu.is_some_and(|cpu| cpu > MAX_CORES) {
            return Err(problem(&field("cpu"), &"more than 65,536 cores", None));
        }
        if let Some(Shards { count, .. }) = shards
            && !(2..=MAX_SHARDS).contains(&count)
        {
            return Err(problem(
                &field("shards.count"),
                &format!("{count} is not between 2 and 256"),
                Some("leave shards out to run on one node"),
            ));
        }
        if let Some(fabric) = &fabric {
            named(&field("fabric.name"), &fabric.name)?;
            if shards.is_none() {
                return Err(problem(
                    &field("fabric"),
                    &"without shards there is nothing to connect",
                    Some("leave fabric out, or say shards: {count: 2}"),
                ));
            }
        }
        if let Some(pool) = &pool {
            named(&field("pool"), pool)?;
        }
        if labels.len() > MAX_LABELS {
            return Err(problem(&field("labels"), &"more than 32 labels", None));
        }
        for (key, value) in &labels {
            named(&field("labels"), key)?;
            named(&field(&format!("labels.{key}")), value)?;
        }
        Ok(Needs {
            gpus: gpus.map(|gpus| gpus.checked(&field("gpus"))).transpose()?,
            cpu,
            disk,
            shards,
            fabric,
            pool,
            labels,
            prefer,
            kv_cache,
            pooling,
        })
    }
}

// === impl GpusDefinition ===

impl GpusDefinition {
    fn checked(self, path: &str) -> Result<GpuNeed, DefinitionError> {
        let field = |name: &str| format!("{path}.{name}");
        let Self {
            count,
            class,
            memory,
        } = self;
        if !(1..=MAX_GPUS).contains(&count) {
            return Err(problem(
                &field("count"),
                &format!("{count} is not between 1 and 64, which is what one node can have"),
                Some(if count == 0 {
                    "leave gpus out to run without"
                } else {
                    "cut the model over nodes: shards: {count: 2}"
                }),
            ));
        }
        if memory == Some(Bytes::ZERO) {
            return Err(problem(
                &field("memory"),
                &"0 B of a GPU hold nothing",
                Some("leave memory out to have the whole GPU"),
            ));
        }
        if let Some(memory) = memory {
            bounded(memory, &field("memory"))?;
        }
        let classes = match class {
            None => Vec::new(),
            Some(OneOrMany::One(class)) => vec![class],
            Some(OneOrMany::Many(classes)) if classes.is_empty() => {
                return Err(problem(
                    &field("class"),
                    &"no class at all is allowed",
                    Some("leave class out to take any"),
                ));
            }
            Some(OneOrMany::Many(classes)) => classes,
        };
        for (index, class) in classes.iter().enumerate() {
            let field = field(&format!("class[{index}]"));
            named(&field, class)?;
            let same = |other: &String| other.eq_ignore_ascii_case(class);
            if classes.iter().take(index).any(same) {
                return Err(problem(&field, &format!("{class} is named twice"), None));
            }
        }
        Ok(GpuNeed {
            count,
            classes,
            memory,
        })
    }
}

fn named(field: &str, text: &str) -> Result<(), DefinitionError> {
    if text.trim().is_empty() {
        return Err(problem(field, &"is empty", None));
    }
    if text.chars().count() > MAX_NAME || text.chars().any(char::is_control) {
        return Err(problem(
            field,
            &"is longer than 128 characters, or has a control character",
            None,
        ));
    }
    Ok(())
}

/// No machine has more; a typing error does.
const MAX_CORES: Cores = Cores(65_536_000);
const MAX_GPUS: u32 = 64;
const MAX_SHARDS: u32 = 256;
const MAX_LABELS: usize = 32;
const MAX_NAME: usize = 128;

#[cfg(test)]
mod tests {
    use crate::cluster::catalog::{Model, ModelDefinition};

    fn read(profile: serde_json::Value) -> Result<Model, String> {
        let mut profile = profile;
        profile["memory"] = "1GiB".into();
        let definition: ModelDefinition = serde_json::from_value(serde_json::json!({
            "name": "tiny", "source": "file:/x", "profiles": [profile],
        }))
        .map_err(|error| error.to_string())?;
        Model::try_from(definition).map_err(|error| error.to_string())
    }

    #[test]
    fn all_needs_survive_the_serial_form_of_a_model() {
        let model = read(serde_json::json!({
            "gpus": {"count": 2, "class": "H200", "memory": "22GiB"}, "cpu": 1.5, "disk": "1GiB",
            "shards": {"count": 2, "split": "tensor"}, "fabric": {"name": "infiniband", "required": true},
            "pool": "big", "labels": {"facility": "north"}, "prefer": "pack", "pooling": "mean",
        }))
        .unwrap();
        let needs = &model.profiles()[0].needs;
        assert_eq!(needs.cpu.unwrap().0, 1_500);
        assert_eq!(needs.gpus.as_ref().unwrap().classes, ["H200"]);
        let json = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), model);
        let profile = serde_json::to_string(&model.profiles()[0]).unwrap();
        assert_eq!(
            serde_json::from_str::<crate::cluster::catalog::Profile>(&profile).unwrap(),
            model.profiles()[0]
        );
    }

    #[test]
    fn a_profile_without_needs_looks_as_it_always_did() {
        let model = read(serde_json::json!({})).unwrap();
        assert_eq!(
            serde_json::to_value(&model.profiles()[0]).unwrap(),
            serde_json::json!({
                "name": "default", "engine": "llamacpp", "memory": 1 << 30, "context": 4_096, "parallel": 4,
            })
        );
    }

    #[test]
    fn needs_that_cannot_be_right_are_refused_with_their_path() {
        for (profile, said) in [
            (
                serde_json::json!({"gpus": {"count": 0, "memory": "9GiB"}}),
                "profiles[0].gpus.count: 0 is not",
            ),
            (
                serde_json::json!({"gpus": {"count": 65}}),
                "profiles[0].gpus.count: 65 is not",
            ),
            (
                serde_json::json!({"gpus": {"count": 1, "memory": 0}}),
                "profiles[0].gpus.memory: 0 B",
            ),
            (
                serde_json::json!({"gpus": {"count": 1, "class": []}}),
                "profiles[0].gpus.class: no class",
            ),
            (
                serde_json::json!({"gpus": {"count": 1, "class": ["A10", "a10"]}}),
                "profiles[0].gpus.class[1]: a10 is named twice",
            ),
            (serde_json::json!({"cpu": 0}), "profiles[0].cpu: 0 cores"),
            (
                serde_json::json!({"shards": {"count": 1}}),
                "profiles[0].shards.count: 1 is not",
            ),
            (
                serde_json::json!({"fabric": {"name": "ib"}}),
                "profiles[0].fabric: without shards",
            ),
            (
                serde_json::json!({"pool": " "}),
                "profiles[0].pool: is empty",
            ),
            (
                serde_json::json!({"labels": {"zone": ""}}),
                "profiles[0].labels.zone: is empty",
            ),
            (
                serde_json::json!({"gpus": {"count": 1, "kind": "A10"}}),
                "unknown field `kind`",
            ),
            (
                serde_json::json!({"engine": "vllm", "pooling": "mean"}),
                "profiles[0].pooling: vllm is started for text alone",
            ),
            (
                serde_json::json!({"prefer": "chaos"}),
                "unknown variant `chaos`",
            ),
        ] {
            let refused = read(profile.clone()).unwrap_err();
            assert!(refused.starts_with(said), "{profile}: {refused}");
        }
    }
}
