//! How a model should run.

use std::{fmt, str::FromStr};

use llmgw_core::{
    gguf::TensorType,
    units::{Bytes, Tokens},
};
use serde::{Serialize, Serializer};

/// How a model should run, and on what.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The program that runs it.
    pub engine: Engine,
    /// Context for each request.
    pub context: Tokens,
    /// Requests at the same time.
    pub parallel: u32,
    /// How keys are kept.
    pub cache_keys: CacheType,
    /// How values are kept.
    pub cache_values: CacheType,
    /// Tokens computed at once (llama.cpp: `--ubatch-size`; vLLM: `max_num_batched_tokens`; SGLang:
    /// `chunked_prefill_size`); absent for the engine's default.
    pub batch: Option<Tokens>,
    /// Whether attention is computed without its whole matrix.
    pub flash_attention: FlashAttention,
    /// Whether requests share one cache (llama.cpp).
    pub slots: Slots,
    /// Whether layers with a window keep no more than that (llama.cpp).
    pub windows: Windows,
    /// Tokens that the model's own draft layers guess ahead; 0 for no drafting.
    pub draft: u32,
    /// Which layers are computed on GPUs (llama.cpp).
    pub offload: Offload,
    /// Memory of each GPU, absent where not known; no GPU for the host alone.
    pub gpus: Vec<Option<Bytes>>,
    /// Main memory that may be used; absent when not known.
    pub host: Option<Bytes>,
    /// Thousandths of a GPU that the engine may use (vLLM: `gpu_memory_utilization`; SGLang:
    /// `mem_fraction_static`); absent for the engine's default.
    pub utilisation: Option<u16>,
}

/// The program that runs a model.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// llama.cpp's server.
    #[default]
    Llamacpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// How an element of the cache is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CacheType {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point, of either kind.
    #[default]
    F16,
    /// 8-bit floating point (vLLM, SGLang).
    F8,
    /// 8 bits with a scale for 32 (llama.cpp), and so on below.
    Q8_0,
    /// 5 bits with scale and offset.
    Q5_1,
    /// 5 bits with a scale.
    Q5_0,
    /// 4 bits with scale and offset.
    Q4_1,
    /// 4 bits with a scale.
    Q4_0,
    /// 4 bits with a scale, unevenly spaced.
    Iq4Nl,
}

/// Whether attention is computed without its whole matrix.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FlashAttention {
    /// Piece by piece: the default of all engines where the device can.
    #[default]
    On,
    /// The whole matrix at once.
    Off,
}

/// Whether requests share one cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Slots {
    /// Each has its own: llama.cpp's default when the number of slots is given.
    #[default]
    Apart,
    /// One for all (`--kv-unified`).
    Shared,
}

/// Whether layers with a window keep no more than that.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Windows {
    /// No more than the window and a batch.
    #[default]
    Kept,
    /// The whole context (`--swa-full`).
    Full,
}

/// Which layers are computed on GPUs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Offload {
    /// All.
    #[default]
    All,
    /// The last so many, the output counted as one (`--n-gpu-layers`).
    Layers(usize),
}

/// Says what in a request can't be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RequestError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

// === impl Request ===

