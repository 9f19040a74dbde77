//! Types whose levels stand for the values of a small table: `IQ4_NL`, `IQ4_XS`, `MXFP4`.

use super::{byte, extreme, half, inverse, plain::pack, put_half, signed};

pub(super) fn to_iq4_nl(values: &[f32], out: &mut Vec<u8>) {
    let scale = extreme(values) / f32::from(LEVELS[0]);
    put_half(out, scale);
    pack(out, &nearest(values, scale));
}

pub(super) fn from_iq4_nl(stored: &[u8], out: &mut Vec<f32>) {
    unpack(stored, 2, half(stored, 0), &LEVELS, out);
}

/// Eight blocks of 32 under one scale; the scale of each has 6 bits.
pub(super) fn to_iq4_xs(values: &[f32], out: &mut Vec<u8>) {
    let scales: Vec<f32> = values
        .chunks(32)
        .map(|block| extreme(block) / f32::from(LEVELS[0]))
        .collect();
    let scale = extreme(&scales).abs() / 31.0;
    let steps: Vec<u8> = scales
        .iter()
        .map(|one| (signed(one * inverse(scale), -31, 31) + 32).unsigned_abs())
        .collect();
    put_half(out, scale);
    let high = steps
        .iter()
        .rev()
        .fold(0_u16, |high, step| (high << 2) | u16::from(step >> 4));
    out.extend_from_slice(&high.to_le_bytes());
    for pair in steps.as_chunks::<2>().0 {
        out.push((pair[0] & 15) | (pair[1] << 4));
    }
    let stored = scale_as_stored(scale);
    for (block, step) in values.chunks(32).zip(&steps) {
        pack(out, &nearest(block, stored * (f32::from(*step) - 32.0)));
    }
}

pub(super) fn from_iq4_xs(stored: &[u8], out: &mut Vec<f32>) {
    let scale = half(stored, 0);
    for block in 0..8 {
        let low = (byte(stored, 4 + block / 2) >> (4 * (block % 2))) & 15;
        let high = (byte(stored, 2 + block / 4) >> (2 * (block % 4))) & 3;
        let step = f32::from(low | (high << 4)) - 32.0;
        unpack(stored, 8 + 16 * block, scale * step, &LEVELS, out);
    }
}

/// The OCP microscaling format: a power of two for 32 numbers of 4 bits (one sign, two of exponent, one place).
pub(super) fn to_mxfp4(values: &[f32], out: &mut Vec<u8>) {
    let largest = extreme(values).abs();
    // The largest number of four bits is 6, which has the exponent 2: so the extreme gets exponent 2.
    let exponent = (largest.to_bits() >> 23).saturating_sub(2);
    let exponent = u8::try_from(exponent).unwrap_or(u8::MAX);
    out.push(exponent);
    pack(out, &nearest_of(values, half_power(exponent), &DOUBLED));
}

pub(super) fn from_mxfp4(stored: &[u8], out: &mut Vec<f32>) {
    unpack(stored, 1, half_power(byte(stored, 0)), &DOUBLED, out);
}

/// `2^(exponent - 127) / 2`: half, because the table holds twice what is meant.
fn half_power(exponent: u8) -> f32 {
    match exponent {
        // What has no exponent of its own: 2^-128 and 2^-127.
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}

fn scale_as_stored(scale: f32) -> f32 {
    let mut stored = Vec::with_capacity(2);
    put_half(&mut stored, scale);
    half(&stored, 0)
}

fn nearest(values: &[f32], scale: f32) -> Vec<u8> {
    nearest_of(values, scale, &LEVELS)
}

/// For each value the place of the nearest entry; the first of two that are as near.
fn nearest_of(values: &[f32], scale: f32, table: &[i8; 16]) -> Vec<u8> {
    let distance = |entry: i8, value: f32| (f32::from(entry) * scale - value).abs();
    values
        .iter()
        .map(|value| {
            (0..16_u8)
                .zip(table)
                .min_by(|(_, one), (_, other)| {
                    distance(**one, *value).total_cmp(&distance(**other, *value))
                })
                .map_or(0, |(place, _)| place)
        })
        .collect()
}

fn unpack(stored: &[u8], at: usize, scale: f32, table: &[i8; 16], out: &mut Vec<f32>) {
    for index in 0..32 {
        let packed = byte(stored, at + index % 16);
        let place = if index < 16 { packed & 15 } else { packed >> 4 };
        let entry = table.get(usize::from(place)).copied().unwrap_or_default();
        out.push(scale * f32::from(entry));
    }
}

/// `kvalues_iq4nl` of `ggml-common.h`: denser near zero, where weights are.
const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Twice the numbers that four bits mean in the OCP microscaling format (E2M1), so that all are whole.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
