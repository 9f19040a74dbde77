//! Random bytes and good headers with wrong bytes: an answer each time, and no more memory than the limits say.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{super::*, sample};
use crate::header::Progress;

/// A change to a good header.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Number(Index, u64),
    Cut(Index),
    Insert(Index, Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<Index>(), extreme()).prop_map(|(at, number)| Change::Number(at, number)),
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
    ]
}

/// Numbers at which lengths and counts break.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just(1 << 32),
        Just((1 << 31) - 1),
        any::<u64>(),
        0..10_000u64,
    ]
}

fn changed(mut bytes: Vec<u8>, changes: Vec<Change>) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        match change {
            Change::Byte(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Change::Number(at, number) => {
                let at = at.index(bytes.len());
                for (place, byte) in bytes[at..].iter_mut().zip(number.to_le_bytes()) {
                    *place = byte;
                }
            }
            Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Change::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more);
            }
        }
    }
    bytes
}

/// Whatever comes out stays within what was there.
fn check(bytes: &[u8]) {
    let limits = Limits {
        header_bytes: 1 << 20,
        ..Limits::default()
    };
    let length = u64::try_from(bytes.len()).unwrap();
    match Header::parse(bytes, &limits) {
        Ok(Progress::Done(header)) => {
            // An entry has at least 24 bytes, a key 13, an element of an array 1.
            assert!(u64::try_from(header.tensors.len()).unwrap() <= length / 24);
            assert!(u64::try_from(header.metadata.0.len()).unwrap() <= length / 13);
            for value in header.metadata.0.values() {
                if let Value::Array(Array {
                    elements: Some(elements),
                    ..
                }) = value
                {
                    assert!(u64::try_from(elements.len()).unwrap() <= length);
                }
            }
            drop(Split::of(&header.metadata));
            for tensor in &header.tensors {
                assert!(tensor.bytes().is_none_or(|bytes| bytes.0 < 1 << 63));
            }
        }
        Ok(Progress::NeedMore { bytes: need }) => {
            assert!(need > length && need <= limits.header_bytes);
        }
        Err(error) => assert!(!error.field.is_empty() && !error.problem.is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_good_header_with_wrong_bytes_gets_an_answer(changes in vec(change(), 1..6)) {
        check(&changed(sample().header().unwrap(), changes));
    }

    #[test]
    fn random_bytes_get_an_answer(bytes in vec(any::<u8>(), 0..200)) {
        check(&bytes);
        let mut after_counts = b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        after_counts.extend(bytes);
        check(&after_counts);
    }

    #[test]
    fn what_a_prefix_is_told_holds_for_the_whole(cut: Index) {
        let bytes = sample().header().unwrap();
        let prefix = &bytes[..cut.index(bytes.len())];
        // A prefix of a good header is never called broken.
        prop_assert!(Header::parse(prefix, &Limits::default()).is_ok());
    }
}
