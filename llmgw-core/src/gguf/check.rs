//! A tiny model whose answers are known: an engine that gives others, or none, does not compute.
//!
//! [`CheckModel`] is a llama of one block, 256 wide, with a vocabulary of 320 tokens and random weights from fixed
//! seeds. It is as wide as it is because the kernels that real weights use need that: a build is known that dies
//! at loading `Q4_0` weights of 256 columns and answers happily from narrower ones.
//!
//! To each model belong a prompt and the two tokens that follow it. They were found by computing the model in
//! plain Rust ([`Reference`]) for prompts from one seed after the other, until the right tokens led by a wide
//! margin and every part of the model was needed for them: without attention, positions, feed-forward or any one
//! of the nine matrices, at least one of the two tokens is another. Tests hold the recorded answers to that.
//!
//! ```
//! use llmgw_core::gguf::{TensorType, check::CheckModel};
//!
//! let model = CheckModel::mixed();
//! let mut file = Vec::new();
//! model.write(&mut file)?;
//! assert_eq!(model.reference().follow(model.prompt(), None), model.answer());
//! assert!(CheckModel::of(TensorType::Q5_K).is_some());
//! # Ok::<(), llmgw_core::gguf::write::WriteError>(())
//! ```

mod answers;
mod metadata;
mod reference;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io::Write};

pub use self::reference::{Part, Reference, Rounding};
use self::{
    answers::{ANSWERS, Answer, MIXED},
    metadata::{metadata, text_of},
};
use super::{
    quant,
    random::Random,
    tensor::{Tensor, TensorType},
    write::{Draft, WriteError},
};

/// A model to check engines with.
#[derive(Clone, Debug)]
pub struct CheckModel {
    matrices: [Matrix; MATRICES],
    prompt: Vec<u32>,
    answer: [u32; 2],
}

/// One of the nine matrices, as it is stored.
#[derive(Clone, Debug)]
struct Matrix {
    name: &'static str,
    part: Part,
    kind: TensorType,
    rows: usize,
    stored: Vec<u8>,
}

/// How the matrices are made: name, part, rows, and the size of what they give for an input of size 1.
const PLAN: [(&str, Part, usize, f32); MATRICES] = [
    (
        "token_embd.weight",
        Part::Embedding,
        VOCABULARY as usize,
        8.0,
    ),
    // Large, so that attention chooses among positions and does not average them.
    ("blk.0.attn_q.weight", Part::Query, WIDTH, 2.0),
    ("blk.0.attn_k.weight", Part::Key, KEYS, 2.0),
    ("blk.0.attn_v.weight", Part::Value, KEYS, 1.0),
    (
        "blk.0.attn_output.weight",
        Part::AttentionOutput,
        WIDTH,
        1.0,
    ),
    ("blk.0.ffn_gate.weight", Part::Gate, WIDTH, 2.0),
    ("blk.0.ffn_up.weight", Part::Up, WIDTH, 1.0),
    ("blk.0.ffn_down.weight", Part::Down, WIDTH, 1.0),
    ("output.weight", Part::Output, VOCABULARY as usize, 1.0),
];

/// The types of [`CheckModel::mixed`]: those that most published weights are made of, each used at least once
/// in a product with activations.
const MIX: [TensorType; MATRICES] = [
    TensorType::F16,
    TensorType::Q4_0,
    TensorType::Q8_0,
    TensorType::Q6_K,
    TensorType::Q4_K,
    TensorType::Q4_0,
    TensorType::Q4_K,
    TensorType::F16,
    TensorType::Q6_K,
];

// === impl CheckModel ===

impl CheckModel {
    /// The model of several types: `F16`, `Q4_0`, `Q8_0`, `Q4_K` and `Q6_K`.
    #[must_use]
    pub fn mixed() -> Self {
        Self::new(MIX, &MIXED)
    }

    /// The model whose matrices are all of one type; absent when the type can't be proven here.
    #[must_use]
    pub fn of(kind: TensorType) -> Option<Self> {
        let (_, answer) = ANSWERS.iter().find(|(of, _)| *of == kind)?;
        quant::is_known(kind).then(|| Self::new([kind; MATRICES], answer))
    }

    /// The model that proves a type, and others with it where it can; absent when the type can't be proven here.
    #[must_use]
    pub fn with(kind: TensorType) -> Option<Self> {
        if MIX.contains(&kind) {
            return Some(Self::mixed());
        }
        Self::of(kind)
    }

    /// The types of [`CheckModel::mixed`].
    #[must_use]
    pub fn mixed_types() -> BTreeSet<TensorType> {
        BTreeSet::from(MIX)
    }

    /// Whether there is a model for a type. What is not so can't be proven here, which says nothing against it.
    #[must_use]
    pub fn is_provable(kind: TensorType) -> bool {
        ANSWERS.iter().any(|(of, _)| *of == kind)
    }

