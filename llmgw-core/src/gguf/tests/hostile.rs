use super::{super::*, refusal, sample};
use crate::header::Progress;

/// A header with these counts and then `rest`.
fn header(tensors: u64, keys: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(keys.to_le_bytes());
    bytes.extend(rest);
    bytes
}

/// A key with the number of its kind.
fn key(name: &str, kind: u32) -> Vec<u8> {
    let mut bytes = u64::try_from(name.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes
}

/// A tensor's entry.
fn tensor(name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut bytes = u64::try_from(name.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(u32::try_from(dimensions.len()).unwrap().to_le_bytes());
    bytes.extend(dimensions.iter().flat_map(|d| d.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

#[test]
fn a_file_of_another_kind_or_version_is_refused_by_name() {
    assert!(refusal(b"<!DOCTYPE html>").starts_with("magic: these bytes are no GGUF file"));
    assert!(refusal(b"GGUF\x01\0\0\0").starts_with("version: version 1 is not read"));
    assert!(refusal(b"GGUF\0\0\0\x03").starts_with("version: the file is big-endian"));
    assert!(refusal(b"GGUF\x09\0\0\0").starts_with("version: version 9 is not known"));
}

#[test]
fn hostile_counts_are_refused_before_anything_is_allocated() {
    assert_eq!(
        refusal(&header(u64::MAX, 0, &[])),
        "tensor_count: 18446744073709551615; at most 100000 are allowed (at byte 8)"
    );
    assert!(refusal(&header(0, 1 << 40, &[])).starts_with("metadata_kv_count: 1099511627776"));
    let mut array = key("a", 9);
    array.extend(4u32.to_le_bytes());
    array.extend(u64::MAX.to_le_bytes());
    assert!(
        refusal(&header(0, 1, &array))
            .starts_with("metadata[0].a: an array of 18446744073709551615 values")
    );
}

#[test]
fn hostile_lengths_are_refused() {
    let long_key = u64::MAX.to_le_bytes();
    assert!(refusal(&header(0, 1, &long_key)).starts_with("metadata[0].key: a string of"));
    let mut text = key("a", 8);
    text.extend((1u64 << 60).to_le_bytes());
    assert!(
        refusal(&header(0, 1, &text)).starts_with("metadata[0].a: a string of 1152921504606846976")
    );
    let mut name = (1u64 << 32).to_le_bytes().to_vec();
    name.extend([b'x'; 8]);
    assert!(refusal(&header(1, 0, &name)).starts_with("tensors[0].name: a string of"));
}

#[test]
fn arrays_within_arrays_end_at_the_limit() {
    let mut deep = key("a", 9);
    for _ in 0..100_000 {
        deep.extend(9u32.to_le_bytes());
        deep.extend(1u64.to_le_bytes());
    }
    assert!(
        refusal(&header(0, 1, &deep))
            .contains("metadata[0].a[0][0][0][0]: arrays within arrays, more than 4 deep")
    );
}

#[test]
fn a_header_longer_than_the_limit_is_refused_and_not_asked_for() {
    let limits = Limits {
        header_bytes: 200,
        ..Limits::default()
    };
    let bytes = sample().header().unwrap();
    let mut have = 0;
    let error = loop {
        match Header::parse(&bytes[..have], &limits) {
            Ok(Progress::NeedMore { bytes: need }) => {
                have = usize::try_from(need).unwrap();
                assert!(have <= 200);
            }
            Ok(Progress::Done(_)) => panic!("longer than the limit"),
            Err(error) => break error,
        }
    };
    assert!(error.problem.contains("longer than 200 bytes"), "{error}");
}

#[test]
fn a_tensor_that_can_t_be_is_refused_with_its_name() {
    for (entry, expected) in [
        (
            tensor("w", &[1 << 40, 1 << 40], 0, 0),
            "tensors[0].w.dimensions: their product is out of reach",
        ),
        (
            tensor("w", &[1, 1, 1, 1, 1], 0, 0),
            "tensors[0].w.n_dimensions: 5; at most 4",
        ),
        (
            tensor("w", &[33], 2, 0),
            "tensors[0].w.dimensions: rows of 33 are no whole blocks of Q4_0",
        ),
        (
            tensor("w", &[32], 0, 7),
            "tensors[0].w.offset: 7 is no multiple of the alignment, 32",
        ),
    ] {
        let error = refusal(&header(1, 0, &entry));
        assert!(error.starts_with(expected), "{error}");
    }
    let twice = [tensor("w", &[32], 0, 0), tensor("w", &[32], 0, 128)].concat();
    assert!(refusal(&header(2, 0, &twice)).starts_with("tensors[1].w: the tensor stands twice"));
}

#[test]
fn metadata_that_can_t_be_is_refused_with_its_key() {
    assert!(
        refusal(&header(0, 1, &key("a", 13))).starts_with("metadata[0].a: 13 is no kind of value")
    );
    let mut twice = key("a", 0);
    twice.push(1);
    twice.extend(twice.clone());
    assert!(refusal(&header(0, 2, &twice)).starts_with("metadata[1].a: the key stands twice"));
    let mut alignment = key("general.alignment", 4);
    alignment.extend(33u32.to_le_bytes());
    assert!(
        refusal(&header(0, 1, &alignment))
            .starts_with("metadata.general.alignment: 33 is no power of two")
    );
    let sample = super::done(&sample().header().unwrap(), &Limits::default());
    let error = sample.metadata.number("general.architecture").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("metadata.general.architecture: \"llama\", not a whole number"),
        "{error}"
    );
    let error = sample.metadata.number("a.i32").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("metadata.a.i32: -70000 is negative"),
        "{error}"
    );
}
