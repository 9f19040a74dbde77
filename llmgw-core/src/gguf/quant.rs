//! Weights in ggml's types: stored, and read back as an engine reads them.
//!
//! [`quantise`] is plain: each block is scaled by its own extremes. ggml's own quantisers of the `_K` types search
//! for scales with a smaller error; what they write is another choice of numbers in the same form. [`dequantise`]
//! leaves no choice, and gives ggml's values bit for bit.
//!
//! The layouts are those of `ggml-common.h` (the structs `block_q4_0` and so on), the meaning of each bit that of
//! `dequantize_row_*` in `ggml-quants.c`. Not all types are here: `IQ1` to `IQ3` need tables of thousands of
//! entries, and the ternary and NVIDIA types are rare. [`is_known`] tells.

mod codebook;
mod float;
mod plain;
mod scaled;
#[cfg(test)]
mod tests;

use super::tensor::TensorType;

/// The types that can be written and read back here, in ggml's order.
pub const TYPES: &[TensorType] = &[
    TensorType::F32,
    TensorType::F16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::BF16,
    TensorType::MXFP4,
];

/// Writes one block, and reads one.
type Codec = (fn(&[f32], &mut Vec<u8>), fn(&[u8], &mut Vec<f32>));

/// Whether a type can be written and read back here.
#[must_use]
pub fn is_known(kind: TensorType) -> bool {
    codec(kind).is_some()
}

/// Stores values in a type; absent when the type is not known here, or they don't fill whole blocks.
///
/// Values must be finite: what is not becomes some number.
#[must_use]
pub fn quantise(kind: TensorType, values: &[f32]) -> Option<Vec<u8>> {
    let (put, _) = codec(kind)?;
    let (elements, bytes) = block(kind)?;
    if !values.len().is_multiple_of(elements) {
        return None;
    }
    let mut out = Vec::with_capacity(values.len() / elements * bytes);
    for block in values.chunks_exact(elements) {
        put(block, &mut out);
    }
    Some(out)
}

/// Reads stored values; absent when the type is not known here, or they are no whole blocks.
#[must_use]
pub fn dequantise(kind: TensorType, stored: &[u8]) -> Option<Vec<f32>> {
    let (_, take) = codec(kind)?;
    let (elements, bytes) = block(kind)?;
    if !stored.len().is_multiple_of(bytes) {
        return None;
    }
    let mut out = Vec::with_capacity(stored.len() / bytes * elements);
    for block in stored.chunks_exact(bytes) {
        take(block, &mut out);
    }
    Some(out)
}

fn block(kind: TensorType) -> Option<(usize, usize)> {
    let block = kind.block()?;
    let elements = usize::try_from(block.elements).ok()?;
    Some((elements, usize::try_from(block.bytes).ok()?))
}

fn codec(kind: TensorType) -> Option<Codec> {
    Some(match kind {
        TensorType::F32 => (float::to_f32, float::from_f32),
        TensorType::F16 => (float::to_f16, float::from_f16),
        TensorType::BF16 => (float::to_bf16, float::from_bf16),
        TensorType::Q4_0 => (plain::to_q4_0, plain::from_q4_0),
        TensorType::Q4_1 => (plain::to_q4_1, plain::from_q4_1),
        TensorType::Q5_0 => (plain::to_q5_0, plain::from_q5_0),
        TensorType::Q5_1 => (plain::to_q5_1, plain::from_q5_1),
        TensorType::Q8_0 => (plain::to_q8_0, plain::from_q8_0),
        TensorType::Q2_K => (scaled::to_q2_k, scaled::from_q2_k),
        TensorType::Q3_K => (scaled::to_q3_k, scaled::from_q3_k),
        TensorType::Q4_K => (scaled::to_q4_k, scaled::from_q4_k),
        TensorType::Q5_K => (scaled::to_q5_k, scaled::from_q5_k),
        TensorType::Q6_K => (scaled::to_q6_k, scaled::from_q6_k),
        TensorType::IQ4_NL => (codebook::to_iq4_nl, codebook::from_iq4_nl),
        TensorType::IQ4_XS => (codebook::to_iq4_xs, codebook::from_iq4_xs),
        TensorType::MXFP4 => (codebook::to_mxfp4, codebook::from_mxfp4),
        _ => return None,
    })
}

/// The nearest whole number within 0 and `high`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a byte holds"
)]
fn level(value: f32, high: u8) -> u8 {
    value.round().clamp(0.0, f32::from(high)) as u8
}

/// The nearest whole number within `low` and `high`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "clamped to what a byte holds"
)]
fn signed(value: f32, low: i8, high: i8) -> i8 {
    value.round().clamp(f32::from(low), f32::from(high)) as i8
}

/// `1 / scale`, and 0 for a block of zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The value with the largest magnitude, with its sign; the first of several.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0_f32, |extreme, value| {
        if value.abs() > extreme.abs() {
            *value
        } else {
            extreme
        }
    })
}

/// The lowest and the highest value.
fn range(values: &[f32]) -> (f32, f32) {
    values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
            (low.min(*value), high.max(*value))
        })
}

/// The byte at `index`; blocks are cut to their size before they come here, so that it is there.
fn byte(stored: &[u8], index: usize) -> u8 {
    stored.get(index).copied().unwrap_or_default()
}

/// Two bytes at `index` as a half-precision number.
fn half(stored: &[u8], index: usize) -> f32 {
    float::f16_to_f32(u16::from_le_bytes([
        byte(stored, index),
        byte(stored, index + 1),
    ]))
}

/// Writes a half-precision number.
fn put_half(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&float::f32_to_f16(value).to_le_bytes());
}
