//! Names that leave, hide or collide: in tar and in zip.

use llmgw_bundle::{
    archive::inspect,
    error::{Ambiguity, Rule},
    limits::Limits,
};
use llmgw_core::units::Bytes;

use crate::{
    craft::{
        tar::{Block, tar},
        zip::{Entry, zip},
    },
    site::{Site, extracted, file, folder, refusal, refusal_within},
};

/// The rule that a file of this name breaks in both formats, and that it is the one that is named.
fn broken(name: &[u8]) -> Rule {
    let in_tar = refusal(&tar(&[
        Block::file("good", ""),
        Block::extension(b'L', name),
        Block::file("x", ""),
    ]));
    let in_zip = refusal(&zip(&[Entry::new("good", ""), Entry::new(name, "")]));
    assert_eq!(in_tar.0, in_zip.0);
    let shown = String::from_utf8_lossy(&name[..name.len().min(256)]).into_owned();
    assert_eq!(in_tar.1.as_ref(), Some(&shown));
    assert_eq!(in_zip.1.as_ref(), Some(&shown));
    in_tar.0
}

/// The rule that files of these two names break in both formats.
fn collision(one: &str, other: &str) -> Rule {
    let in_tar = refusal(&tar(&[Block::file(one, ""), Block::file(other, "")]));
    let mut second = Entry::new(other, "");
    second.flags = 1 << 11;
    let mut first = Entry::new(one, "");
    first.flags = 1 << 11;
    let in_zip = refusal(&zip(&[first, second]));
    assert_eq!(in_tar.0, in_zip.0);
    assert_eq!(in_tar.1.as_deref(), Some(other));
    in_tar.0
}

#[test]
fn an_absolute_name_is_refused() {
    for name in ["/etc/cron.d/x", "//x", "C:/windows", "c:x"] {
        assert_eq!(broken(name.as_bytes()), Rule::AbsoluteName, "{name}");
    }
}

#[test]
fn a_name_that_leaves_is_refused() {
    for name in [
        "../canary",
        "a/../../canary",
        "a/..",
        "..",
        "a//b",
        "a/./b",
        "././a",
    ] {
        assert_eq!(broken(name.as_bytes()), Rule::LeavingName, "{name}");
    }
}

#[test]
fn a_name_that_is_not_plain_text_is_refused() {
    for name in [
        &b"caf\xe9"[..],
        b"a\nb",
        b"a\x1b[2Jb",
        b"a\\..\\b",
        b"a\0b",
        b"a\x7f",
    ] {
        assert_eq!(broken(name), Rule::UnreadableName, "{name:?}");
    }
}

#[test]
fn a_name_is_at_most_as_long_as_linux_lets_it_be() {
    let long = ["x"; 2_049].join("/");
    assert_eq!(broken(long.as_bytes()), Rule::LongName(4_096));
    assert_eq!(broken("x".repeat(256).as_bytes()), Rule::LongPart(255));
    let part = "x".repeat(255);
    let fits = tar(&[Block::extension(b'L', &part), Block::file("x", "1")]);
    assert_eq!(extracted(&fits)[&part], file("1"));
}

#[test]
fn a_tree_is_at_most_so_deep() {
    assert_eq!(broken(["x"; 101].join("/").as_bytes()), Rule::TooDeep(100));
    let deep = ["x"; 100].join("/");
    assert_eq!(extracted(&zip(&[Entry::new(&deep, "1")]))[&deep], file("1"));
}

#[test]
fn the_same_name_twice_is_refused() {
    assert_eq!(collision("a/x", "a/x"), Rule::Duplicate);
    let folders = tar(&[Block::folder("a/"), Block::folder("a/")]);
    assert_eq!(refusal(&folders).0, Rule::Duplicate);
    let links = tar(&[Block::link("a", "b"), Block::link("a", "b")]);
    assert_eq!(refusal(&links).0, Rule::Duplicate);
}

#[test]
fn names_that_a_file_system_confuses_are_refused() {
    for (one, other) in [
        ("README", "readme"),
        ("a/x", "A/y"),
        ("caf\u{e9}", "cafe\u{301}"),
        ("\u{fb01}le", "file"),
        ("stra\u{df}e", "STRASSE"),
        ("\u{212a}", "k"),
        ("a\u{200d}", "a"),
    ] {
        assert_eq!(collision(one, other), Rule::SameFolded, "{one} {other}");
    }
}

