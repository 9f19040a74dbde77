//! What a zip archive is made of, and what can be hidden in one.

use llmgw_bundle::{
    error::{Ambiguity, ArchiveError, Rule},
    limits::Limits,
};
use llmgw_core::units::Bytes;

use crate::{
    craft::zip::{Entry, end, zip},
    site::{Site, extracted, file, folder, program, refusal, refusal_within},
};

fn good() -> Entry {
    Entry::new("good", "1234")
}

/// The rule that this member breaks after a good one, and that it is named.
fn broken(entry: Entry) -> Rule {
    let shown = String::from_utf8(entry.name.clone()).unwrap();
    let (rule, named) = refusal(&zip(&[good(), entry]));
    assert_eq!(named, Some(shown));
    rule
}

fn not_whole(archive: &[u8]) {
    let error = Site::new(archive).extract(Limits::default()).unwrap_err();
    assert!(matches!(error, ArchiveError::NotWhole { .. }), "{error:?}");
}

#[test]
fn members_stored_deflated_and_streamed_extract() {
    let tree = extracted(&zip(&[
        Entry::new("a/", ""),
        Entry::new("a/stored", "1"),
        Entry::deflated("a/deflated", b"22"),
        Entry::deflated("streamed", b"333").streamed(),
        Entry::new("stored-streamed", "4444").streamed(),
        Entry {
            mode: 0o100_700,
            ..Entry::new("program", "5")
        },
    ]));
    assert_eq!(tree["a"], folder());
    assert_eq!(tree["a/stored"], file("1"));
    assert_eq!(tree["a/deflated"], file("22"));
    assert_eq!(tree["streamed"], file("333"));
    assert_eq!(tree["stored-streamed"], file("4444"));
    assert_eq!(tree["program"], program("5"));
}

#[test]
fn modes_of_other_systems_are_not_read() {
    let entry = Entry {
        host: 0,
        mode: 0o100_777,
        ..good()
    };
    assert_eq!(extracted(&zip(&[entry]))["good"], file("1234"));
}

#[test]
fn what_is_no_file_folder_or_symbolic_link_is_refused() {
    for (mode, rule) in [
        (0o020_644, Rule::Device),
        (0o060_644, Rule::Device),
        (0o010_644, Rule::Pipe),
        (0o140_644, Rule::Pipe),
        (0o150_644, Rule::UnknownKind),
        (0o104_755, Rule::SetId),
        (0o102_755, Rule::SetId),
        (0o101_755, Rule::SetId),
    ] {
        let entry = Entry {
            mode,
            ..Entry::new("x", "")
        };
        assert_eq!(broken(entry), rule, "{mode:o}");
    }
}

#[test]
fn a_folder_by_name_or_by_kind_alone_is_refused() {
    let rule = Rule::Ambiguous(Ambiguity::Folder);
    for (name, mode, body) in [
        ("x", 0o040_755, ""),
        ("x/", 0o100_644, ""),
        ("x/", 0o120_777, "good"),
        ("x/", 0o040_755, "bytes"),
        ("x/", 0, "bytes"),
    ] {
        let entry = Entry {
            mode,
            ..Entry::new(name, body)
        };
        assert_eq!(broken(entry), rule, "{name} {mode:o}");
    }
}

#[test]
fn what_is_encrypted_or_packed_otherwise_is_refused() {
    for flags in [1, 1 << 6, 1 << 13] {
        assert_eq!(
            broken(Entry {
                flags,
                ..Entry::new("x", "1")
            }),
            Rule::Encrypted
        );
    }
    for method in [1, 6, 9, 12, 14, 93, 95, 99] {
        assert_eq!(
            broken(Entry {
                method,
                ..Entry::new("x", "1")
            }),
            Rule::Method
        );
    }
    assert_eq!(
        broken(Entry {
            flags: 1 << 5,
            ..Entry::new("x", "1")
        }),
        Rule::Method
    );
}

#[test]
fn a_header_that_says_something_else_than_the_directory_is_refused() {
    let own = Entry::new("x", "1");
    let sizes = (own.crc, 1, own.size);
    for entry in [
        Entry {
            local_name: Some(b"y".to_vec()),
            ..own.clone()
        },
        Entry {
            local_flags: Some(1 << 11),
            ..own.clone()
        },
        Entry {
            local_sizes: Some((sizes.0 ^ 1, 1, 1)),
            ..own.clone()
        },
        Entry {
            local_sizes: Some((sizes.0, 0, 1)),
            ..own.clone()
        },
        Entry {
            local_sizes: Some((sizes.0, 1, 2)),
            ..own.clone()
        },
        Entry {
            local_sizes: Some((0, 0, 0)),
            ..own.clone()
        },
    ] {
        assert_eq!(broken(entry), Rule::LocalHeader);
    }
    let mut streamed = own.streamed();
    streamed.local_sizes = Some((0, 0, 9));
    assert_eq!(broken(streamed), Rule::LocalHeader);
}

#[test]
fn what_follows_a_streamed_member_must_be_its_sizes() {
    for at in [0, 4, 8, 12] {
        let mut entry = Entry::new("x", "1").streamed();
        entry.behind[at] ^= 1;
        assert_eq!(broken(entry), Rule::Between, "{at}");
    }
    let mut short = Entry::new("x", "1").streamed();
    short.behind.drain(..4);
    assert_eq!(extracted(&zip(&[short.clone()]))["x"], file("1"));
    short.behind.push(0);
    assert_eq!(broken(short), Rule::Between);
    let mut large = Entry::new("x", "1").streamed();
    large.behind.truncate(8);
    large.behind.extend(1u64.to_le_bytes());
    large.behind.extend(1u64.to_le_bytes());
    assert_eq!(extracted(&zip(&[large]))["x"], file("1"));
}

