//! One member out of a zip archive: what an archive may do to whoever takes one, and what it is answered with.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use llmgw_bundle::{
    archive::{Member, extract_member},
    error::{ArchiveError, Rule},
    limits::Limits,
};
use llmgw_core::{
    error::{Code, Coded},
    units::Bytes,
};
use proptest::prelude::*;
use tempfile::TempDir;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::craft::zip::{Entry, zip as archive};

const MEMBER: &str = "pkg/weights.gguf";

fn extract(bytes: &[u8], limits: &Limits) -> Result<(Member, Vec<u8>), ArchiveError> {
    let (_directory, path) = stored(bytes);
    let mut out = Vec::new();
    extract_member(&path, MEMBER, &mut out, limits).map(|member| (member, out))
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.whl");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// The rule that an archive of these entries breaks, and the entry that is named.
fn broken(entries: &[Entry]) -> (Rule, String) {
    match extract(&archive(entries), &Limits::default()) {
        Err(error @ ArchiveError::Refused { rule, .. }) => {
            assert_eq!(error.code(), Code::VerificationFailed);
            (rule, error.to_string())
        }
        other => panic!("{other:?}"),
    }
}

fn good() -> Entry {
    Entry::new(MEMBER, b"GGUF and so on")
}

fn deflated(body: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    zip.start_file(MEMBER, options).unwrap();
    zip.write_all(body).unwrap();
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_member_arrives_as_it_was_packed() {
    for bytes in [
        archive(&[Entry::new("pkg/", b""), good()]),
        deflated(b"GGUF and so on"),
    ] {
        let (member, out) = extract(&bytes, &Limits::default()).unwrap();
        assert_eq!(out, b"GGUF and so on");
        assert_eq!(
            member.sha256,
            llmgw_bundle::digest::digest(&out[..]).unwrap().sha256
        );
        assert_eq!(member.bytes, Bytes(14));
    }
}

#[test]
fn a_member_that_is_not_there_is_named() {
    let error = extract(&archive(&[Entry::new("a", b"")]), &Limits::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(r#"has no entry "pkg/weights.gguf""#),
        "{error}"
    );
    assert_eq!(error.code(), Code::NotFound);
}

#[test]
fn an_absolute_name_spoils_the_archive() {
    for name in ["/etc/passwd", "C:/windows"] {
        let (rule, text) = broken(&[good(), Entry::new(name, b"")]);
        assert_eq!(rule, Rule::AbsoluteName);
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_name_that_leaves_its_place_spoils_the_archive() {
    for name in ["../x", "a/../../x", "a//b", "./a", "a/..", "", "a/b/../"] {
        let (rule, text) = broken(&[good(), Entry::new(name, b"")]);
        assert_eq!(rule, Rule::LeavingName, "{name:?}");
        assert!(text.contains(&format!("{name:?}")), "{text}");
    }
}

#[test]
fn a_name_that_reads_differently_elsewhere_spoils_the_archive() {
    for name in ["a\\..\\b", "a\0b", "a\nb"] {
        let (rule, _) = broken(&[good(), Entry::new(name, b"")]);
        assert_eq!(rule, Rule::UnreadableName, "{name:?}");
    }
    let latin = Entry {
        name: b"caf\xe9".to_vec(),
        ..good()
    };
    assert_eq!(broken(&[good(), latin]).0, Rule::UnreadableName);
}

#[test]
fn a_name_of_any_length_is_refused_and_shown_short() {
    let long: &'static str = "x".repeat(5_000).leak();
    let (rule, text) = broken(&[good(), Entry::new(long, b"")]);
    assert_eq!(rule, Rule::LongName(4_096));
    assert!(text.len() < 400, "{}", text.len());
}

#[test]
fn a_second_member_of_the_same_name_spoils_the_archive() {
    let second = Entry::new(MEMBER, b"other bytes");
    let (rule, text) = broken(&[good(), second]);
    assert_eq!(rule, Rule::Duplicate);
    assert!(text.contains(MEMBER), "{text}");
}

#[test]
fn two_other_entries_of_the_same_name_spoil_the_archive() {
    let (rule, text) = broken(&[Entry::new("a", b"1"), good(), Entry::new("a", b"2")]);
    assert_eq!(rule, Rule::Duplicate);
    assert!(text.contains(r#""a""#), "{text}");
}

#[test]
fn a_local_header_that_names_another_file_spoils_the_archive() {
    let cloaked = Entry {
        local_name: Some(b"pkg/weights.evil".to_vec()),
        ..good()
    };
    let (rule, text) = broken(&[cloaked]);
    assert_eq!(rule, Rule::LocalHeader);
    assert!(text.contains(MEMBER), "{text}");
}

#[test]
fn an_encrypted_member_is_refused() {
    let entry = Entry { flags: 1, ..good() };
    assert_eq!(broken(&[entry]).0, Rule::Encrypted);
}

#[test]
fn a_member_of_another_method_is_refused() {
    let entry = Entry {
        method: 12,
        ..good()
    };
    assert_eq!(broken(&[entry]).0, Rule::Method);
}

#[test]
fn a_member_that_is_no_file_is_refused() {
    for (mode, rule) in [
        (0o120_777, Rule::NotAFile),
        (0o020_666, Rule::Device),
        (0o010_644, Rule::Pipe),
    ] {
        let entry = Entry { mode, ..good() };
        assert_eq!(broken(&[entry]).0, rule, "{mode:o}");
    }
}

#[test]
fn a_member_that_is_shorter_than_declared_is_refused() {
    let entry = Entry { size: 20, ..good() };
    let (rule, _) = broken(&[entry]);
    assert_eq!(
        rule,
        Rule::OtherSize {
            declared: Bytes(20),
            actual: Bytes(14)
        }
    );
}

#[test]
fn a_member_that_is_longer_than_declared_is_refused() {
    let entry = Entry { size: 10, ..good() };
    let rule = Rule::OtherSize {
        declared: Bytes(10),
        actual: Bytes(14),
    };
    assert_eq!(broken(&[entry]).0, rule);
    let packed = Entry {
        size: 10,
        ..Entry::deflated(MEMBER, b"GGUF and so on")
    };
    assert_eq!(broken(&[packed]).0, Rule::Longer(Bytes(10)));
}

#[test]
fn a_member_above_the_limit_is_refused_before_it_is_read() {
    let limits = Limits::default().with_member(Bytes(13));
    let error = extract(&archive(&[good()]), &limits).unwrap_err();
    let ArchiveError::Refused { rule, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(rule, Rule::TooLarge(Bytes(13)));
}

#[test]
fn a_bomb_is_refused_before_it_is_read() {
    let bomb = deflated(&vec![0; 8 << 20]);
    assert!(bomb.len() < 20_000);
    let error = extract(&bomb, &Limits::default()).unwrap_err();
    let ArchiveError::Refused { rule, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(rule, Rule::TooDense(200));
}

#[test]
fn a_bomb_that_declares_less_stops_where_it_should_end() {
    let mut bomb = deflated(&vec![0; 8 << 20]);
    let size = (8u32 << 20).to_le_bytes();
    let mut found = 0;
    for at in 0..bomb.len() - 4 {
        if bomb[at..at + 4] == size {
            bomb[at..at + 4].copy_from_slice(&1_000u32.to_le_bytes());
            found += 1;
        }
    }
    assert_eq!(found, 2, "the local header and the directory");
    let (_directory, path) = stored(&bomb);
    let mut out = Vec::new();
    let error = extract_member(&path, MEMBER, &mut out, &Limits::default()).unwrap_err();
    let ArchiveError::Refused { rule, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(rule, Rule::Longer(Bytes(1_000)));
    assert!(out.len() <= 1_000, "{}", out.len());
}

#[test]
fn more_entries_than_allowed_are_not_looked_at() {
    let mut limits = Limits::default();
    limits.entries = 1;
    let error = extract(&archive(&[good(), Entry::new("/", b"")]), &limits).unwrap_err();
    assert!(
        matches!(
            error,
            ArchiveError::RefusedWhole {
                rule: Rule::TooManyEntries(1),
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_truncated_archive_is_not_a_whole_one() {
    let bytes = archive(&[good()]);
    for length in 0..bytes.len() {
        let error = extract(&bytes[..length], &Limits::default()).unwrap_err();
        assert!(
            matches!(error, ArchiveError::NotWhole { .. }),
            "{length}: {error:?}"
        );
    }
}

#[test]
fn bytes_before_the_archive_are_refused() {
    let bytes = [b"#!/bin/sh\n", &archive(&[good()])[..]].concat();
    let error = extract(&bytes, &Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::NotWhole { .. }), "{error:?}");
}

#[test]
fn a_changed_byte_of_the_member_is_noticed() {
    let mut bytes = deflated(b"GGUF and so on");
    let name = bytes
        .windows(MEMBER.len())
        .position(|window| window == MEMBER.as_bytes())
        .expect("the local header names it");
    bytes[name + MEMBER.len() + 4] ^= 1;
    let error = extract(&bytes, &Limits::default()).unwrap_err();
    assert!(
        matches!(
            error,
            ArchiveError::Damaged { .. } | ArchiveError::Refused { .. }
        ),
        "{error:?}"
    );
}

#[test]
fn a_full_disk_is_told_apart_from_a_bad_archive() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (_directory, path) = stored(&archive(&[good()]));
    let error = extract_member(&path, MEMBER, &mut Full, &Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::Write { .. }), "{error:?}");
    assert_eq!(error.code(), Code::Internal);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(extract(&bytes, &Limits::default()).is_err());
    }

    #[test]
    fn random_changes_never_panic_and_never_give_other_bytes(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        pack in any::<bool>(),
    ) {
        let mut bytes = if pack { deflated(b"GGUF and so on") } else { archive(&[good()]) };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((member, out)) = extract(&bytes, &Limits::default()) {
            prop_assert_eq!(member.bytes.0, u64::try_from(out.len()).unwrap());
            prop_assert_eq!(out, b"GGUF and so on");
        }
    }
}
