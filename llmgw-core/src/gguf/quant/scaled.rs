//! Super-blocks of 256 values, whose blocks of 16 or 32 have small scales under one large: the `_K` types.

use super::{byte, extreme, half, inverse, level, put_half, range, signed};

/// Small scales and offsets of a super-block, and the large ones that they are multiples of.
struct Scales {
    scale: f32,
    offset: f32,
    scales: Vec<u8>,
    offsets: Vec<u8>,
}

// === impl Scales ===

impl Scales {
    /// Chooses them for blocks of `length` values with levels up to `high`; small ones go up to `most`.
    fn of(values: &[f32], length: usize, high: u8, most: u8) -> Self {
        let ranges: Vec<(f32, f32)> = values
            .chunks(length)
            .map(|block| {
                // An offset lowers and never raises: zero stays within reach.
                let (low, top) = range(block);
                (low.min(0.0), top.max(0.0))
            })
            .collect();
        let wanted: Vec<f32> = ranges
            .iter()
            .map(|(low, top)| (top - low) / f32::from(high))
            .collect();
        let depths: Vec<f32> = ranges.iter().map(|(low, _)| -low).collect();
        let scale = extreme(&wanted) / f32::from(most);
        let offset = extreme(&depths) / f32::from(most);
        let small = |all: &[f32], unit: f32| {
            all.iter()
                .map(|one| level(one * inverse(unit), most))
                .collect()
        };
        Self {
            scales: small(&wanted, scale),
            offsets: small(&depths, offset),
            scale,
            offset,
        }
    }

    /// The level of each value.
    fn levels(&self, values: &[f32], length: usize, high: u8) -> Vec<u8> {
        values
            .chunks(length)
            .zip(self.scales.iter().zip(&self.offsets))
            .flat_map(|(block, (scale, offset))| {
                let factor = inverse(self.scale * f32::from(*scale));
                let depth = self.offset * f32::from(*offset);
                block
                    .iter()
                    .map(move |value| level((value + depth) * factor, high))
            })
            .collect()
    }
}

/// 16 blocks of 16: scale and offset of 4 bits, levels of 2.
pub(super) fn to_q2_k(values: &[f32], out: &mut Vec<u8>) {
    let scales = Scales::of(values, 16, 3, 15);
    for (scale, offset) in scales.scales.iter().zip(&scales.offsets) {
        out.push(scale | (offset << 4));
    }
    put_quarters(out, &scales.levels(values, 16, 3));
    put_half(out, scales.scale);
    put_half(out, scales.offset);
}

pub(super) fn from_q2_k(stored: &[u8], out: &mut Vec<f32>) {
    let (scale, offset) = (half(stored, 80), half(stored, 82));
    for index in 0..SUPER {
        let small = byte(stored, index / 16);
        let scale = scale * f32::from(small & 15);
        let offset = offset * f32::from(small >> 4);
        out.push(scale * f32::from(quarter(stored, 16, index)) - offset);
    }
}

/// 16 blocks of 16: scale of 6 bits, levels of 3, of which the third stands apart.
pub(super) fn to_q3_k(values: &[f32], out: &mut Vec<u8>) {
    let (scale, scales) = signed_scales(values, 4.0, 31);
    let levels = signed_levels(values, scale, &scales, -4, 3);
    put_bits_apart(out, &levels, 2);
    put_quarters(out, &levels);
    let stored: Vec<u8> = scales
        .iter()
        .map(|small| (small + 32).unsigned_abs())
        .collect();
    let (low, high) = stored.split_at(8);
    for (low, high) in low.iter().zip(high) {
        out.push((low & 15) | (high << 4));
    }
    for place in 0..4 {
        let bits = (0..4).rev().fold(0, |bits, quarter| {
            (bits << 2) | (byte(&stored, place + 4 * quarter) >> 4)
        });
        out.push(bits);
    }
    put_half(out, scale);
}

pub(super) fn from_q3_k(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 108);
    for index in 0..SUPER {
        let block = index / 16;
        let low = (byte(stored, 96 + block % 8) >> (4 * (block / 8))) & 15;
        let high = (byte(stored, 104 + block % 4) >> (2 * (block / 4))) & 3;
        let small = f32::from(low | (high << 4)) - 32.0;
        let level = quarter(stored, 32, index) | (bit_apart(stored, 0, index) << 2);
        out.push(scale * small * (f32::from(level) - 4.0));
    }
}

/// 8 blocks of 32: scale and offset of 6 bits, levels of 4.
pub(super) fn to_q4_k(values: &[f32], out: &mut Vec<u8>) {
    let scales = Scales::of(values, 32, 15, 63);
    put_half(out, scales.scale);
    put_half(out, scales.offset);
    put_sixes(out, &scales);
    put_nibbles(out, &scales.levels(values, 32, 15));
}

pub(super) fn from_q4_k(stored: &[u8], out: &mut Vec<f32>) {
    let (large, depth) = (half(stored, 0), half(stored, 2));
    for index in 0..SUPER {
        let (scale, offset) = sixes(stored, 4, index / 32);
        let level = f32::from(nibble(stored, 16, index));
        out.push(large * scale * level - depth * offset);
    }
}

/// As `Q4_K`, with a fifth bit that stands apart.
pub(super) fn to_q5_k(values: &[f32], out: &mut Vec<u8>) {
    let scales = Scales::of(values, 32, 31, 63);
    let levels = scales.levels(values, 32, 31);
    put_half(out, scales.scale);
    put_half(out, scales.offset);
    put_sixes(out, &scales);
    put_bits_apart(out, &levels, 4);
    put_nibbles(out, &levels);
}

