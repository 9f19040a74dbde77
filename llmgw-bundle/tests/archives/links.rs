//! Links: what they may lead to, and what may stand where they stand.

use llmgw_bundle::error::Rule;

use crate::{
    craft::{
        tar::{Block, tar},
        zip::{Entry, zip},
    },
    site::{Site, extracted, file, link, options, refusal},
};

/// The rule that an archive of these links and a folder `a/b` with a file breaks in both formats.
fn broken(links: &[(&str, &str)]) -> (Rule, String) {
    let mut blocks = vec![Block::file("a/b/c", "1")];
    let mut entries = vec![Entry::new("a/b/c", "1")];
    for (name, target) in links {
        blocks.push(Block::link(name, target));
        entries.push(Entry::link(name, target));
    }
    let in_tar = refusal(&tar(&blocks));
    assert_eq!(refusal(&zip(&entries)), in_tar);
    // Whichever came first.
    blocks.reverse();
    entries.reverse();
    assert_eq!(refusal(&tar(&blocks)).0, in_tar.0);
    assert_eq!(refusal(&zip(&entries)).0, in_tar.0);
    (in_tar.0, in_tar.1.unwrap())
}

#[test]
fn a_link_that_leaves_is_refused() {
    for target in [
        "/etc/passwd",
        "../canary",
        "..",
        "a/../../canary",
        "nothing/../../x",
        "",
        "C:x",
    ] {
        let (rule, entry) = broken(&[("x", target)]);
        assert_eq!((rule, entry.as_str()), (Rule::LeavingLink, "x"), "{target}");
    }
    assert_eq!(broken(&[("a/b/x", "../../../canary")]).0, Rule::LeavingLink);
}

#[test]
fn a_link_that_leaves_through_another_link_is_refused() {
    // Each stays inside when it is looked at alone.
    let (rule, entry) = broken(&[("a/up", ".."), ("x", "a/up/../canary")]);
    assert_eq!((rule, entry.as_str()), (Rule::LeavingLink, "x"));
    let (rule, _) = broken(&[("deep", "a/b"), ("a/b/x", "../../deep/../../../canary")]);
    assert_eq!(rule, Rule::LeavingLink);
    let (rule, _) = broken(&[
        ("a/b/up", ".."),
        ("a/up", "b/up/.."),
        ("x", "a/up/../../canary"),
    ]);
    assert_eq!(rule, Rule::LeavingLink);
}

#[test]
fn a_link_through_a_link_of_another_case_is_refused_as_well() {
    assert_eq!(
        broken(&[("Up", "a/.."), ("x", "up/../canary")]).0,
        Rule::LeavingLink
    );
}

#[test]
fn a_link_that_leads_to_itself_is_refused() {
    assert_eq!(broken(&[("x", "x")]).0, Rule::EndlessLink);
    assert_eq!(broken(&[("x", "y"), ("y", "a/../x")]).0, Rule::EndlessLink);
    assert_eq!(broken(&[("x", "x/y")]).0, Rule::EndlessLink);
}

#[test]
fn a_link_of_more_steps_than_any_real_one_is_refused() {
    let long = "a/../".repeat(600) + "a";
    let blocks = [
        Block::file("a/b", ""),
        Block::extension(b'K', &long),
        Block::link("x", ""),
    ];
    assert_eq!(refusal(&tar(&blocks)).0, Rule::EndlessLink);
}

#[test]
fn nothing_stands_beneath_a_link_or_over_it() {
    for (second, rule) in [
        (Block::file("x/c", "2"), Rule::ThroughLink),
        (Block::folder("x/d"), Rule::ThroughLink),
        (Block::link("x/d", "c"), Rule::ThroughLink),
        (Block::file("x", "2"), Rule::OverLink),
        (Block::folder("x"), Rule::OverLink),
    ] {
        let blocks = [Block::file("a/b/c", "1"), Block::link("x", "a/b"), second];
        assert_eq!(refusal(&tar(&blocks)).0, rule);
    }
    let after = [Block::file("x/c", "1"), Block::link("x", "a")];
    assert_eq!(refusal(&tar(&after)).0, Rule::FileAsFolder);
}

#[test]
fn links_that_stay_inside_are_made_as_they_are() {
    let links = [
        ("lib/libx.so", "libx.so.1"),
        ("lib/libx.so.1", "libx.so.1.2"),
        ("bin/here", "./../lib/../bin"),
        ("top", "lib"),
        ("through", "top/libx.so"),
        ("dangling", "lib/missing/../gone"),
        ("self", "."),
    ];
    let mut blocks = vec![
        Block::file("lib/libx.so.1.2", "1"),
        Block::file("bin/x", "2"),
    ];
    let mut entries = vec![Entry::new("lib/libx.so.1.2", "1"), Entry::new("bin/x", "2")];
    for (name, target) in links {
        blocks.push(Block::link(name, target));
        entries.push(Entry::link(name, target));
    }
    let tree = extracted(&tar(&blocks));
    assert_eq!(extracted(&zip(&entries)), tree);
    for (name, target) in links {
        assert_eq!(tree[name], link(target), "{name}");
    }
    assert_eq!(tree["lib/libx.so.1.2"], file("1"));
}

#[test]
fn a_link_that_stays_only_while_the_top_folder_stands_is_refused_without_it() {
    let archive = tar(&[Block::file("top/a", "1"), Block::link("top/x", "../top/a")]);
    let site = Site::new(&archive);
    let mut with = options();
    with.collapse_top = true;
    let error = site.extract_with(&with).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it is a link that leaves the archive"),
        "{error}"
    );
    assert_eq!(
        site.extract_with(&options()).unwrap().top.as_deref(),
        Some("top")
    );
    assert_eq!(site.tree()["top/x"], link("../top/a"));
}

#[test]
fn a_target_that_is_not_plain_text_is_refused() {
    for target in [&b"a\nb"[..], b"\xff", b"a\\b"] {
        let refused = refusal(&tar(&[Block::link("x", target)]));
        assert_eq!(refused, (Rule::UnreadableName, Some("x".to_owned())));
    }
}
