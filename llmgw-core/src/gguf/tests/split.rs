use std::fs;

use super::super::{write::Draft, *};
use crate::error::Chain;

fn part(number: u16, count: u16, tensors: i32) -> Draft {
    Draft::default()
        .with("split.no", Value::U16(number))
        .with("split.count", Value::U16(count))
        .with("split.tensors.count", Value::I32(tensors))
        .tensor(&format!("blk.{number}.x"), &[32], TensorType::F32)
}

fn directory(parts: &[(&str, Draft)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, draft) in parts {
        fs::write(directory.path().join(name), draft.header().unwrap()).unwrap();
    }
    directory
}

fn opened(directory: &tempfile::TempDir, name: &str) -> Result<Header, String> {
    open(&directory.path().join(name), &Limits::default()).map_err(|error| {
        let text = Chain(&error).to_string();
        text.replace(&format!("{}/", directory.path().display()), "")
    })
}

#[test]
fn a_split_model_is_read_from_its_first_file() {
    let directory = directory(&[
        ("m-00001-of-00003.gguf", part(0, 3, 3)),
        ("m-00002-of-00003.gguf", part(1, 3, 3)),
        ("m-00003-of-00003.gguf", part(2, 3, 3)),
    ]);
    let header = opened(&directory, "m-00001-of-00003.gguf").unwrap();
    let names: Vec<_> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["blk.0.x", "blk.1.x", "blk.2.x"]);
    assert_eq!(
        opened(&directory, "m-00002-of-00003.gguf").unwrap_err(),
        "m-00002-of-00003.gguf: this is file 2 of 3 of a split model"
    );
}

#[test]
fn a_missing_or_misplaced_part_is_named() {
    let missing = directory(&[("m-00001-of-00002.gguf", part(0, 2, 2))]);
    let error = opened(&missing, "m-00001-of-00002.gguf").unwrap_err();
    assert!(
        error.starts_with("m-00002-of-00002.gguf: reading the file: No such file"),
        "{error}"
    );

    let misplaced = directory(&[
        ("m-00001-of-00002.gguf", part(0, 2, 2)),
        ("m-00002-of-00002.gguf", part(5, 2, 2)),
    ]);
    assert_eq!(
        opened(&misplaced, "m-00001-of-00002.gguf").unwrap_err(),
        "m-00002-of-00002.gguf: its split.no is 5, not 1"
    );

    let short = directory(&[
        ("m-00001-of-00002.gguf", part(0, 2, 9)),
        ("m-00002-of-00002.gguf", part(1, 2, 9)),
    ]);
    assert_eq!(
        opened(&short, "m-00001-of-00002.gguf").unwrap_err(),
        "m-00001-of-00002.gguf: split.tensors.count: 9, but the files hold 2"
    );
}

#[test]
fn a_split_model_under_another_name_or_of_too_many_files_is_refused() {
    let renamed = directory(&[("model.gguf", part(0, 2, 2))]);
    assert_eq!(
        opened(&renamed, "model.gguf").unwrap_err(),
        "model.gguf: a split model of 2 files, but the name does not end in -00001-of-00002.gguf"
    );
    let many = directory(&[("m-00001-of-60000.gguf", part(0, 60_000, 2))]);
    assert_eq!(
        opened(&many, "m-00001-of-60000.gguf").unwrap_err(),
        "m-00001-of-60000.gguf: split.count: 60000; at most 1000 are allowed"
    );
}

#[test]
fn a_part_of_another_set_is_named() {
    let mixed = directory(&[
        ("m-00001-of-00002.gguf", part(0, 2, 2)),
        ("m-00002-of-00002.gguf", part(1, 3, 2)),
    ]);
    assert_eq!(
        opened(&mixed, "m-00001-of-00002.gguf").unwrap_err(),
        "m-00002-of-00002.gguf: its split.count is 3, not 2"
    );
}

#[test]
fn a_whole_model_under_the_name_of_a_part_is_refused() {
    let alone = Draft::default().tensor("x", &[32], TensorType::F32);
    let one = part(0, 1, 1);
    let directory = directory(&[
        ("m-00001-of-00002.gguf", alone),
        ("n-00001-of-00002.gguf", one),
        ("m-00001-of-00001.gguf", part(0, 1, 1)),
    ]);
    for name in ["m-00001-of-00002.gguf", "n-00001-of-00002.gguf"] {
        let expected = format!("{name}: its split.count is 1, not 2");
        assert_eq!(opened(&directory, name).unwrap_err(), expected);
    }
    opened(&directory, "m-00001-of-00001.gguf").unwrap();
}
