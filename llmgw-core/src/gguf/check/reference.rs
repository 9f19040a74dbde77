//! The check model in plain Rust: slow, simple, and the measure for engines.

use super::{EPSILON, HEAD, KEYS, ROPE_BASE, WIDTH};

/// A part of the model that can be left out, to see that it is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The vectors of the tokens.
    Embedding,
    /// The queries of attention.
    Query,
    /// The keys of attention.
    Key,
    /// The values of attention.
    Value,
    /// The way from attention back to the stream.
    AttentionOutput,
    /// The gate of the feed-forward.
    Gate,
    /// The way up of the feed-forward.
    Up,
    /// The way down of the feed-forward.
    Down,
    /// The way to the vocabulary.
    Output,
    /// The turning of queries and keys by their positions.
    Positions,
}

/// How inputs of products are rounded, as engines do to use whole numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rounding {
    /// Not at all.
    #[default]
    None,
    /// To 8 bits with a scale for 32 numbers, as ggml does for most types.
    Eight,
}

/// The model: one block of llama.
///
/// RMS norm, grouped-query attention with rotary positions of neighbouring pairs, SwiGLU. All in 32-bit floats.
#[derive(Clone, Debug)]
pub struct Reference {
    matrices: Vec<(Part, Vec<f32>)>,
    attention_norm: Vec<f32>,
    ffn_norm: Vec<f32>,
    output_norm: Vec<f32>,
    rounding: Rounding,
}

/// Keys and values of the tokens so far.
#[derive(Debug, Default)]
struct Cache {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

// === impl Part ===

impl Part {
    /// All parts.
    pub const ALL: [Self; 10] = [
        Self::Embedding,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::AttentionOutput,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::Output,
        Self::Positions,
    ];
}

// === impl Reference ===

impl Reference {
    pub(super) fn new(
        matrices: Vec<(Part, Vec<f32>)>,
        attention_norm: Vec<f32>,
        ffn_norm: Vec<f32>,
        output_norm: Vec<f32>,
    ) -> Self {
        Self {
            matrices,
            attention_norm,
            ffn_norm,
            output_norm,
            rounding: Rounding::None,
        }
    }

    /// The same model with rounded inputs.
    #[must_use]
    pub fn with_rounding(self, rounding: Rounding) -> Self {
        Self { rounding, ..self }
    }

    /// The two likeliest tokens, one after the other; `without` leaves a part out.
    #[must_use]
    pub fn follow(&self, prompt: &[u32], without: Option<Part>) -> [u32; 2] {
        self.logits(prompt, without)
            .map(|logits| likeliest(&logits))
    }

    /// What each token of the vocabulary gets, after the prompt and after the likeliest token behind it.
    #[must_use]
    pub fn logits(&self, prompt: &[u32], without: Option<Part>) -> [Vec<f32>; 2] {
        let mut cache = Cache::default();
        let mut stream = Vec::new();
        for token in prompt {
            stream = self.enter(*token, &mut cache, without);
        }
        let first = self.leave(stream, &cache, without);
        let stream = self.enter(likeliest(&first), &mut cache, without);
        let second = self.leave(stream, &cache, without);
        [first, second]
    }

    /// Puts a token into the cache, and gives its vector.
    fn enter(&self, token: u32, cache: &mut Cache, without: Option<Part>) -> Vec<f32> {
        let row = usize::try_from(token).unwrap_or(usize::MAX);
        let stream: Vec<f32> = self
            .matrix(Part::Embedding, without)
            .chunks(WIDTH)
            .nth(row)
            .map_or_else(|| vec![0.0; WIDTH], <[f32]>::to_vec);
        let normed = normed(&stream, &self.attention_norm);
        let mut key = self.product(Part::Key, &normed, KEYS, without);
        turn(&mut key, cache.keys.len(), without);
        cache.keys.push(key);
        cache
            .values
            .push(self.product(Part::Value, &normed, KEYS, without));
        stream
    }