#[test]
fn bytes_between_members_are_refused() {
    let padded = Entry {
        behind: b"hidden".to_vec(),
        ..good()
    };
    assert_eq!(
        refusal(&zip(&[padded, Entry::new("x", "")])).0,
        Rule::Between
    );
    let late = Entry {
        shift: 4,
        ..Entry::new("x", "")
    };
    // Where the directory points there is no header; the gap before it is seen first.
    assert_eq!(refusal(&zip(&[good(), late])).0, Rule::Between);
    let mut early = zip(&[good()]);
    early.splice(0..0, *b"PK\x03\x04");
    let tail = early.len() - 6;
    let start = u32::from_le_bytes(early[tail..tail + 4].try_into().unwrap()) + 4;
    early[tail..tail + 4].copy_from_slice(&start.to_le_bytes());
    assert!(Site::new(&early).extract(Limits::default()).is_err());
}

#[test]
fn members_that_share_bytes_are_refused() {
    // The second begins inside the first: a quine of overlapping files unpacks to petabytes.
    let inner = zip(&[Entry::new("inner", "1")]);
    let local = &inner[..36];
    let outer = Entry::new("outer", local);
    let mut archive = zip(&[
        outer,
        Entry {
            shift: -36,
            ..Entry::new("inner", "1")
        },
    ]);
    let refused = refusal(&archive);
    assert_eq!(refused, (Rule::Overlap, Some("outer".to_owned())));
    // Two names of the same bytes.
    let at = archive
        .windows(4)
        .rposition(|window| window == b"PK\x01\x02")
        .unwrap();
    archive[at + 42..at + 46].fill(0);
    assert!(matches!(
        refusal(&archive).0,
        Rule::Overlap | Rule::LocalHeader
    ));
}

#[test]
fn bytes_before_and_behind_the_archive_are_refused() {
    let whole = zip(&[good()]);
    not_whole(&[&whole[..], b"x"].concat());
    not_whole(&[&whole[..], &[0; 100]].concat());
    not_whole(&[&b"PK\x03\x04"[..], &whole].concat());
    let two = [whole.clone(), whole].concat();
    not_whole(&two);
}

#[test]
fn an_archive_is_refused_wherever_it_was_cut() {
    let whole = zip(&[good(), Entry::deflated("x", b"1111111")]);
    for length in 4..whole.len() {
        not_whole(&whole[..length]);
    }
}

#[test]
fn a_comment_is_read_over_and_a_second_end_in_it_refused() {
    let mut whole = zip(&[good()]);
    let at = whole.len() - 22;
    let start = u32::try_from(at - 50).unwrap();
    whole.truncate(at);
    let with = |comment: &[u8]| [whole.clone(), end(1, 50, start, comment)].concat();
    assert_eq!(extracted(&with(b"made on a Monday"))["good"], file("1234"));
    let second = with(&end(1, 50, start, b""));
    assert_eq!(
        refusal(&second),
        (Rule::Ambiguous(Ambiguity::Directory), None)
    );
    let half = with(b"PK\x05\x06");
    assert_eq!(
        refusal(&half),
        (Rule::Ambiguous(Ambiguity::Directory), None)
    );
}

#[test]
fn an_archive_of_nothing_is_one() {
    assert!(extracted(&zip(&[])).is_empty());
}

#[test]
fn a_count_that_is_not_that_of_the_directory_is_refused() {
    for count in [0_u8, 1, 3] {
        let mut archive = zip(&[good(), Entry::new("x", "")]);
        let at = archive.len() - 22;
        archive[at + 8] = count;
        archive[at + 10] = count;
        not_whole(&archive);
    }
}

#[test]
fn bytes_that_are_not_those_of_the_checksum_are_refused() {
    for mut entry in [Entry::new("x", "12345"), Entry::deflated("x", &[7; 100])] {
        entry.crc ^= 1;
        let error = Site::new(&zip(&[good(), entry]))
            .extract(Limits::default())
            .unwrap_err();
        assert!(
            matches!(&error, ArchiveError::Damaged { entry, .. } if entry == "x"),
            "{error:?}"
        );
    }
}

#[test]
fn a_deflated_member_ends_where_it_says() {
    let mut behind = Entry::deflated("x", b"12345");
    behind.body.extend(b"hidden");
    assert_eq!(broken(behind), Rule::AfterEnd);
    let mut cut = Entry::deflated("x", b"12345");
    cut.body.pop();
    let error = Site::new(&zip(&[cut]))
        .extract(Limits::default())
        .unwrap_err();
    assert!(matches!(error, ArchiveError::Damaged { .. }), "{error:?}");
}

#[test]
fn many_members_of_one_bomb_are_refused_as_one() {
    // Each is small enough for itself.
    let mib = vec![0; 1 << 20];
    let bombs: Vec<Entry> = (0..8)
        .map(|number| Entry::deflated(number.to_string(), &mib))
        .collect();
    assert_eq!(refusal(&zip(&bombs)), (Rule::TooDense(200), None));
}

#[test]
fn limits_are_those_of_the_caller() {
    let archive = zip(&[good(), Entry::new("x", "12345")]);
    let limits = Limits::default();
    let refused = refusal_within(&archive, limits.with_member(Bytes(4)));
    assert_eq!(refused, (Rule::TooLarge(Bytes(4)), Some("x".to_owned())));
    let refused = refusal_within(&archive, limits.with_total(Bytes(8)));
    assert_eq!(refused, (Rule::TooMuch(Bytes(8)), Some("x".to_owned())));
    let mut few = limits;
    few.entries = 1;
    assert_eq!(
        refusal_within(&archive, few),
        (Rule::TooManyEntries(1), None)
    );
}
