//! From a `config.json` and the headers of safetensors.

use llmgw_core::{
    hf_config::Config,
    safetensors::Header,
    units::{Bytes, Tokens},
};

use super::{
    Cache, Experts, Kind, Layer, MOST_LAYERS, Reach, Shape, ShapeError, recurrent_state,
    rules::{Pattern, Rule},
};

/// What a layer does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Full,
    Window,
    Recurrent,
}

impl Shape {
    /// Takes a shape from a `config.json` and the tensors; `like` names the model type whose rules hold, when
    /// not the file's own.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] when the model type is not known, or a field can't be right.
    pub fn from_config(
        config: &Config,
        header: &Header,
        like: Option<&str>,
    ) -> Result<Self, ShapeError> {
        let architecture = config
            .model_type()?
            .ok_or_else(|| ShapeError::field("model_type", "is missing"))?;
        let rule = Rule::of_config(like.unwrap_or(architecture)).ok_or_else(|| {
            ShapeError::cannot(architecture, "no rule is known for the model type")
        })?;
        let count = config
            .number_of(&["num_hidden_layers", "n_layer", "n_layers"])?
            .ok_or_else(|| ShapeError::field("num_hidden_layers", "is missing"))?;
        if count == 0 || count > MOST_LAYERS {
            let problem = format!("{count}; 1 to {MOST_LAYERS} are allowed");
            return Err(ShapeError::field("num_hidden_layers", problem));
        }
        let embedding = config
            .number_of(&["hidden_size", "n_embd", "d_model"])?
            .filter(|width| *width > 0)
            .ok_or_else(|| ShapeError::field("hidden_size", "is missing"))?;
        let heads = config
            .number_of(&["num_attention_heads", "n_head", "n_heads"])?
            .unwrap_or(0);
        let cache = attention(config, rule, embedding, heads)?;
        let (state, inner) = match rule {
            Rule::Interval => delta(config)?,
            _ => (Bytes::ZERO, 0),
        };
        let given = config.number_of(&["sliding_window", "attention_chunk_size"])?;
        let window = match rule {
            Rule::Windows(pattern) => given.or(pattern.window),
            _ => None,
        };
        let mut layers: Vec<Layer> = Vec::new();
        for role in roles(config, rule, count)? {
            let windowed = |window| Cache {
                reach: Reach::Window(Tokens(window)),
                ..cache
            };
            layers.push(match (role, window) {
                _ if rule.kind() == Kind::Reader => Layer::default(),
                (Role::Recurrent, _) => Layer {
                    state,
                    ..Layer::default()
                },
                (Role::Window, Some(window)) => Layer {
                    cache: Some(windowed(window)),
                    ..Layer::default()
                },
                (Role::Window | Role::Full, _) => Layer {
                    cache: Some(cache),
                    ..Layer::default()
                },
            });
        }
        let weights = Weights::of(header, &mut layers);
        Ok(Self {
            architecture: architecture.to_owned(),
            kind: rule.kind(),
            layers,
            draft: Vec::new(),
            embedding,
            vocabulary: config.needed("vocab_size")?,
            feed_forward: config
                .number_of(&["intermediate_size", "n_inner", "ffn_hidden_size"])?
                .unwrap_or_else(|| embedding.saturating_mul(4)),
            experts: experts(config)?,
            heads,
            head_width: cache.key.max(cache.value),
            recurrent_width: inner,
            trained_context: config
                .number_of(&["max_position_embeddings", "n_positions"])?
                .map(Tokens),
            input: weights.input,
            output: weights.output,
            tied: Bytes::ZERO,
        })
    }
}

/// What attention keeps in a layer that looks back to the beginning.
fn attention(config: &Config, rule: Rule, embedding: u64, heads: u64) -> Result<Cache, ShapeError> {
    if rule == Rule::Latent {
        // One row of the compressed and the rotary part: `MLAAttentionSpec` in vLLM.
        let key = config
            .needed("kv_lora_rank")?
            .saturating_add(config.needed("qk_rope_head_dim")?);
        return Ok(Cache {
            reach: Reach::All,
            heads: 1,
            key,
            value: 0,
        });
    }
    let width = match config.number("head_dim")? {
        Some(width) => width,
        None => embedding.checked_div(heads).unwrap_or(0),
    };
    let multi_query = config.flag("multi_query")?.unwrap_or(false);
    let kv_heads = match config.number_of(&["num_key_value_heads", "num_kv_heads"])? {
        Some(heads) => heads,
        None if multi_query => 1,
        None => heads,
    };
    Ok(Cache {
        reach: Reach::All,
        heads: kv_heads,
        key: width,
        value: width,
    })
}

