//! What a tar header may say, and what it may not.

use llmgw_bundle::{
    error::{Ambiguity, Rule},
    limits::Limits,
};
use llmgw_core::units::Bytes;

use crate::{
    craft::tar::{Block, open, tar},
    site::{Site, extracted, file, folder, link, program, refusal, refusal_within},
};

/// The rule that this block breaks after a good file, and that it is named.
fn broken(block: Block) -> Rule {
    let (rule, entry) = refusal(&tar(&[Block::file("good", "1"), block]));
    assert_eq!(entry.as_deref(), Some("x"));
    rule
}

#[test]
fn what_is_no_file_folder_or_symbolic_link_is_refused() {
    for (flag, rule) in [
        (b'1', Rule::HardLink),
        (b'3', Rule::Device),
        (b'4', Rule::Device),
        (b'6', Rule::Pipe),
        (b'7', Rule::UnknownKind),
        (b'S', Rule::Sparse),
        (b'D', Rule::UnknownKind),
        (b'M', Rule::UnknownKind),
        (b'V', Rule::UnknownKind),
        (b'X', Rule::UnknownKind),
        (b'N', Rule::UnknownKind),
        (b'A', Rule::UnknownKind),
        (b'8', Rule::UnknownKind),
        (0xff, Rule::UnknownKind),
    ] {
        assert_eq!(broken(Block::of_type(flag, "x", "good")), rule, "{flag}");
    }
}

#[test]
fn bits_that_lend_rights_are_refused() {
    for mode in [0o4755, 0o2755, 0o1755, 0o104_755] {
        assert_eq!(
            broken(Block::file("x", "").mode(mode)),
            Rule::SetId,
            "{mode:o}"
        );
    }
    assert_eq!(broken(Block::folder("x").mode(0o2755)), Rule::SetId);
    assert_eq!(broken(Block::folder("x").mode(0o1777)), Rule::SetId);
}

#[test]
fn modes_are_those_of_programs_or_of_files() {
    let tree = extracted(&tar(&[
        Block::file("secret", "1").mode(0o600),
        Block::file("none", "2").mode(0),
        Block::file("open", "3").mode(0o666),
        Block::file("program", "4").mode(0o100_700),
        Block::file("others", "5").mode(0o011),
        Block::folder("closed").mode(0),
        Block::folder("open-folder").mode(0o777),
    ]));
    for (name, there) in [
        ("secret", file("1")),
        ("none", file("2")),
        ("open", file("3")),
        ("program", program("4")),
        ("others", file("5")),
        ("closed", folder()),
        ("open-folder", folder()),
    ] {
        assert_eq!(tree[name], there, "{name}");
    }
}

#[test]
fn a_header_that_is_not_what_its_checksum_is_of_is_refused() {
    let spoilt = Block::file("x", "").spoil(|header| header[101] = b'7');
    assert_eq!(broken(spoilt), Rule::HeaderChecksum);
}

#[test]
fn a_size_that_is_no_number_is_refused() {
    for edit in [
        (|header| header[124..136].copy_from_slice(b"0000000000x\0")) as fn(&mut [u8; 512]),
        |header| header[124..136].copy_from_slice(b"-0000000001\0"),
        |header| header[124..136].fill(0xff),
        |header| {
            header[124..136].fill(0);
            header[124] = 0x80;
            header[125] = 1;
        },
    ] {
        assert_eq!(broken(Block::file("x", "").edit(edit)), Rule::HeaderNumber);
    }
}