impl Request {
    /// One request of `context` tokens with llama.cpp on the host.
    #[must_use]
    pub fn new(context: Tokens) -> Self {
        Self {
            engine: Engine::default(),
            context,
            parallel: 1,
            cache_keys: CacheType::default(),
            cache_values: CacheType::default(),
            batch: None,
            flash_attention: FlashAttention::default(),
            slots: Slots::default(),
            windows: Windows::default(),
            draft: 0,
            offload: Offload::default(),
            gpus: Vec::new(),
            host: None,
            utilisation: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), RequestError> {
        let refuse = |field, problem: String| Err(RequestError { field, problem });
        if self.context.0 == 0 || self.context.0 > MOST_CONTEXT {
            let problem = format!("{} tokens; 1 to {MOST_CONTEXT} can be", self.context);
            return refuse("context", problem);
        }
        if self.parallel == 0 || self.parallel > MOST_SLOTS {
            let problem = format!("{} requests; 1 to {MOST_SLOTS} can be", self.parallel);
            return refuse("parallel", problem);
        }
        if let Some(batch) = self.batch
            && (batch.0 == 0 || batch.0 > MOST_BATCH)
        {
            let problem = format!("{batch} tokens; 1 to {MOST_BATCH} can be");
            return refuse("batch", problem);
        }
        if self.gpus.len() > MOST_GPUS {
            let problem = format!("{} of them; at most {MOST_GPUS} can be", self.gpus.len());
            return refuse("gpus", problem);
        }
        if self.draft > MOST_DRAFT {
            let problem = format!("{} tokens; at most {MOST_DRAFT} can be", self.draft);
            return refuse("draft", problem);
        }
        if let Some(utilisation) = self.utilisation
            && (utilisation == 0 || utilisation > 1_000)
        {
            let problem = format!("{utilisation} thousandths; 1 to 1000 can be");
            return refuse("utilisation", problem);
        }
        let quantised =
            |cache: CacheType| !matches!(cache, CacheType::F32 | CacheType::F16 | CacheType::F8);
        match self.engine {
            Engine::Llamacpp => {
                if self.cache_keys == CacheType::F8 || self.cache_values == CacheType::F8 {
                    return refuse(
                        "cache",
                        "llama.cpp has no 8-bit floats; q8_0 is close".to_owned(),
                    );
                }
                // llama.cpp refuses a quantised V cache otherwise.
                if quantised(self.cache_values) && self.flash_attention == FlashAttention::Off {
                    let problem = "quantised values need flash attention";
                    return refuse("cache_values", problem.to_owned());
                }
            }
            Engine::Vllm | Engine::Sglang => {
                if quantised(self.cache_keys) || quantised(self.cache_values) {
                    let problem = "this engine keeps f16 or f8, not llama.cpp's types";
                    return refuse("cache", problem.to_owned());
                }
            }
        }
        Ok(())
    }
}

// === impl CacheType ===

impl CacheType {
    /// Bytes of so many elements that lie together.
    #[must_use]
    pub fn bytes(self, elements: u64) -> Bytes {
        let block = |kind: TensorType| {
            let block = kind.block();
            let (count, bytes) = block.map_or((1, 4), |block| (block.elements, block.bytes));
            Bytes(elements.div_ceil(count).saturating_mul(bytes))
        };
        match self {
            Self::F32 => block(TensorType::F32),
            Self::F16 => block(TensorType::F16),
            Self::F8 => Bytes(elements),
            Self::Q8_0 => block(TensorType::Q8_0),
            Self::Q5_1 => block(TensorType(7)),
            Self::Q5_0 => block(TensorType(6)),
            Self::Q4_1 => block(TensorType(3)),
            Self::Q4_0 => block(TensorType::Q4_0),
            Self::Iq4Nl => block(TensorType(20)),
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first of its names; every type has one.
        let name = NAMES.iter().find(|(_, cache)| cache == self);
        f.write_str(name.map_or("f16", |(name, _)| name))
    }
}

impl Serialize for CacheType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for CacheType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        NAMES
            .iter()
            .find(|(name, _)| *name == lower)
            .map(|(_, cache)| *cache)
            .ok_or_else(|| {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                format!(
                    "{text:?} is no type of cache; there are {}",
                    names.join(", ")
                )
            })
    }
}

/// Names as the engines' own flags have them.
const NAMES: &[(&str, CacheType)] = &[
    ("f16", CacheType::F16),
    ("bf16", CacheType::F16),
    ("f32", CacheType::F32),
    ("fp8", CacheType::F8),
    ("q8_0", CacheType::Q8_0),
    ("q5_1", CacheType::Q5_1),
    ("q5_0", CacheType::Q5_0),
    ("q4_1", CacheType::Q4_1),
    ("q4_0", CacheType::Q4_0),
    ("iq4_nl", CacheType::Iq4Nl),
];

/// A hundred times what any model was trained for.
pub(super) const MOST_CONTEXT: u64 = 1 << 30;
/// Far above what one engine serves.
pub(super) const MOST_SLOTS: u32 = 4_096;
const MOST_BATCH: u64 = 1 << 20;
/// llama.cpp takes 16 (`GGML_SCHED_MAX_BACKENDS`), vLLM as many as a node has.
const MOST_GPUS: usize = 64;
const MOST_DRAFT: u32 = 64;
