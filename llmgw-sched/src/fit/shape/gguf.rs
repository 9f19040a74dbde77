//! From the header of a GGUF file.

mod weights;

use llmgw_core::{
    gguf::{Header, Metadata, Numbers, Value},
    units::{Bytes, Tokens},
};

use self::weights::Weights;
use super::{
    Cache, Experts, Kind, Layer, MOST_LAYERS, Reach, STATE_ELEMENT, Shape, ShapeError,
    recurrent_state,
    rules::{Pattern, Rule},
};

/// The metadata of one architecture.
struct Fields<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

/// Heads and widths of attention.
struct Attention {
    heads: Numbers,
    key: u64,
    value: u64,
    window_key: u64,
    window_value: u64,
    window_heads: Option<u64>,
}

impl Shape {
    /// Takes a shape from a header; `like` names the architecture whose rules hold, when not the file's own.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] when the architecture or the type of a tensor is not known, or a field can't be right.
    pub fn from_gguf(header: &Header, like: Option<&str>) -> Result<Self, ShapeError> {
        let metadata = &header.metadata;
        let architecture = metadata
            .text("general.architecture")?
            .ok_or_else(|| ShapeError::field("metadata.general.architecture", "is missing"))?;
        let rule = Rule::of_gguf(like.unwrap_or(architecture)).ok_or_else(|| {
            ShapeError::cannot(architecture, "no rule is known for the architecture")
        })?;
        let fields = Fields {
            metadata,
            architecture,
        };
        let all = fields.needed("block_count")?;
        if all > MOST_LAYERS {
            let problem = format!("{all}; at most {MOST_LAYERS} are allowed");
            return Err(fields.wrong("block_count", &problem));
        }
        let drafting = fields.number("nextn_predict_layers")?.unwrap_or(0);
        if drafting >= all {
            let problem = format!("{drafting} of {all} layers");
            return Err(fields.wrong("nextn_predict_layers", &problem));
        }
        let embedding = fields.needed("embedding_length")?;
        let heads = fields
            .numbers("attention.head_count")?
            .map_or(0, |heads| heads.largest());
        if heads > MOST_HEADS {
            let problem = format!("{heads}; at most {MOST_HEADS} are allowed");
            return Err(fields.wrong("attention.head_count", &problem));
        }
        let attention = fields.attention(embedding, heads)?;
        let (mut layers, inner) = fields.layers(rule, all, drafting, &attention)?;
        let weights = Weights::of(header, architecture, layers.len())?;
        for (layer, bytes) in layers.iter_mut().zip(&weights.layers) {
            layer.weights = *bytes;
        }
        let keeps = |layer: &Layer| {
            let cache = layer.cache.is_some_and(|cache| cache.key > 0);
            cache || layer.state > Bytes::ZERO
        };
        if rule.kind() == Kind::Writer && !layers.iter().any(keeps) {
            let problem = "no layer would keep anything of what it has read";
            return Err(fields.wrong("attention.head_count", problem));
        }
        let draft = layers.split_off(
            layers
                .len()
                .saturating_sub(usize::try_from(drafting).unwrap_or(0)),
        );
        Ok(Self {
            architecture: architecture.to_owned(),
            kind: rule.kind(),
            layers,
            draft,
            embedding,
            vocabulary: fields.vocabulary(header)?,
            feed_forward: fields
                .numbers("feed_forward_length")?
                .map_or(0, |widths| widths.largest()),
            experts: fields.experts()?,
            heads,
            head_width: attention.key.max(attention.value),
            recurrent_width: inner,
            trained_context: fields.number("context_length")?.map(Tokens),
            input: weights.input,
            output: weights.output,
            tied: if weights.has_output {
                Bytes::ZERO
            } else {
                weights.embeddings
            },
        })
    }
}

// === impl Fields ===