#[test]
fn a_size_in_binary_is_read() {
    let binary = Block::file("x", "12").edit(|header| {
        header[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x02");
    });
    assert_eq!(extracted(&tar(&[binary]))["x"], file("12"));
}

#[test]
fn a_member_larger_than_allowed_is_refused_before_it_is_read() {
    let huge = Block::file("x", "").says(4 << 30);
    let limits = Limits::default().with_member(Bytes::gib(1));
    let archive = tar(&[huge]);
    assert_eq!(
        refusal_within(&archive, limits).0,
        Rule::TooLarge(Bytes::gib(1))
    );
}

#[test]
fn members_larger_than_allowed_in_all_are_refused() {
    let archive = tar(&[Block::file("a", "123"), Block::file("x", "456")]);
    let limits = Limits::default().with_total(Bytes(5));
    let refused = refusal_within(&archive, limits);
    assert_eq!(refused, (Rule::TooMuch(Bytes(5)), Some("x".to_owned())));
    Site::new(&archive)
        .extract(Limits::default().with_total(Bytes(6)))
        .unwrap();
}

#[test]
fn a_size_that_is_said_twice_differently_is_refused() {
    // The body of the first entry of one reader is the headers that another finds.
    let blocks = [Block::pax(b'x', &[("size", "1024")]), Block::file("x", "1")];
    let refused = refusal(&tar(&blocks));
    assert_eq!(
        refused,
        (Rule::Ambiguous(Ambiguity::Size), Some("x".to_owned()))
    );
    let same = [Block::pax(b'x', &[("size", "2")]), Block::file("x", "12")];
    assert_eq!(extracted(&tar(&same))["x"], file("12"));
    let hidden = [
        Block::pax(b'x', &[("size", "2")]),
        Block::file("x", "12").says(0),
    ];
    assert_eq!(refusal(&tar(&hidden)).0, Rule::Ambiguous(Ambiguity::Size));
}

#[test]
fn a_name_that_is_said_twice_is_refused() {
    let blocks = [
        Block::extension(b'L', b"one\0"),
        Block::pax(b'x', &[("path", "two")]),
        Block::file("x", ""),
    ];
    assert_eq!(refusal(&tar(&blocks)).0, Rule::Ambiguous(Ambiguity::Name));
    let blocks = [
        Block::extension(b'L', b"one"),
        Block::extension(b'L', b"two"),
        Block::file("x", ""),
    ];
    assert_eq!(refusal(&tar(&blocks)).0, Rule::ExtendedHeader);
    let blocks = [
        Block::pax(b'x', &[("path", "a"), ("path", "b")]),
        Block::file("x", ""),
    ];
    assert_eq!(refusal(&tar(&blocks)).0, Rule::ExtendedHeader);
}

#[test]
fn long_names_of_both_forms_hold_for_the_next_entry_only() {
    let long = ["x".repeat(200), "y".repeat(200)].join("/");
    let target = "z".repeat(150);
    let other = "w".repeat(120);
    let tree = extracted(&tar(&[
        Block::extension(b'L', format!("{long}\0")),
        Block::file("cut", "1"),
        Block::file("a", "2"),
        Block::pax(
            b'x',
            &[("path", &other), ("linkpath", &target), ("mtime", "1.5")],
        ),
        Block::link("cut", "cut"),
        Block::extension(b'K', format!("{target}\0")),
        Block::link("b", "cut"),
    ]));
    assert_eq!(tree[&long], file("1"));
    assert_eq!(tree["a"], file("2"));
    assert_eq!(tree[&other], link(&target));
    assert_eq!(tree["b"], link(&target));
}

#[test]
fn files_with_holes_are_refused_in_all_forms() {
    for (key, value) in [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.size", "10"),
        ("GNU.sparse.map", "0,1"),
        ("SCHILY.realsize", "10"),
    ] {
        let blocks = [Block::pax(b'x', &[(key, value)]), Block::file("x", "")];
        assert_eq!(refusal(&tar(&blocks)).0, Rule::Sparse, "{key}");
    }
}

#[test]
fn a_header_for_all_entries_may_say_nothing_of_them() {
    let comment = Block::pax(
        b'g',
        &[("comment", "6dcd4ce23d88e2ee95838f7b014b6284f49e7f16")],
    );
    let tree = extracted(&tar(&[comment, Block::file("x", "1")]));
    assert_eq!(tree["x"], file("1"));
    for key in ["path", "linkpath", "size", "GNU.sparse.size", "hdrcharset"] {
        let blocks = [Block::pax(b'g', &[(key, "1")]), Block::file("x", "1")];
        assert_eq!(refusal(&tar(&blocks)).0, Rule::GlobalHeader, "{key}");
    }
}

#[test]
fn an_extended_header_that_is_malformed_or_of_nothing_is_refused() {
    for body in [
        &b"12 path=x\n"[..],
        b"9 path=xy",
        b"nonsense",
        b"5 =x\n",
        b"9999999 path=x\n",
    ] {
        let blocks = [Block::extension(b'x', body), Block::file("x", "")];
        assert_eq!(refusal(&tar(&blocks)).0, Rule::ExtendedHeader, "{body:?}");
    }
    let alone = tar(&[Block::file("x", ""), Block::pax(b'x', &[("path", "y")])]);
    assert_eq!(refusal(&alone), (Rule::ExtendedHeader, None));
    let twice = [
        Block::pax(b'x', &[("mtime", "1")]),
        Block::pax(b'x', &[("mtime", "1")]),
        Block::file("x", ""),
    ];
    assert_eq!(refusal(&tar(&twice)).0, Rule::ExtendedHeader);
    let huge = Block::extension(b'x', b"").says(2 << 20);
    assert_eq!(refusal(&tar(&[huge])).0, Rule::ExtendedHeader);
}

#[test]
fn extended_headers_without_end_are_refused() {
    let mut limits = Limits::default();
    limits.entries = 10;
    let comments = vec![Block::pax(b'g', &[("comment", "x")]); 40];
    assert_eq!(
        refusal_within(&tar(&comments), limits).0,
        Rule::TooManyEntries(10)
    );
}

#[test]
fn a_header_of_no_known_format_is_refused() {
    for edit in [
        (|header| header[257..265].copy_from_slice(b"ustar\x0001")) as fn(&mut [u8; 512]),
        |header| header[257..265].copy_from_slice(b"ustar\0  "),
        |header| header[257..265].copy_from_slice(b"other\0  "),
        |header| header[508..].copy_from_slice(b"tar\0"),
    ] {
        let rule = broken(Block::file("x", "").edit(edit));
        assert_eq!(rule, Rule::Ambiguous(Ambiguity::Format));
    }
}

#[test]
fn a_prefix_that_only_some_look_for_is_refused() {
    let gnu = Block::file("x", "").edit(|header| {
        header[257..265].copy_from_slice(b"ustar  \0");
        header[345..350].copy_from_slice(b"../..");
    });
    assert_eq!(broken(gnu), Rule::Ambiguous(Ambiguity::Prefix));
    let old = Block::file("x", "").edit(|header| {
        header[257..265].fill(0);
        header[345..350].copy_from_slice(b"../..");
    });
    assert_eq!(broken(old), Rule::Ambiguous(Ambiguity::Prefix));
}

#[test]
fn a_prefix_of_ustar_is_a_part_of_the_name() {
    let block = Block::file("x", "1").edit(|header| header[345..348].copy_from_slice(b"a/b"));
    assert_eq!(extracted(&tar(&[block]))["a/b/x"], file("1"));
    let block = Block::file("x", "1").edit(|header| header[345..347].copy_from_slice(b".."));
    assert_eq!(
        refusal(&tar(&[block])),
        (Rule::LeavingName, Some("../x".to_owned()))
    );
}

#[test]
fn an_old_header_makes_a_folder_by_its_slash() {
    let old = |name, body| {
        Block::file(name, body).edit(|header| {
            header[156] = 0;
            header[257..265].fill(0);
        })
    };
    let tree = extracted(&tar(&[old("a/", ""), old("a/b", "1")]));
    assert_eq!(tree["a"], folder());
    assert_eq!(tree["a/b"], file("1"));
}

#[test]
fn a_folder_by_name_or_by_kind_alone_is_refused() {
    let rule = Rule::Ambiguous(Ambiguity::Folder);
    for block in [
        Block::file("x/", ""),
        Block::folder("x/").says(512),
        Block::link("x", "good").says(512),
        Block::link("x/", "good"),
    ] {
        assert_eq!(refusal(&tar(&[Block::file("good", ""), block])).0, rule);
    }
}

#[test]
fn an_archive_without_its_end_is_refused_wherever_it_was_cut() {
    let whole = tar(&[
        Block::file("a", "1"),
        Block::pax(b'x', &[("mtime", "1")]),
        Block::file("b", "2"),
    ]);
    for length in (512..whole.len()).step_by(64) {
        let (rule, _) = refusal(&whole[..length]);
        assert_eq!(rule, Rule::CutOff, "{length}");
    }
    assert_eq!(refusal(&open(&[Block::file("a", "1")])).0, Rule::CutOff);
}

#[test]
fn a_member_that_is_cut_short_is_named() {
    let cut = open(&[Block::file("a", "1"), Block::file("x", "1").says(5_000)]);
    assert_eq!(refusal(&cut), (Rule::CutOff, Some("x".to_owned())));
}

#[test]
fn what_follows_the_end_is_refused() {
    let one = tar(&[Block::file("a", "1")]);
    let two = [one.clone(), one.clone()].concat();
    assert_eq!(refusal(&two), (Rule::Concatenated, None));
    let filled = [one.clone(), vec![0; 9_000], one.clone()].concat();
    assert_eq!(refusal(&filled).0, Rule::AfterEnd);
    let blocks = [one.clone(), vec![0; 9_216], one.clone()].concat();
    assert_eq!(refusal(&blocks).0, Rule::Concatenated);
    let junk = [one.clone(), b"x".to_vec()].concat();
    assert_eq!(refusal(&junk).0, Rule::AfterEnd);
    let lone = [open(&[Block::file("a", "1")]), vec![0; 512], one.clone()].concat();
    assert_eq!(refusal(&lone).0, Rule::Concatenated);
    let zeros = [one, vec![0; 2 << 20]].concat();
    assert_eq!(refusal(&zeros).0, Rule::AfterEnd);
}

#[test]
fn a_record_filled_with_zeros_is_fine_and_so_is_an_archive_of_nothing() {
    let filled = [tar(&[Block::file("a", "1")]), vec![0; 10_240 + 7]].concat();
    assert_eq!(extracted(&filled)["a"], file("1"));
    assert!(extracted(&vec![0; 10_240]).is_empty());
}
