//! Blocks of 32 values with one scale, and some with an offset: `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`.
//!
//! A packed byte holds value `i` in its low half and value `i + 16` in its high half.

use super::{byte, extreme, half, inverse, put_half, range, signed};

pub(super) fn to_q4_0(values: &[f32], out: &mut Vec<u8>) {
    // The extreme takes the one level that has no opposite.
    let scale = extreme(values) / -8.0;
    put_half(out, scale);
    pack(out, &levels(values, 0.0, scale, 8.5, 15));
}

pub(super) fn from_q4_0(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 0);
    unpack(stored, 2, None, |level| (level - 8.0) * scale, out);
}

pub(super) fn to_q4_1(values: &[f32], out: &mut Vec<u8>) {
    let (low, high) = range(values);
    let scale = (high - low) / 15.0;
    put_half(out, scale);
    put_half(out, low);
    pack(out, &levels(values, low, scale, 0.5, 15));
}

pub(super) fn from_q4_1(stored: &[u8], out: &mut Vec<f32>) {
    let (scale, low) = (half(stored, 0), half(stored, 2));
    unpack(stored, 4, None, |level| level * scale + low, out);
}

pub(super) fn to_q5_0(values: &[f32], out: &mut Vec<u8>) {
    let scale = extreme(values) / -16.0;
    put_half(out, scale);
    let levels = levels(values, 0.0, scale, 16.5, 31);
    put_fifth_bits(out, &levels);
    pack(out, &levels);
}

pub(super) fn from_q5_0(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 0);
    unpack(stored, 6, Some(2), |level| (level - 16.0) * scale, out);
}

pub(super) fn to_q5_1(values: &[f32], out: &mut Vec<u8>) {
    let (low, high) = range(values);
    let scale = (high - low) / 31.0;
    put_half(out, scale);
    put_half(out, low);
    let levels = levels(values, low, scale, 0.5, 31);
    put_fifth_bits(out, &levels);
    pack(out, &levels);
}

pub(super) fn from_q5_1(stored: &[u8], out: &mut Vec<f32>) {
    let (scale, low) = (half(stored, 0), half(stored, 2));
    unpack(stored, 8, Some(4), |level| level * scale + low, out);
}

pub(super) fn to_q8_0(values: &[f32], out: &mut Vec<u8>) {
    let scale = extreme(values).abs() / 127.0;
    put_half(out, scale);
    let factor = inverse(scale);
    for value in values {
        let [level] = signed(value * factor, -127, 127).to_le_bytes();
        out.push(level);
    }
}

pub(super) fn from_q8_0(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 0);
    for level in stored.iter().skip(2) {
        out.push(f32::from(i8::from_le_bytes([*level])) * scale);
    }
}

/// The levels of values above `low`; `shift` moves what may be negative above zero, and rounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a byte holds"
)]
fn levels(values: &[f32], low: f32, scale: f32, shift: f32, high: u8) -> Vec<u8> {
    let factor = inverse(scale);
    values
        .iter()
        .map(|value| ((value - low) * factor + shift).clamp(0.0, f32::from(high)) as u8)
        .collect()
}

/// Packs the low four bits of 32 levels.
pub(super) fn pack(out: &mut Vec<u8>, levels: &[u8]) {
    let (low, high) = levels.split_at(levels.len() / 2);
    for (low, high) in low.iter().zip(high) {
        out.push((low & 15) | (high << 4));
    }
}

/// The fifth bit of each level, in one 32-bit number.
fn put_fifth_bits(out: &mut Vec<u8>, levels: &[u8]) {
    let bits = levels
        .iter()
        .rev()
        .fold(0_u32, |bits, level| (bits << 1) | u32::from(level >> 4));
    out.extend_from_slice(&bits.to_le_bytes());
}

/// Reads 32 levels whose packed bytes begin at `at`, and whose fifth bits stand at `fifth`.
fn unpack(
    stored: &[u8],
    at: usize,
    fifth: Option<usize>,
    value: impl Fn(f32) -> f32,
    out: &mut Vec<f32>,
) {
    for index in 0..32 {
        let packed = byte(stored, at + index % 16);
        let low = if index < 16 { packed & 15 } else { packed >> 4 };
        let bit = fifth.map_or(0, |fifth| {
            (byte(stored, fifth + index / 8) >> (index % 8)) & 1
        });
        out.push(value(f32::from(low | (bit << 4))));
    }
}
