//! Against what ggml itself has written and read, and against the numbers that were put in.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::gguf::random::Random;

struct Row {
    values: Vec<f32>,
    stored: Vec<u8>,
    read: Vec<f32>,
}

/// What ggml did with a row of each type.
fn rows() -> BTreeMap<TensorType, Row> {
    let lines = include_str!("tests/ggml.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let kind = TYPES
                .iter()
                .find(|kind| kind.name() == Some(fields[0]))
                .unwrap();
            let mut random = Random::named(fields[0]);
            let read = bytes(fields[2]);
            let row = Row {
                values: (0..read.len() / 4).map(|_| random.within(3.0)).collect(),
                stored: bytes(fields[1]),
                read: dequantise(TensorType::F32, &read).unwrap(),
            };
            (*kind, row)
        })
        .collect()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    data_encoding::HEXLOWER
        .decode(hexadecimal.as_bytes())
        .unwrap()
}

fn error(values: &[f32], read: &[f32]) -> f32 {
    let squares = values
        .iter()
        .zip(read)
        .map(|(one, other)| (one - other).powi(2));
    (squares.sum::<f32>() / values.len() as f32).sqrt()
}

#[test]
fn every_type_is_read_as_ggml_reads_it_to_the_bit() {
    let rows = rows();
    for kind in TYPES.iter().filter(|kind| **kind != TensorType::F32) {
        let Row { stored, read, .. } = &rows[kind];
        let ours = dequantise(*kind, stored).unwrap();
        let bits = |all: &[f32]| all.iter().map(|one| one.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&ours), bits(read), "{kind}");
    }
}

#[test]
fn types_whose_scales_leave_no_choice_are_written_as_ggml_writes_them() {
    let rows = rows();
    for kind in [
        TensorType::F16,
        TensorType::BF16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q8_0,
        TensorType::MXFP4,
    ] {
        let Row { values, stored, .. } = &rows[&kind];
        assert_eq!(&quantise(kind, values).unwrap(), stored, "{kind}");
    }
}

#[test]
fn types_whose_scales_are_chosen_lose_at_most_a_quarter_more_than_in_ggml() {
    let mut worse = Vec::new();
    for (kind, Row { values, read, .. }) in rows() {
        let ours = dequantise(kind, &quantise(kind, &values).unwrap()).unwrap();
        let (ours, theirs) = (error(&values, &ours), error(&values, &read));
        if ours > theirs * 1.25 {
            worse.push(format!("{kind}: {ours} instead of {theirs}"));
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
}

#[test]
fn the_sizes_are_those_of_the_types() {
    for kind in TYPES {
        let block = kind.block().unwrap();
        let values = vec![0.5; usize::try_from(block.elements).unwrap() * 3];
        let stored = quantise(*kind, &values).unwrap();
        assert_eq!(stored.len() as u64, block.bytes * 3, "{kind}");
        let read = dequantise(*kind, &stored).unwrap();
        assert_eq!(read.len(), values.len(), "{kind}");
        if block.elements > 1 {
            assert_eq!(quantise(*kind, &values[1..]), None, "{kind}");
            assert_eq!(dequantise(*kind, &stored[1..]), None, "{kind}");
        }
    }
    for other in [TensorType(16), TensorType(24), TensorType(200)] {
        assert!(!is_known(other));
        assert_eq!(quantise(other, &[0.0; 256]), None);
        assert_eq!(dequantise(other, &[0; 66]), None);
    }
}

#[test]
fn zeros_stay_zeros() {
    for kind in TYPES {
        let stored = quantise(*kind, &[0.0; 256]).unwrap();
        let read = dequantise(*kind, &stored).unwrap();
        assert!(read.iter().all(|value| *value == 0.0), "{kind}: {read:?}");
    }
}

#[test]
fn half_precision_is_that_of_the_standard() {
    for (value, bits) in [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3c00),
        (-2.0, 0xc000),
        (65_504.0, 0x7bff),
        (65_519.996, 0x7bff),
        (65_520.0, 0x7c00),
        (f32::INFINITY, 0x7c00),
        // 2^-14 and 2^-24; half of the latter is a tie with zero, a little more is not.
        (6.103_515_6e-5, 0x0400),
        (5.960_464_5e-8, 0x0001),
        (2.980_232_2e-8, 0x0000),
        (2.980_232_6e-8, 0x0001),
        // Ties go to even.
        (1.0 + 1.0 / 2_048.0, 0x3c00),
        (1.0 + 3.0 / 2_048.0, 0x3c02),
    ] {
        assert_eq!(float::f32_to_f16(value), bits, "{value}");
    }
    for bits in 0..=u16::MAX {
        let value = float::f16_to_f32(bits);
        if value.is_nan() {
            assert!(f16_is_nan(float::f32_to_f16(value)));
        } else {
            assert_eq!(float::f32_to_f16(value), bits);
        }
    }
}

fn f16_is_nan(bits: u16) -> bool {
    bits & 0x7c00 == 0x7c00 && bits & 0x03ff != 0
}

/// What a type may lose of a value, as a part of the largest in its row. (A row of `Q2_K` may have one deep
/// block, whose offset the others are measured with too.)
fn bound(kind: TensorType) -> f32 {
    match kind {
        TensorType::F32 => 0.0,
        TensorType::F16 => 1.0 / 2_048.0,
        TensorType::BF16 => 1.0 / 256.0,
        TensorType::Q8_0 => 1.0 / 127.0,
        TensorType::Q6_K => 1.0 / 25.0,
        TensorType::Q5_0 | TensorType::Q5_1 | TensorType::Q5_K => 1.0 / 12.0,
        TensorType::Q2_K => 1.0 / 2.0,
        TensorType::Q3_K => 1.0 / 3.0,
        TensorType::MXFP4 => 1.0 / 3.0,
        _ => 1.0 / 6.0,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_within_the_bound_of_its_type(
        values in proptest::collection::vec(-100.0_f32..100.0, 256)
    ) {
        let largest = extreme(&values).abs();
        for kind in TYPES {
            let read = dequantise(*kind, &quantise(*kind, &values).unwrap()).unwrap();
            for (value, read) in values.iter().zip(&read) {
                let lost = (value - read).abs();
                prop_assert!(lost <= largest * bound(*kind), "{kind}: {value} became {read} of {largest}");
            }
        }
    }

    #[test]
    fn no_bytes_are_too_strange_to_be_read(stored in proptest::collection::vec(any::<u8>(), 0..600)) {
        for kind in TYPES {
            let bytes = usize::try_from(kind.block().unwrap().bytes).unwrap();
            let read = dequantise(*kind, &stored);
            prop_assert_eq!(read.is_some(), stored.len() % bytes == 0);
            let whole = stored.len() / bytes * bytes;
            prop_assert!(dequantise(*kind, &stored[..whole]).is_some());
        }
    }

    #[test]
    fn no_numbers_are_too_strange_to_be_written(bits in proptest::collection::vec(any::<u32>(), 256)) {
        let values: Vec<f32> = bits.iter().copied().map(f32::from_bits).collect();
        for kind in TYPES {
            let stored = quantise(*kind, &values).unwrap();
            prop_assert_eq!(stored.len() as u64, kind.block().unwrap().bytes * 256 / kind.block().unwrap().elements);
        }
    }
}
