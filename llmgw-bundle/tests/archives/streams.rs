//! Compressed streams, and what a file says that it is.

use llmgw_bundle::{
    archive::{Format, inspect},
    error::{ArchiveError, Rule},
    limits::Limits,
};
use llmgw_core::units::Bytes;

use crate::{
    craft::{
        gz,
        tar::{Block, tar},
        zip::{Entry, zip},
        zst,
    },
    site::{Site, extracted, file, refusal, refusal_within},
};

fn plain() -> Vec<u8> {
    tar(&[Block::file("a", "1"), Block::file("b", vec![7; 100_000])])
}

fn each() -> [(Format, Vec<u8>); 4] {
    [
        (Format::Tar, plain()),
        (Format::TarGz, gz(&plain())),
        (Format::TarZst, zst(&plain())),
        (
            Format::Zip,
            zip(&[Entry::new("a", "1"), Entry::deflated("b", &[7; 100_000])]),
        ),
    ]
}

#[test]
fn all_formats_make_the_same_tree_and_are_told_by_their_content() {
    for (format, archive) in each() {
        let site = Site::new(&archive);
        let done = site.extract(Limits::default()).unwrap();
        assert_eq!(done.format, format);
        assert_eq!((done.entries, done.bytes), (2, Bytes(100_001)));
        assert_eq!(done.top, None);
        assert_eq!(site.tree()["a"], file("1"), "{format}");
        assert_eq!(site.tree()["b"], file(vec![7; 100_000]), "{format}");
    }
}