#[test]
fn a_file_is_no_folder_whichever_came_first() {
    assert_eq!(collision("a", "a/b"), Rule::FileAsFolder);
    assert_eq!(collision("a/b", "a"), Rule::FileAsFolder);
}

#[test]
fn a_folder_may_come_after_what_is_in_it() {
    let tree = extracted(&tar(&[
        Block::file("a/b/c", "1"),
        Block::folder("a/b"),
        Block::folder("a/"),
    ]));
    assert_eq!(tree["a"], folder());
    assert_eq!(tree["a/b"], folder());
    assert_eq!(tree["a/b/c"], file("1"));
}

#[test]
fn a_tar_of_the_folder_that_one_is_in_extracts_as_itself() {
    let tree = extracted(&tar(&[Block::folder("./"), Block::file("./a", "1")]));
    assert_eq!(
        tree.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), file("1"))]
    );
}

#[test]
fn the_folder_that_all_are_in_is_no_file() {
    for block in [
        Block::file("./", ""),
        Block::file(".", ""),
        Block::link("./", "a"),
    ] {
        assert!(matches!(
            refusal(&tar(&[block])).0,
            Rule::Ambiguous(Ambiguity::Folder) | Rule::LeavingName
        ),);
    }
}

#[test]
fn the_folders_that_names_imply_count_as_entries() {
    let mut limits = Limits::default();
    limits.entries = 3;
    let archive = tar(&[Block::file("a/b/c", "")]);
    Site::new(&archive).extract(limits).unwrap();
    let archive = tar(&[Block::file("a/b/c/d", "")]);
    assert_eq!(refusal_within(&archive, limits).0, Rule::TooManyEntries(3));
}

#[test]
fn names_and_targets_together_are_bounded() {
    let mut limits = Limits::default();
    limits.text = Bytes(10);
    let archive = |target| tar(&[Block::file("a/bc", ""), Block::link("d", target)]);
    Site::new(&archive("123456")).extract(limits).unwrap();
    let refused = refusal_within(&archive("1234567"), limits);
    assert_eq!(refused.0, Rule::TooMuchText(Bytes(10)));
}

#[test]
fn a_zip_name_beyond_ascii_must_be_said_to_be_unicode() {
    let name = "caf\u{e9}";
    let mut plain = Entry::new(name, "1");
    assert_eq!(refusal(&zip(&[plain.clone()])).0, Rule::UnreadableName);
    let mut flagged = plain.clone();
    flagged.flags = 1 << 11;
    assert_eq!(extracted(&zip(&[flagged]))[name], file("1"));
    let field = |crc: u32, name: &str| {
        let body = [&[1], &crc.to_le_bytes()[..], name.as_bytes()].concat();
        let length = u16::try_from(body.len()).unwrap().to_le_bytes();
        [&b"up"[..], &length, &body].concat()
    };
    let crc = crate::craft::zip::crc(name.as_bytes());
    plain.extra = field(crc, name);
    assert_eq!(extracted(&zip(&[plain.clone()]))[name], file("1"));
    for other in [field(crc, "cafe"), field(crc ^ 1, name)] {
        plain.extra = other;
        assert_eq!(refusal(&zip(&[plain.clone()])).0, Rule::UnreadableName);
    }
}

#[test]
fn a_listing_names_what_extracting_would_make() {
    let site = Site::new(&tar(&[
        Block::folder("a"),
        Block::file("a/b", "12").mode(0o700),
        Block::link("a/c", "b"),
    ]));
    let listing = inspect(&site.archive, &Limits::default()).unwrap();
    assert_eq!(listing.bytes, Bytes(2));
    assert_eq!(listing.top.as_deref(), Some("a"));
    let json = serde_json::to_value(&listing.entries).unwrap();
    let expected = serde_json::json!([
        {"path": "a", "kind": "folder"},
        {"path": "a/b", "kind": "file", "bytes": 2, "executable": true},
        {"path": "a/c", "kind": "link", "target": "b"},
    ]);
    assert_eq!(json, expected);
}