pub(super) fn from_q5_k(stored: &[u8], out: &mut Vec<f32>) {
    let (large, depth) = (half(stored, 0), half(stored, 2));
    for index in 0..SUPER {
        let (scale, offset) = sixes(stored, 4, index / 32);
        let level = nibble(stored, 48, index) | (bit_apart(stored, 16, index) << 4);
        out.push(large * scale * f32::from(level) - depth * offset);
    }
}

/// 16 blocks of 16: scale of 8 bits, levels of 6.
pub(super) fn to_q6_k(values: &[f32], out: &mut Vec<u8>) {
    let (scale, scales) = signed_scales(values, 32.0, 127);
    let levels = signed_levels(values, scale, &scales, -32, 31);
    for half in levels.chunks(128) {
        for place in 0..64 {
            out.push((byte(half, place) & 15) | (byte(half, place + 64) << 4));
        }
    }
    for half in levels.chunks(128) {
        for place in 0..32 {
            let bits = (0..4).rev().fold(0, |bits, quarter| {
                (bits << 2) | (byte(half, place + 32 * quarter) >> 4)
            });
            out.push(bits);
        }
    }
    out.extend(scales.iter().flat_map(|small| small.to_le_bytes()));
    put_half(out, scale);
}

pub(super) fn from_q6_k(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 208);
    for index in 0..SUPER {
        let (part, place) = (index / 128, index % 128);
        let low = (byte(stored, 64 * part + place % 64) >> (4 * (place / 64))) & 15;
        let high = (byte(stored, 128 + 32 * part + place % 32) >> (2 * (place / 32))) & 3;
        let small = f32::from(i8::from_le_bytes([byte(stored, 192 + index / 16)]));
        out.push(scale * small * (f32::from(low | (high << 4)) - 32.0));
    }
}

/// A scale for blocks of 16, and how often each takes it: up to `most` times, less than none where the extreme is
/// positive, because the lowest level has no opposite.
fn signed_scales(values: &[f32], lowest: f32, most: i8) -> (f32, Vec<i8>) {
    let wanted: Vec<f32> = values
        .chunks(16)
        .map(|block| extreme(block) / -lowest)
        .collect();
    let scale = extreme(&wanted).abs() / f32::from(most);
    let small = wanted
        .iter()
        .map(|one| signed(one * inverse(scale), -most, most))
        .collect();
    (scale, small)
}

/// The levels of blocks of 16, moved so that `low` becomes zero.
fn signed_levels(values: &[f32], scale: f32, scales: &[i8], low: i8, high: i8) -> Vec<u8> {
    values
        .chunks(16)
        .zip(scales)
        .flat_map(|(block, small)| {
            let factor = inverse(scale * f32::from(*small));
            block
                .iter()
                .map(move |value| (signed(value * factor, low, high) - low).unsigned_abs())
        })
        .collect()
}

/// Levels of two bits: four of them, 32 places apart, share a byte.
fn put_quarters(out: &mut Vec<u8>, levels: &[u8]) {
    for part in levels.chunks(128) {
        for place in 0..32 {
            let packed = (0..4).rev().fold(0, |packed, quarter| {
                (packed << 2) | (byte(part, place + 32 * quarter) & 3)
            });
            out.push(packed);
        }
    }
}

fn quarter(stored: &[u8], at: usize, index: usize) -> u8 {
    let (part, place) = (index / 128, index % 128);
    (byte(stored, at + 32 * part + place % 32) >> (2 * (place / 32))) & 3
}

/// One bit of each level: eight of them, 32 places apart, share a byte.
fn put_bits_apart(out: &mut Vec<u8>, levels: &[u8], shift: u8) {
    for place in 0..32 {
        let packed = (0..8).rev().fold(0, |packed, eighth| {
            (packed << 1) | ((byte(levels, place + 32 * eighth) >> shift) & 1)
        });
        out.push(packed);
    }
}

fn bit_apart(stored: &[u8], at: usize, index: usize) -> u8 {
    (byte(stored, at + index % 32) >> (index / 32)) & 1
}

/// Levels of four bits: two of them, 32 places apart, share a byte.
fn put_nibbles(out: &mut Vec<u8>, levels: &[u8]) {
    for part in levels.chunks(64) {
        for place in 0..32 {
            out.push((byte(part, place) & 15) | (byte(part, place + 32) << 4));
        }
    }
}

fn nibble(stored: &[u8], at: usize, index: usize) -> u8 {
    let (part, place) = (index / 64, index % 64);
    (byte(stored, at + 32 * part + place % 32) >> (4 * (place / 32))) & 15
}

/// Eight scales and eight offsets of six bits in twelve bytes: the first four of each whole, and above them the
/// high bits of the last four, whose low bits stand together at the end.
fn put_sixes(out: &mut Vec<u8>, scales: &Scales) {
    let high = |all: &[u8], place: usize| (byte(all, place + 4) >> 4) << 6;
    for all in [&scales.scales, &scales.offsets] {
        for place in 0..4 {
            out.push(byte(all, place) | high(all, place));
        }
    }
    for place in 4..8 {
        out.push((byte(&scales.scales, place) & 15) | (byte(&scales.offsets, place) << 4));
    }
}

fn sixes(stored: &[u8], at: usize, block: usize) -> (f32, f32) {
    let at = |index: usize| byte(stored, at + index);
    let (scale, offset) = if block < 4 {
        (at(block) & 63, at(block + 4) & 63)
    } else {
        let low = at(block + 4);
        (
            (low & 15) | ((at(block - 4) >> 6) << 4),
            (low >> 4) | ((at(block) >> 6) << 4),
        )
    };
    (f32::from(scale), f32::from(offset))
}

/// Values of a super-block: `QK_K` in ggml.
const SUPER: usize = 256;
