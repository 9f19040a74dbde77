//! Floating point: 32 bits, 16 bits, and 16 bits with the range of 32.

pub(super) fn to_f32(values: &[f32], out: &mut Vec<u8>) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub(super) fn from_f32(stored: &[u8], out: &mut Vec<f32>) {
    for bytes in stored.as_chunks::<4>().0 {
        out.push(f32::from_le_bytes(*bytes));
    }
}

pub(super) fn to_f16(values: &[f32], out: &mut Vec<u8>) {
    for value in values {
        out.extend_from_slice(&f32_to_f16(*value).to_le_bytes());
    }
}

pub(super) fn from_f16(stored: &[u8], out: &mut Vec<f32>) {
    for bytes in stored.as_chunks::<2>().0 {
        out.push(f16_to_f32(u16::from_le_bytes(*bytes)));
    }
}

pub(super) fn to_bf16(values: &[f32], out: &mut Vec<u8>) {
    for value in values {
        let bits = value.to_bits();
        // To nearest, ties to even: half of the last kept place is added, less one where that is even.
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        out.extend_from_slice(&low16(rounded >> 16).to_le_bytes());
    }
}

pub(super) fn from_bf16(stored: &[u8], out: &mut Vec<f32>) {
    for bytes in stored.as_chunks::<2>().0 {
        out.push(f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
    }
}

/// IEEE 754 binary16, to nearest, ties to even; what is too large becomes infinite.
pub(super) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = low16((bits >> 16) & 0x8000);
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x7f80_0000 {
        let quiet = if magnitude > 0x7f80_0000 { 0x0200 } else { 0 };
        return sign | 0x7c00 | quiet;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14 the exponent stays and the places shift.
    if magnitude < 0x3880_0000 {
        // 2^-25 and below round to zero.
        if magnitude <= 0x3300_0000 {
            return sign;
        }
        let shift = 126 - (magnitude >> 23);
        let mantissa = (magnitude & 0x007f_ffff) | 0x0080_0000;
        return sign | low16(to_nearest(mantissa, shift));
    }
    sign | low16(to_nearest(magnitude - 0x3800_0000, 13))
}

pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let mantissa = u32::from(bits & 0x03ff);
    let magnitude = match exponent {
        0 => {
            // 2^-24 is the unit of what has no exponent; the product is exact.
            let unit = f32::from_bits(0x3380_0000);
            return f32::from_bits(sign | (f32::from(low16(mantissa)) * unit).to_bits());
        }
        0x1f => 0x7f80_0000 | (mantissa << 13),
        _ => ((exponent + 112) << 23) | (mantissa << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// Drops the last `shift` places: to nearest, ties to even.
fn to_nearest(value: u32, shift: u32) -> u32 {
    let kept = value >> shift;
    let dropped = value & ((1 << shift) - 1);
    let tie = 1 << (shift - 1);
    let up = dropped > tie || (dropped == tie && kept & 1 == 1);
    kept + u32::from(up)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the callers have shifted or masked it below 2^16"
)]
fn low16(value: u32) -> u16 {
    value as u16
}