    fn new(kinds: [TensorType; MATRICES], answer: &Answer) -> Self {
        let mut index = 0;
        let matrices = PLAN.map(|(name, part, rows, gain)| {
            let kind = kinds.get(index).copied().unwrap_or(TensorType::F32);
            index += 1;
            Matrix::random(name, part, kind, rows, gain)
        });
        Self {
            matrices,
            prompt: prompt(answer.seed),
            answer: answer.tokens,
        }
    }

    /// The types of its matrices.
    #[must_use]
    pub fn types(&self) -> BTreeSet<TensorType> {
        self.matrices.iter().map(|matrix| matrix.kind).collect()
    }

    /// What is asked, as numbers of tokens.
    #[must_use]
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The two tokens that follow.
    #[must_use]
    pub fn answer(&self) -> [u32; 2] {
        self.answer
    }

    /// The text of tokens, as an engine writes it.
    #[must_use]
    pub fn text(tokens: &[u32]) -> String {
        tokens
            .iter()
            .map(|token| text_of(*token).replace('\u{2581}', " "))
            .collect()
    }

    /// The model in plain Rust.
    #[must_use]
    pub fn reference(&self) -> Reference {
        let matrices = self.matrices.iter().map(|matrix| {
            let values = quant::dequantise(matrix.kind, &matrix.stored).unwrap_or_default();
            (matrix.part, values)
        });
        Reference::new(
            matrices.collect(),
            norm(NORM_ATTENTION),
            norm(NORM_FFN),
            norm(NORM_OUTPUT),
        )
    }

    /// Writes the file: the same bytes each time, on every machine.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when `out` fails.
    pub fn write(&self, out: &mut impl Write) -> Result<(), WriteError> {
        let mut draft = metadata(Draft::default());
        let columns = WIDTH as u64;
        for name in [NORM_ATTENTION, NORM_FFN, NORM_OUTPUT] {
            draft = draft.tensor(name, &[columns], TensorType::F32);
        }
        for matrix in &self.matrices {
            draft = draft.tensor(matrix.name, &[columns, matrix.rows as u64], matrix.kind);
        }
        draft.write(out, |tensor: &Tensor| {
            let matrix = self.matrices.iter().find(|one| one.name == tensor.name);
            match matrix {
                Some(matrix) => matrix.stored.clone(),
                None => quant::quantise(TensorType::F32, &norm(&tensor.name)).unwrap_or_default(),
            }
        })
    }
}

// === impl Matrix ===

impl Matrix {
    fn random(name: &'static str, part: Part, kind: TensorType, rows: usize, gain: f32) -> Self {
        // Uniform within ±√3 has the variance 1; a sum over a row of inputs of size 1 has it again.
        let reach = gain * 3.0_f32.sqrt() / (WIDTH as f32).sqrt();
        let mut random = Random::named(name);
        let mut values: Vec<f32> = (0..rows * WIDTH).map(|_| random.within(reach)).collect();
        if part == Part::Output {
            // Words are answered with, and no bytes or marks, whose text a server may change or hold back.
            for value in values.iter_mut().take(FIRST_WORD as usize * WIDTH) {
                *value *= QUIET;
            }
        }
        Self {
            name,
            part,
            kind,
            rows,
            stored: quant::quantise(kind, &values).unwrap_or_default(),
        }
    }
}

/// The weights of a norm: around 1, each another.
fn norm(name: &str) -> Vec<f32> {
    let mut random = Random::named(name);
    (0..WIDTH).map(|_| 1.0 + random.within(0.5)).collect()
}

/// Long enough that engines use their kernels for many tokens at once on it, and those for one on what follows.
fn prompt(seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..PROMPT)
        .map(|_| FIRST_BYTE + random.below(VOCABULARY - FIRST_BYTE))
        .collect()
}

const MATRICES: usize = 9;
const WIDTH: usize = 256;
/// Numbers of a head of attention.
const HEAD: usize = 64;
/// Numbers of all keys of a token: half as many heads as there are queries, as in grouped-query attention.
const KEYS: usize = 128;
const VOCABULARY: u32 = 320;
const FIRST_BYTE: u32 = 3;
const FIRST_WORD: u32 = FIRST_BYTE + 256;
const PROMPT: usize = 16;
const EPSILON: f32 = 1e-5;
const ROPE_BASE: f32 = 10_000.0;
/// How loud tokens are that are no words.
const QUIET: f32 = 0.125;
const NORM_ATTENTION: &str = "blk.0.attn_norm.weight";
const NORM_FFN: &str = "blk.0.ffn_norm.weight";
const NORM_OUTPUT: &str = "output_norm.weight";