#[test]
fn a_name_that_says_another_format_is_refused() {
    for (format, archive) in each() {
        for name in [
            "a.tar",
            "a.tar.gz",
            "a.tgz",
            "a.tar.zst",
            "a.zip",
            "a.whl",
            "a.tar.xz",
        ] {
            let site = Site::named(name, &archive);
            let ending = name.strip_prefix("a.").unwrap();
            let own = match ending {
                "tgz" => "tar.gz",
                "whl" => "zip",
                ending => ending,
            };
            match site.extract(Limits::default()) {
                Ok(_) => assert_eq!(own, format.to_string(), "{name}"),
                Err(ArchiveError::OtherFormat { says, holds, .. }) => {
                    assert_ne!(own, format.to_string(), "{name}");
                    assert_eq!((says, holds), (ending, format));
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

#[test]
fn what_is_no_archive_is_said_to_be_none() {
    for bytes in [
        &b""[..],
        b"x",
        b"\x1f\x8b\x09",
        b"\xfd7zXZ\0",
        b"BZh91AY",
        &[1; 600],
        b"PK\x01\x02",
    ] {
        let error = Site::new(bytes).extract(Limits::default()).unwrap_err();
        assert!(
            matches!(error, ArchiveError::UnknownFormat { .. }),
            "{error:?}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let error = inspect(folder.path(), &Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::Open { .. }), "{error:?}");
}

#[test]
fn a_stream_that_holds_no_tar_is_refused() {
    for packed in [gz(&[1; 600]), zst(&[1; 600])] {
        assert_eq!(refusal(&packed).0, Rule::HeaderChecksum);
    }
    for packed in [gz(b""), zst(b"")] {
        assert_eq!(refusal(&packed).0, Rule::CutOff);
    }
    assert_eq!(refusal(&gz(&gz(&plain()))).0, Rule::CutOff);
}

#[test]
fn concatenated_streams_are_refused() {
    for pack in [gz, zst] {
        let one = pack(&plain());
        assert_eq!(
            refusal(&[one.clone(), one.clone()].concat()),
            (Rule::Concatenated, None)
        );
        let whole = plain();
        let (head, tail) = whole.split_at(1_024);
        let halves = [pack(head), pack(tail)].concat();
        assert_eq!(refusal(&halves).0, Rule::CutOff);
        let empty_behind = [one, pack(b"")].concat();
        assert_eq!(refusal(&empty_behind).0, Rule::Concatenated);
    }
}

#[test]
fn bytes_behind_a_stream_are_refused() {
    for pack in [gz, zst] {
        for behind in [&b"x"[..], &[0; 512], b"\x50\x2a\x4d\x18\0\0\0\0"] {
            let archive = [&pack(&plain())[..], behind].concat();
            assert_eq!(refusal(&archive), (Rule::AfterEnd, None));
        }
        let two = [plain(), plain()].concat();
        assert_eq!(refusal(&pack(&two)), (Rule::Concatenated, None));
    }
}

#[test]
fn a_stream_is_refused_wherever_it_was_cut() {
    for pack in [gz, zst] {
        let whole = pack(&plain());
        for length in 4..whole.len() {
            let site = Site::new(&whole[..length]);
            let error = site.extract(Limits::default()).unwrap_err();
            assert!(
                matches!(
                    error,
                    ArchiveError::NotWhole { .. }
                        | ArchiveError::Damaged { .. }
                        | ArchiveError::RefusedWhole {
                            rule: Rule::CutOff,
                            ..
                        }
                        | ArchiveError::Refused {
                            rule: Rule::CutOff,
                            ..
                        }
                ),
                "{length}: {error:?}"
            );
        }
    }
}

#[test]
fn a_changed_byte_of_a_stream_is_noticed_or_changes_nothing() {
    // Of gzip's header, the time and the system matter to nobody; zstd's has nothing of the kind.
    for (packed, from) in [(gz(&plain()), 10), (zst(&plain()), 4)] {
        for at in from..packed.len() {
            let mut changed = packed.clone();
            changed[at] ^= 0x10;
            let site = Site::new(&changed);
            // Codes that are declared and never used say nothing.
            if site.extract(Limits::default()).is_ok() {
                assert_eq!(site.tree()["a"], file("1"), "{at}");
                assert_eq!(site.tree()["b"], file(vec![7; 100_000]), "{at}");
            }
        }
    }
}

#[test]
fn a_bomb_is_refused_by_the_whole_stream() {
    // No file is dense for itself: the stream is.
    let files: Vec<Block> = (0..64)
        .map(|number| Block::file(number.to_string(), vec![0; 256 << 10]))
        .collect();
    let bomb = tar(&files);
    for packed in [gz(&bomb), zst(&bomb)] {
        assert!(packed.len() < 50_000, "{}", packed.len());
        assert_eq!(refusal(&packed).0, Rule::TooDense(200));
    }
    // Without compression it is no bomb.
    assert_eq!(extracted(&bomb).len(), 64);
}

#[test]
fn a_bomb_of_trailing_zeros_is_refused() {
    let bomb = [plain(), vec![0; 3 << 20]].concat();
    for packed in [gz(&bomb), zst(&bomb)] {
        let (rule, _) = refusal(&packed);
        assert!(
            matches!(rule, Rule::AfterEnd | Rule::TooDense(200)),
            "{rule:?}"
        );
    }
}

#[test]
fn a_window_that_takes_more_memory_than_allowed_is_refused_before_it_is_made() {
    // Frame header (RFC 8878, section 3.1.1.1): no single segment, window descriptor with the largest exponent.
    let wide = b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00".to_vec();
    assert_eq!(refusal(&wide), (Rule::WideWindow(Bytes::mib(128)), None));
    let mut limits = Limits::default();
    limits.window = Bytes(1_024);
    let packed = zst(&plain());
    assert_eq!(
        refusal_within(&packed, limits).0,
        Rule::WideWindow(Bytes(1_024))
    );
}

#[test]
fn a_stream_that_needs_a_dictionary_is_refused() {
    let packed = b"\x28\xb5\x2f\xfd\x21\x07\x01\x01\x00\x00".to_vec();
    let error = Site::new(&packed).extract(Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::NotWhole { .. }), "{error:?}");
}
