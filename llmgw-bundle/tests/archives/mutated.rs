//! Good archives with random changes: whatever becomes of them, nothing is written outside, nothing is left of
//! what is refused, and nobody panics.

use llmgw_bundle::{archive::extract_member, limits::Limits};
use llmgw_core::units::Bytes;
use proptest::prelude::*;

use crate::{
    craft::{
        gz,
        tar::{Block, tar},
        zip::{Entry, zip},
        zst,
    },
    site::Site,
};

#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        1 => index().prop_map(Change::Cut),
        1 => (index(), 1_usize..600).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (index(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (index(), 1_usize..600).prop_map(|(at, count)| Change::Repeat(at, count)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: Change) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match change {
        Change::Flip(at, byte) => {
            let at = at.index(length);
            bytes[at] ^= byte;
        }
        Change::Cut(at) => bytes.truncate(at.index(length)),
        Change::Remove(at, count) => {
            let at = at.index(length);
            bytes.drain(at..(at + count).min(length));
        }
        Change::Insert(at, new) => {
            let at = at.index(length);
            bytes.splice(at..at, new);
        }
        Change::Repeat(at, count) => {
            let at = at.index(length);
            let again = bytes[at..(at + count).min(length)].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let long = "n/".repeat(80) + "end";
    let plain = tar(&[
        Block::pax(b'g', &[("comment", "abc")]),
        Block::folder("a/"),
        Block::file("a/b", "content"),
        Block::extension(b'L', &long),
        Block::file("cut", "x"),
        Block::pax(b'x', &[("path", "pax/name"), ("size", "3")]),
        Block::file("cut", "123"),
        Block::link("a/l", "../a/b"),
    ]);
    let zipped = zip(&[
        Entry::new("a/", ""),
        Entry::new("a/b", "content"),
        Entry::deflated("c", &[7; 3_000]).streamed(),
        Entry::link("l", "a/b"),
    ]);
    vec![gz(&plain), zst(&plain), plain, zipped]
}

/// Small ones, so that a change can reach them.
fn limits() -> Limits {
    let mut limits = Limits::default()
        .with_member(Bytes::mib(1))
        .with_total(Bytes::mib(2));
    limits.entries = 100;
    limits.text = Bytes(10_000);
    limits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_changed_archive_does_no_harm(
        seed in 0_usize..4,
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let mut bytes = seeds().swap_remove(seed);
        for change in changes {
            apply(&mut bytes, change);
        }
        let site = Site::new(&bytes);
        // The site looks around itself for what should not be there.
        if let Ok(done) = site.extract(limits()) {
            prop_assert!(done.bytes.0 <= 2 << 20);
            prop_assert!(done.entries <= 100);
        }
        drop(extract_member(&site.archive, "a/b", &mut Vec::new(), &limits()));
    }

    #[test]
    fn random_bytes_behind_a_known_start_do_no_harm(
        start in prop::sample::select(vec![&b"PK\x03\x04"[..], b"PK\x05\x06", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b""]),
        rest in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let site = Site::new(&[start, &rest].concat());
        prop_assert!(site.extract(limits()).is_err());
    }
}