/// The state of a gated delta layer, and its inner width.
fn delta(config: &Config) -> Result<(Bytes, u64), ShapeError> {
    let key = config.needed("linear_key_head_dim")?;
    let inner = config
        .needed("linear_num_value_heads")?
        .saturating_mul(config.needed("linear_value_head_dim")?);
    let state = recurrent_state(
        config.needed("linear_conv_kernel_dim")?,
        inner,
        config.needed("linear_num_key_heads")?,
        key,
    );
    Ok((state, inner))
}

fn roles(config: &Config, rule: Rule, count: u64) -> Result<Vec<Role>, ShapeError> {
    if let Some(listed) = config.texts("layer_types")? {
        if u64::try_from(listed.len()) != Ok(count) {
            let problem = format!("{} of them for {count} layers", listed.len());
            return Err(ShapeError::field("layer_types", problem));
        }
        let windows = matches!(rule, Rule::Windows(_));
        return listed
            .iter()
            .enumerate()
            .map(|(index, kind)| match *kind {
                "full_attention" | "attention" => Ok(Role::Full),
                // A file may list windows that its model type does not use.
                "sliding_attention" | "chunked_attention" if windows => Ok(Role::Window),
                "sliding_attention" | "chunked_attention" => Ok(Role::Full),
                "linear_attention" if rule == Rule::Interval => Ok(Role::Recurrent),
                other => {
                    let field = format!("layer_types[{index}]");
                    Err(ShapeError::field(
                        field,
                        format!("{other:?} is not known here"),
                    ))
                }
            })
            .collect();
    }
    let interval = config.number("full_attention_interval")?.unwrap_or(4);
    let period = config.number("sliding_window_pattern")?;
    (0..count)
        .map(|index| match rule {
            Rule::Interval if index.saturating_add(1).checked_rem(interval) != Some(0) => {
                Ok(Role::Recurrent)
            }
            Rule::Windows(pattern) => window_role(pattern, period, index),
            _ => Ok(Role::Full),
        })
        .collect()
}

fn window_role(pattern: Pattern, period: Option<u64>, layer: u64) -> Result<Role, ShapeError> {
    let period = period
        .or(pattern.period)
        .ok_or_else(|| ShapeError::field("layer_types", "is missing"))?;
    Ok(if pattern.has_window(layer, period) {
        Role::Window
    } else {
        Role::Full
    })
}

fn experts(config: &Config) -> Result<Option<Experts>, ShapeError> {
    let names = ["num_experts", "num_local_experts", "n_routed_experts"];
    let Some(count) = config.number_of(&names)?.filter(|count| *count > 0) else {
        return Ok(None);
    };
    let shared = config.number("n_shared_experts")?.unwrap_or(0);
    let used = config
        .number_of(&["num_experts_per_tok", "experts_per_token"])?
        .unwrap_or(1);
    let width = config
        .number_of(&["moe_intermediate_size", "intermediate_size"])?
        .unwrap_or(0);
    Ok(Some(Experts {
        count,
        used: used.saturating_add(shared),
        feed_forward: width,
    }))
}

/// Weights by where they are used.
#[derive(Default)]
struct Weights {
    input: Bytes,
    output: Bytes,
}

impl Weights {
    fn of(header: &Header, layers: &mut [Layer]) -> Self {
        let mut weights = Self::default();
        for (name, tensor) in &header.tensors {
            let of_layer = [".layers.", ".h.", ".layer.", ".blocks."]
                .iter()
                .find_map(|mark| name.split_once(mark))
                .filter(|(before, _)| !before.contains("vision") && !before.contains("visual"))
                .and_then(|(_, rest)| rest.split('.').next()?.parse::<usize>().ok())
                .and_then(|index| layers.get_mut(index));
            if let Some(layer) = of_layer {
                layer.weights = layer.weights + tensor.bytes;
            } else if name.contains("embed_tokens") {
                weights.input = weights.input + tensor.bytes;
            } else {
                weights.output = weights.output + tensor.bytes;
            }
        }
        weights
    }
}