    /// The rest of the way of the last token: what came before matters through the cache alone.
    fn leave(&self, mut stream: Vec<f32>, cache: &Cache, without: Option<Part>) -> Vec<f32> {
        let inner = normed(&stream, &self.attention_norm);
        let mut query = self.product(Part::Query, &inner, WIDTH, without);
        turn(&mut query, cache.keys.len().saturating_sub(1), without);
        let seen: Vec<f32> = query
            .chunks(HEAD)
            .enumerate()
            .flat_map(|(head, query)| attend(query, head * KEYS / WIDTH, cache))
            .collect();
        add(
            &mut stream,
            &self.product(Part::AttentionOutput, &seen, WIDTH, without),
        );
        let inner = normed(&stream, &self.ffn_norm);
        let gate = self.product(Part::Gate, &inner, WIDTH, without);
        let up = self.product(Part::Up, &inner, WIDTH, without);
        let gated: Vec<f32> = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        add(
            &mut stream,
            &self.product(Part::Down, &gated, WIDTH, without),
        );
        let last = normed(&stream, &self.output_norm);
        self.product(Part::Output, &last, super::VOCABULARY as usize, without)
    }

    /// A matrix; none for a part that is left out.
    fn matrix(&self, part: Part, without: Option<Part>) -> &[f32] {
        if without == Some(part) {
            return &[];
        }
        self.matrices
            .iter()
            .find(|(of, _)| *of == part)
            .map_or(&[], |(_, values)| values)
    }

    /// The matrix times a vector; zeros for a part that is left out.
    fn product(&self, part: Part, input: &[f32], rows: usize, without: Option<Part>) -> Vec<f32> {
        let input = match self.rounding {
            Rounding::None => input.to_vec(),
            Rounding::Eight => rounded(input),
        };
        let mut output: Vec<f32> = self
            .matrix(part, without)
            .chunks(WIDTH)
            .map(|row| dot(row, &input))
            .collect();
        output.resize(rows, 0.0);
        output
    }
}

/// The place of the largest; the first of several.
fn likeliest(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .zip(0_u32..)
        .fold((f32::NEG_INFINITY, 0), |best, (logit, token)| {
            if *logit > best.0 {
                (*logit, token)
            } else {
                best
            }
        });
    best.1
}

fn attend(query: &[f32], head: usize, cache: &Cache) -> Vec<f32> {
    let of_head = |all: &[f32]| -> Vec<f32> {
        all.chunks(HEAD)
            .nth(head)
            .map_or_else(Vec::new, <[f32]>::to_vec)
    };
    let scale = 1.0 / (HEAD as f32).sqrt();
    let scores: Vec<f32> = cache
        .keys
        .iter()
        .map(|key| dot(query, &of_head(key)) * scale)
        .collect();
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f32 = weights.iter().sum();
    let mut seen = vec![0.0; HEAD];
    for (value, weight) in cache.values.iter().zip(&weights) {
        for (seen, value) in seen.iter_mut().zip(of_head(value)) {
            *seen += value * weight / sum;
        }
    }
    seen
}

/// Turns each pair of neighbours by an angle that falls with its place in the head.
fn turn(vector: &mut [f32], position: usize, without: Option<Part>) {
    if without == Some(Part::Positions) {
        return;
    }
    for head in vector.chunks_mut(HEAD) {
        for (place, pair) in head.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let exponent = -2.0 * place as f32 / HEAD as f32;
            let (sin, cos) = (position as f32 * ROPE_BASE.powf(exponent)).sin_cos();
            *pair = [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos];
        }
    }
}

fn normed(vector: &[f32], weights: &[f32]) -> Vec<f32> {
    let mean = dot(vector, vector) / WIDTH as f32;
    let factor = 1.0 / (mean + EPSILON).sqrt();
    vector
        .iter()
        .zip(weights)
        .map(|(value, weight)| value * factor * weight)
        .collect()
}

fn rounded(vector: &[f32]) -> Vec<f32> {
    vector
        .chunks(32)
        .flat_map(|block| {
            let largest = block
                .iter()
                .fold(0.0_f32, |most, value| most.max(value.abs()));
            let scale = if largest == 0.0 { 1.0 } else { largest / 127.0 };
            block
                .iter()
                .map(move |value| (value / scale).round() * scale)
        })
        .collect()
}

/// The sum of the products; all vectors here are a multiple of eight long. Eight at a time, because tests compute
/// this hundreds of millions of times without an optimiser.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sum = [0.0_f32; 8];
    for (one, other) in one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0) {
        sum[0] += one[0] * other[0];
        sum[1] += one[1] * other[1];
        sum[2] += one[2] * other[2];
        sum[3] += one[3] * other[3];
        sum[4] += one[4] * other[4];
        sum[5] += one[5] * other[5];
        sum[6] += one[6] * other[6];
        sum[7] += one[7] * other[7];
    }
    sum.iter().sum()
}

fn add(stream: &mut [f32], more: &[f32]) {
    for (value, more) in stream.iter_mut().zip(more) {
        *value += more;
    }
}
