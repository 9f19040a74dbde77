use super::{super::*, done, sample};
use crate::{header::Progress, units::Bytes};

#[test]
fn what_was_written_is_read_again() {
    let bytes = sample().header().unwrap();
    let header = done(&bytes, &Limits::default());
    assert_eq!(header.version, 3);
    assert_eq!(header.data_offset, u64::try_from(bytes.len()).unwrap());
    let metadata = &header.metadata;
    assert_eq!(
        metadata.text("general.architecture").unwrap(),
        Some("llama")
    );
    assert_eq!(metadata.number("a.u64").unwrap(), Some(1 << 40));
    assert_eq!(metadata.value("a.f64"), Some(&Value::F64(0.25)));
    assert_eq!(metadata.value("a.i8"), Some(&Value::I8(-3)));
    assert_eq!(
        metadata.numbers("llama.attention.head_count_kv").unwrap(),
        Some(Numbers::Each(vec![2, 0]))
    );
    assert_eq!(metadata.0.len(), 14);
    let sizes: Vec<_> = header.tensors.iter().map(Tensor::bytes).collect();
    assert_eq!(
        sizes,
        [
            Some(Bytes(64 * 32 / 32 * 34)),
            Some(Bytes(64 * 32 * 2)),
            Some(Bytes(256))
        ]
    );
}

#[test]
fn a_beginning_asks_for_more_and_never_for_less_than_it_has() {
    let bytes = sample().header().unwrap();
    let mut have = 0;
    let mut asked = 0;
    loop {
        match Header::parse(&bytes[..have], &Limits::default()).unwrap() {
            Progress::Done(_) => break,
            Progress::NeedMore { bytes: need } => {
                let need = usize::try_from(need).unwrap();
                assert!(need > have && need <= bytes.len(), "{have} -> {need}");
                have = need;
                asked += 1;
            }
        }
    }
    assert!(asked > 50, "{asked}");
}

#[test]
fn a_long_array_and_a_long_text_are_counted_and_not_kept() {
    let limits = Limits {
        kept_array_elements: 2,
        kept_string_bytes: 3,
        ..Limits::default()
    };
    let header = done(&sample().header().unwrap(), &limits);
    assert_eq!(
        header.metadata.value("tokenizer.ggml.tokens"),
        Some(&Value::Array(Array {
            kind: ValueKind::Text,
            count: 3,
            elements: None
        }))
    );
    assert_eq!(
        header.metadata.value("general.architecture"),
        Some(&Value::LongText { bytes: 5 })
    );
    assert_eq!(header.tensors.len(), 3);
}

#[test]
fn a_type_that_is_not_known_is_kept_and_has_no_size() {
    let mut bytes = write::Draft::default()
        .tensor("x", &[32], TensorType::F32)
        .tensor("y", &[32], TensorType::F32)
        .header()
        .unwrap();
    // The type of `x` stands behind its name, its rank and its one dimension.
    let at = 24 + 9 + 4 + 8;
    bytes[at] = 200;
    let header = done(&bytes, &Limits::default());
    assert_eq!(header.tensors[0].kind.to_string(), "type 200");
    assert_eq!(header.tensors[0].bytes(), None);
    assert_eq!(header.tensors[1].bytes(), Some(Bytes(128)));
}

/// Bits for a weight as ggml prints them for its types.
#[test]
fn types_have_the_bits_that_they_are_known_by() {
    for (number, bits) in [
        (2, 4.5),
        (8, 8.5),
        (10, 2.625),
        (11, 3.4375),
        (12, 4.5),
        (13, 5.5),
        (14, 6.5625),
        (16, 2.0625),
        (19, 1.5625),
        (29, 1.75),
        (34, 1.6875),
        (39, 4.25),
        (40, 4.5),
        (41, 1.125),
    ] {
        let block = TensorType(number).block().unwrap();
        let whole = bits * f64::from(u32::try_from(block.elements).unwrap()) / 8.0;
        assert!(
            (whole - f64::from(u32::try_from(block.bytes).unwrap())).abs() < 1e-9,
            "{}",
            TensorType(number)
        );
    }
}

#[test]
fn a_file_is_written_with_its_data() {
    let mut file = Vec::new();
    sample()
        .write(&mut file, |tensor| {
            vec![7; usize::try_from(tensor.bytes().unwrap().0).unwrap()]
        })
        .unwrap();
    let header = done(&file, &Limits::default());
    let last = header.tensors.last().unwrap();
    let end = header.data_offset + last.offset + last.bytes().unwrap().0;
    assert_eq!(u64::try_from(file.len()).unwrap(), end);
    assert_eq!(file.last(), Some(&7));

    let short = sample().write(&mut Vec::new(), |_| vec![0]).unwrap_err();
    assert_eq!(
        short.to_string(),
        "token_embd.weight: 1 bytes of data for a tensor of 2176"
    );
}