impl Fields<'_> {
    fn number(&self, name: &str) -> Result<Option<u64>, ShapeError> {
        Ok(self.metadata.number(&self.key(name))?)
    }

    fn numbers(&self, name: &str) -> Result<Option<Numbers>, ShapeError> {
        Ok(self.metadata.numbers(&self.key(name))?)
    }

    fn needed(&self, name: &str) -> Result<u64, ShapeError> {
        match self.number(name)? {
            None => Err(self.wrong(name, "is missing")),
            Some(0) => Err(self.wrong(name, "0 can't be")),
            Some(number) => Ok(number),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn wrong(&self, name: &str, problem: &str) -> ShapeError {
        ShapeError::field(format!("metadata.{}", self.key(name)), problem)
    }

    fn attention(&self, embedding: u64, heads: u64) -> Result<Attention, ShapeError> {
        let width = embedding.checked_div(heads).unwrap_or(0);
        let key = self.number("attention.key_length")?.unwrap_or(width);
        let value = self.number("attention.value_length")?.unwrap_or(width);
        Ok(Attention {
            heads: self
                .numbers("attention.head_count_kv")?
                .unwrap_or(Numbers::Same(heads)),
            key,
            value,
            window_key: self.number("attention.key_length_swa")?.unwrap_or(key),
            window_value: self.number("attention.value_length_swa")?.unwrap_or(value),
            window_heads: self.number("attention.head_count_kv_swa")?,
        })
    }

    /// All layers, those that draft last, and the inner width of recurrence.
    fn layers(
        &self,
        rule: Rule,
        all: u64,
        drafting: u64,
        attention: &Attention,
    ) -> Result<(Vec<Layer>, u64), ShapeError> {
        let main = all.saturating_sub(drafting);
        let full = |index: u64| self.full(attention, index);
        let (state, inner) = match rule {
            Rule::ByHeads | Rule::Interval | Rule::Both | Rule::Recurrent => self.state()?,
            Rule::Full | Rule::Windows(_) | Rule::Latent | Rule::Reader => (Bytes::ZERO, 0),
        };
        let widths = self.numbers("feed_forward_length")?;
        let window = match rule {
            Rule::Windows(pattern) => self.window(pattern)?,
            _ => None,
        };
        let interval = self.number("full_attention_interval")?.unwrap_or(4);
        let recurrent = self.numbers("attention.recurrent_layers")?;
        let mut layers = Vec::new();
        for index in 0..all {
            let drafts = index >= main;
            let place = usize::try_from(index).unwrap_or(usize::MAX);
            let mut layer = Layer::default();
            match rule {
                Rule::Full => layer.cache = full(index)?,
                Rule::Windows(pattern) => {
                    layer.cache = match &window {
                        Some((window, listed))
                            if self.has_window(pattern, listed.as_ref(), index)? =>
                        {
                            self.windowed(attention, *window, index)?
                        }
                        _ => full(index)?,
                    };
                }
                Rule::Latent => layer.cache = self.latent(attention, index)?,
                Rule::ByHeads => {
                    layer.cache = full(index)?;
                    // `nemotron-h.cpp`: a layer with neither heads nor a feed-forward width is recurrent;
                    // with one width for all, every layer without heads is.
                    let width = match &widths {
                        Some(Numbers::Each(each)) => each.get(place).copied().unwrap_or(0),
                        _ => 0,
                    };
                    if layer.cache.is_none() && (width == 0 || !self.widths_tell_layers()) {
                        layer.state = state;
                    }
                }
                Rule::Interval => {
                    let recurs = match &recurrent {
                        Some(listed) => listed.of(place).unwrap_or(0) != 0,
                        None => index.saturating_add(1).checked_rem(interval) != Some(0),
                    };
                    if recurs && !drafts {
                        layer.state = state;
                    } else {
                        layer.cache = full(index)?;
                    }
                }
                Rule::Both => {
                    layer.cache = full(index)?;
                    layer.state = state;
                }
                Rule::Recurrent => layer.state = state,
                Rule::Reader => {}
            }
            layers.push(layer);
        }
        self.shared(rule, main, &mut layers)?;
        Ok((layers, inner))
    }

    /// Takes the cache from layers that use that of earlier ones (`n_layer_kv_from_start`).
    fn shared(&self, rule: Rule, main: u64, layers: &mut [Layer]) -> Result<(), ShapeError> {
        let own = match (self.number("attention.shared_kv_layers")?, rule) {
            (Some(shared), _) => main.saturating_sub(shared),
            (None, Rule::Windows(pattern)) => pattern.own.unwrap_or(main),
            (None, _) => main,
        };
        let main = usize::try_from(main).unwrap_or(usize::MAX);
        let own = usize::try_from(own).unwrap_or(usize::MAX);
        for layer in layers.iter_mut().take(main).skip(own) {
            layer.cache = None;
        }
        Ok(())
    }

    fn full(&self, attention: &Attention, layer: u64) -> Result<Option<Cache>, ShapeError> {
        let heads = self.heads(attention, layer)?;
        Ok((heads > 0).then_some(Cache {
            reach: Reach::All,
            heads,
            key: attention.key,
            value: attention.value,
        }))
    }

    fn windowed(
        &self,
        attention: &Attention,
        window: u64,
        layer: u64,
    ) -> Result<Option<Cache>, ShapeError> {
        let heads = match attention.window_heads {
            Some(heads) => heads,
            None => self.heads(attention, layer)?,
        };
        Ok((heads > 0).then_some(Cache {
            reach: Reach::Window(Tokens(window)),
            heads,
            key: attention.window_key,
            value: attention.window_value,
        }))
    }

    /// `deepseek2.cpp`: files made for latent attention name the width of its heads apart, and keep one row of
    /// the compressed and the rotary part; older files are attended in full.
    fn latent(&self, attention: &Attention, layer: u64) -> Result<Option<Cache>, ShapeError> {
        if self.number("attention.key_length_mla")?.is_none() {
            return self.full(attention, layer);
        }
        let compressed = self.needed("attention.kv_lora_rank")?;
        let rotary = self.needed("rope.dimension_count")?;
        Ok(Some(Cache {
            reach: Reach::All,
            heads: 1,
            key: compressed.saturating_add(rotary),
            value: 0,
        }))
    }

    fn heads(&self, attention: &Attention, layer: u64) -> Result<u64, ShapeError> {
        let place = usize::try_from(layer).unwrap_or(usize::MAX);
        let heads = attention.heads.of(place).ok_or_else(|| {
            let problem = format!("has no value for layer {layer}");
            self.wrong("attention.head_count_kv", &problem)
        })?;
        if heads > MOST_HEADS {
            let problem = format!("{heads}; at most {MOST_HEADS} are allowed");
            return Err(self.wrong("attention.head_count_kv", &problem));
        }
        Ok(heads)
    }

    /// The window, and the file's own word on which layers have it; absent when there is none.
    fn window(&self, pattern: Pattern) -> Result<Option<(u64, Option<Numbers>)>, ShapeError> {
        let window = self.number("attention.sliding_window")?.or(pattern.window);
        let listed = self.numbers("attention.sliding_window_pattern")?;
        Ok(window
            .filter(|window| *window > 0)
            .map(|window| (window, listed)))
    }

    fn has_window(
        &self,
        pattern: Pattern,
        listed: Option<&Numbers>,
        layer: u64,
    ) -> Result<bool, ShapeError> {
        match (listed, pattern.period) {
            (Some(Numbers::Each(each)), _) => {
                let place = usize::try_from(layer).unwrap_or(usize::MAX);
                // Drafting layers stand beyond the list.
                Ok(each.get(place).is_some_and(|window| *window != 0))
            }
            (Some(Numbers::Same(period)), _) => Ok(pattern.has_window(layer, *period)),
            (None, Some(period)) => Ok(pattern.has_window(layer, period)),
            (None, None) => Err(self.wrong("attention.sliding_window_pattern", "is missing")),
        }
    }

    /// The state of a recurrent layer and its inner width.
    fn state(&self) -> Result<(Bytes, u64), ShapeError> {
        if let Some(head) = self.number("wkv.head_size")? {
            // RWKV: the last tokens, and a matrix for each head.
            let embedding = self.needed("embedding_length")?;
            let shifts = self.number("token_shift_count")?.unwrap_or(2);
            let elements = embedding.saturating_mul(shifts.saturating_add(head));
            return Ok((Bytes(elements.saturating_mul(STATE_ELEMENT)), embedding));
        }
        if let Some(length) = self.number("shortconv.l_cache")? {
            // LFM2: the last tokens.
            let embedding = self.needed("embedding_length")?;
            let elements = embedding.saturating_mul(length.saturating_sub(1));
            return Ok((Bytes(elements.saturating_mul(STATE_ELEMENT)), embedding));
        }
        let inner = self.needed("ssm.inner_size")?;
        let state = recurrent_state(
            self.needed("ssm.conv_kernel")?,
            inner,
            self.number("ssm.group_count")?.unwrap_or(0),
            self.needed("ssm.state_size")?,
        );
        Ok((state, inner))
    }

    /// Whether a layer without heads may be a feed-forward layer alone.
    fn widths_tell_layers(&self) -> bool {
        self.architecture.starts_with("nemotron_h")
    }

    fn vocabulary(&self, header: &Header) -> Result<u64, ShapeError> {
        if let Some(size) = self.number("vocab_size")? {
            return Ok(size);
        }
        if let Some(Value::Array(tokens)) = self.metadata.value("tokenizer.ggml.tokens") {
            return Ok(tokens.count);
        }
        let embeddings = header
            .tensors
            .iter()
            .find(|tensor| tensor.name == "token_embd.weight");
        embeddings
            .and_then(|tensor| tensor.dimensions.get(1).copied())
            .ok_or_else(|| self.wrong("vocab_size", "is missing, and there is no vocabulary"))
    }

    fn experts(&self) -> Result<Option<Experts>, ShapeError> {
        let Some(count) = self.number("expert_count")?.filter(|count| *count > 0) else {
            return Ok(None);
        };
        let shared = self.number("expert_shared_count")?.unwrap_or(0);
        let used = self
            .numbers("expert_used_count")?
            .map_or(1, |used| used.largest());
        let width = match self.numbers("expert_feed_forward_length")? {
            Some(width) => width.largest(),
            // Mixtral: experts are as wide as the feed-forward part would be.
            None => self
                .numbers("feed_forward_length")?
                .map_or(0, |width| width.largest()),
        };
        Ok(Some(Experts {
            count,
            used: used.saturating_add(shared),
            feed_forward: width,
        }))
    }
}

/// No model has more than some hundred.
const MOST_HEADS: u64 = 65_536;
