//! What matters of a model for its memory, whatever file it comes in.

mod config;
mod gguf;
mod rules;

use llmgw_core::{
    gguf::GgufError,
    hf_config::ConfigError,
    units::{Bytes, Tokens},
};
use serde::{Deserialize, Serialize};

/// What matters of a model for its memory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Shape {
    /// What its file calls its architecture.
    pub architecture: String,
    /// Whether it writes text or only reads it.
    pub kind: Kind,
    /// The layers in their order.
    pub layers: Vec<Layer>,
    /// Layers that only draft tokens ahead (MTP), after the others.
    pub draft: Vec<Layer>,
    /// The width of what layers hand on.
    pub embedding: u64,
    /// Tokens that it knows.
    pub vocabulary: u64,
    /// The width of the widest feed-forward part that every token takes.
    pub feed_forward: u64,
    /// The part that only some tokens take.
    pub experts: Option<Experts>,
    /// Query heads of the layer that has most.
    pub heads: u64,
    /// The width of a query head.
    pub head_width: u64,
    /// The inner width of recurrent layers; 0 when there are none.
    pub recurrent_width: u64,
    /// The context that it was trained for; absent when its file does not say.
    pub trained_context: Option<Tokens>,
    /// Weights that turn tokens into what layers take.
    pub input: Bytes,
    /// Weights that turn what layers give into tokens.
    pub output: Bytes,
    /// The part of the input's weights that serves as output too, because the file has none of its own.
    pub tied: Bytes,
}

/// Whether a model writes text or only reads it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It writes text, and keeps what it has read.
    Writer,
    /// It reads a text as a whole (embeddings, rerankers): nothing is kept.
    Reader,
}

/// One layer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Layer {
    /// What attention keeps for each token; absent when the layer has none, or uses that of another.
    pub cache: Option<Cache>,
    /// Recurrent state of one sequence, however long it is.
    pub state: Bytes,
    /// Its weights.
    pub weights: Bytes,
}

/// What attention keeps for each token.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Cache {
    /// How far back it looks.
    pub reach: Reach,
    /// Heads of keys and values.
    pub heads: u64,
    /// Elements of a key.
    pub key: u64,
    /// Elements of a value; 0 when values are made from keys (MLA).
    pub value: u64,
}

/// How far back attention looks.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// To the beginning.
    All,
    /// So many tokens.
    Window(Tokens),
}

/// Feed-forward parts of which each token takes some.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Experts {
    /// How many there are in a layer.
    pub count: u64,
    /// How many a token takes.
    pub used: u64,
    /// The width of one.
    pub feed_forward: u64,
}

/// Why the memory of a model can't be told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Nothing is known that would bound it.
    #[error("cannot bound {architecture}: {why}")]
    CannotBound {
        /// What the file calls its architecture.
        architecture: String,
        /// What is not known.
        why: String,
    },
    /// A field of a GGUF file can't be right.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A field of a `config.json` can't be right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A field can't be right together with others.
    #[error("{field}: {problem}")]
    Field {
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

// === impl Shape ===

impl Shape {
    /// All weights.
    #[must_use]
    pub fn weights(&self) -> Bytes {
        let layers = self.layers.iter().chain(&self.draft);
        self.input + self.output + layers.map(|layer| layer.weights).sum()
    }

    /// Recurrent state of one sequence.
    pub(super) fn state(&self) -> Bytes {
        self.layers.iter().map(|layer| layer.state).sum()
    }

    /// The width of the feed-forward parts that one token takes together.
    pub(super) fn active_feed_forward(&self) -> u64 {
        let experts = self.experts.map_or(0, |experts| {
            experts.used.saturating_mul(experts.feed_forward)
        });
        self.feed_forward.max(experts)
    }
}

// === impl ShapeError ===

impl ShapeError {
    /// What would help.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CannotBound { .. } => Some(
                "name an architecture that is built alike (--like llama), or measure it once and declare it: \
                 profiles: [{memory: 12GiB}]"
                    .to_owned(),
            ),
            Self::Gguf(error) => error.hint.clone(),
            Self::Config(_) | Self::Field { .. } => None,
        }
    }

    fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            problem: problem.into(),
        }
    }

    fn cannot(architecture: &str, why: impl Into<String>) -> Self {
        Self::CannotBound {
            architecture: architecture.to_owned(),
            why: why.into(),
        }
    }
}

/// Bytes of an element of recurrent state: 32-bit floating point in llama.cpp, and the most that others use.
const STATE_ELEMENT: u64 = 4;

/// The state of a Mamba or gated-delta layer for one sequence: `4 x [(d_conv - 1)(d_inner + 2 x n_group x d_state)
/// + d_state x d_inner]`, from `llama_hparams::n_embd_r` and `n_embd_s` in llama.cpp.
fn recurrent_state(convolution: u64, inner: u64, groups: u64, state: u64) -> Bytes {
    let width = inner.saturating_add(groups.saturating_mul(state).saturating_mul(2));
    let elements = convolution
        .saturating_sub(1)
        .saturating_mul(width)
        .saturating_add(state.saturating_mul(inner));
    Bytes(elements.saturating_mul(STATE_ELEMENT))
}

/// No model has more; llama.cpp takes 512.
const MOST_LAYERS: u64 = 1_024;
