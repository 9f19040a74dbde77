use std::fs;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{index::shards, *};
use crate::{error::Chain, header::Progress, units::Bytes};

fn file(json: &str) -> Vec<u8> {
    let mut bytes = u64::try_from(json.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes
}

fn parse(json: &str) -> Result<Header, String> {
    match Header::parse(&file(json), &Limits::default()) {
        Ok(Progress::Done(header)) => Ok(header),
        Ok(Progress::NeedMore { bytes }) => panic!("needs {bytes} bytes"),
        Err(error) => Err(error.to_string()),
    }
}

const GOOD: &str = r#"{
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [12, 20]},
    "c": {"dtype": "F4", "shape": [4], "data_offsets": [20, 22]},
    "d": {"dtype": "X9", "shape": [4], "data_offsets": [22, 25]}
}"#;

#[test]
fn tensors_are_read_with_types_that_are_not_known_too() {
    let header = parse(GOOD).unwrap();
    let sizes: Vec<_> = header.tensors.values().map(|tensor| tensor.bytes).collect();
    assert_eq!(sizes, [Bytes(12), Bytes(8), Bytes(2), Bytes(3)]);
    assert_eq!(header.tensors["d"].dtype, "X9");
}

#[test]
fn a_beginning_asks_for_exactly_the_header() {
    let bytes = file(GOOD);
    let asked = |have: usize| Header::parse(&bytes[..have], &Limits::default()).unwrap();
    assert_eq!(asked(3), Progress::NeedMore { bytes: 8 });
    let whole = u64::try_from(bytes.len()).unwrap();
    assert_eq!(asked(8), Progress::NeedMore { bytes: whole });
    assert_eq!(asked(bytes.len() - 1), Progress::NeedMore { bytes: whole });
}

#[test]
fn what_can_t_be_is_refused_with_its_path() {
    for (json, expected) in [
        (
            r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 7]}}"#,
            "tensors.a: data_offsets span 7 bytes, but 2 elements of F32 have 8",
        ),
        (
            r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}"#,
            "tensors.a: data_offsets end at 0, before they begin at 8",
        ),
        (
            r#"{"a": {"dtype": "F32", "shape": [9999999999, 9999999999], "data_offsets": [0, 8]}}"#,
            "tensors.a: the product of its shape is out of reach",
        ),
        (
            r#"{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}"#,
            "tensors.a: invalid value: integer `-1`",
        ),
        (
            r#"{"a": {"shape": [], "data_offsets": [0, 8]}}"#,
            "tensors.a: missing field `dtype`",
        ),
        (
            r#"{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}"#,
            "tensors.a: the tensor stands twice",
        ),
        ("[1]", "header: invalid type: sequence, expected an object"),
        ("{} x", "header: trailing characters"),
    ] {
        let error = parse(json).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn hostile_lengths_and_nesting_are_refused() {
    for length in [0, 1, u64::MAX, 1 << 40] {
        let error = Header::parse(&length.to_le_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(error.field, "header_length", "{error}");
    }
    // Skipped without recursion where it is allowed, refused where a number should stand.
    let open = "[".repeat(100_000);
    let error = parse(&format!(r#"{{"__metadata__": {open}"#)).unwrap_err();
    assert!(error.starts_with("tensors.__metadata__: EOF"), "{error}");
    let error = parse(&format!(r#"{{"a": {{"shape": {open}"#)).unwrap_err();
    assert!(
        error.starts_with("tensors.a: invalid type: sequence"),
        "{error}"
    );
    let limits = Limits {
        tensors: 2,
        ..Limits::default()
    };
    let error = Header::parse(&file(GOOD), &limits).unwrap_err();
    assert!(error.problem.starts_with("more than 2 tensors"), "{error}");
}

#[test]
fn shards_are_found_by_the_index() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    let tensor = |name: &str| {
        file(&format!(
            r#"{{"{name}": {{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}}}"#
        ))
    };
    put("1.safetensors", &tensor("a"));
    put("2.safetensors", &tensor("b"));
    put(
        "model.safetensors.index.json",
        br#"{"metadata": {"total_size": 16}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#,
    );
    let opened = open(directory.path(), &Limits::default()).unwrap();
    assert_eq!(opened.tensors.keys().collect::<Vec<_>>(), ["a", "b"]);

    put("2.safetensors", &tensor("a"));
    let error = open(directory.path(), &Limits::default()).unwrap_err();
    let text = Chain(&error).to_string();
    assert!(
        text.ends_with("2.safetensors: tensors.a: stands in another file too"),
        "{text}"
    );
}

#[test]
fn a_directory_without_weights_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(directory.path(), &Limits::default()).unwrap_err();
    assert!(
        Chain(&error)
            .to_string()
            .ends_with("holds neither model.safetensors.index.json nor model.safetensors")
    );
}

#[test]
fn an_index_can_t_name_files_elsewhere() {
    for name in ["../x", "/etc/passwd", "", ".hidden", "a\\b"] {
        let text = serde_json::json!({"weight_map": {"w": name}}).to_string();
        let error = shards(text.as_bytes(), &Limits::default()).unwrap_err();
        assert!(error.to_string().starts_with("weight_map.w: "), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_good_header_with_wrong_bytes_gets_an_answer(
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
        cut: Index,
    ) {
        let mut bytes = file(GOOD);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        drop(Header::parse(&bytes, &Limits::default()));
        drop(Header::parse(&bytes[..cut.index(bytes.len())], &Limits::default()));
    }

    #[test]
    fn random_bytes_get_an_answer(bytes in vec(any::<u8>(), 0..200), text in ".{0,100}") {
        drop(Header::parse(&bytes, &Limits::default()));
        drop(Header::parse(&file(&text), &Limits::default()));
        drop(shards(&bytes, &Limits::default()));
    }
}
