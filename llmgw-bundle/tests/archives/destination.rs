//! Where an archive goes, and what is left there.

use std::{
    cell::{Cell, RefCell},
    fs::{self, File, FileTimes},
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::symlink,
};

use llmgw_bundle::{
    archive::{ExtractOptions, extract},
    error::ArchiveError,
    limits::Limits,
};
use llmgw_core::{
    error::{Code, Coded as _},
    units::Bytes,
};

use crate::{
    craft::{
        gz,
        tar::{Block, tar},
        zip::{Entry, zip},
    },
    site::{Site, file, folder, link, options, program, snapshot},
};

fn topped() -> Vec<u8> {
    tar(&[
        Block::folder("top/"),
        Block::file("top/bin/x", "1").mode(0o755),
        Block::file("top/y", "2"),
        Block::link("top/z", "bin/x"),
    ])
}

#[test]
fn the_top_folder_is_left_out_on_request() {
    let site = Site::new(&topped());
    let done = site
        .extract_with(&ExtractOptions {
            collapse_top: true,
            ..options()
        })
        .unwrap();
    assert_eq!((done.entries, done.top.as_deref()), (4, Some("top")));
    let expected = [
        ("bin", folder()),
        ("bin/x", program("1")),
        ("y", file("2")),
        ("z", link("bin/x")),
    ];
    let tree: Vec<_> = site.tree().into_iter().collect();
    assert_eq!(tree, expected.map(|(path, there)| (path.to_owned(), there)));
}

#[test]
fn what_is_not_in_one_folder_stays_as_it_is() {
    let collapse = ExtractOptions {
        collapse_top: true,
        ..options()
    };
    for blocks in [
        vec![Block::file("only", "1")],
        vec![Block::file("top/a", "1"), Block::file("b", "2")],
        vec![Block::link("only", "there")],
    ] {
        let site = Site::new(&tar(&blocks));
        assert_eq!(site.extract_with(&collapse).unwrap().top, None);
        let collapsed = site.tree();
        fs::remove_dir_all(&site.destination).unwrap();
        site.extract_with(&options()).unwrap();
        assert_eq!(site.tree(), collapsed);
    }
}

#[test]
fn a_destination_that_is_taken_is_left_alone() {
    let site = Site::new(&topped());
    let refused = || {
        let error = extract(&site.archive, &site.destination, &options()).unwrap_err();
        assert!(matches!(error, ArchiveError::Taken { .. }), "{error:?}");
        assert_eq!(error.code(), Code::Conflict);
    };
    fs::write(&site.destination, "mine").unwrap();
    refused();
    assert_eq!(fs::read(&site.destination).unwrap(), b"mine");
    fs::remove_file(&site.destination).unwrap();
    symlink("beside", &site.destination).unwrap();
    refused();
    fs::remove_file(&site.destination).unwrap();
    fs::create_dir(&site.destination).unwrap();
    fs::write(site.destination.join("mine"), "").unwrap();
    refused();
    assert_eq!(snapshot(&site.destination).len(), 1);
}

#[test]
fn an_empty_folder_is_filled() {
    let site = Site::new(&topped());
    fs::create_dir(&site.destination).unwrap();
    extract(&site.archive, &site.destination, &options()).unwrap();
    assert_eq!(site.tree()["top/y"], file("2"));
}

#[test]
fn a_destination_without_a_name_or_a_folder_above_is_refused() {
    let site = Site::new(&topped());
    for destination in [site.destination.join(".."), site.destination.join("a/b")] {
        let error = site_error(&site, &destination);
        assert!(
            matches!(
                error,
                ArchiveError::Destination { .. } | ArchiveError::Taken { .. }
            ),
            "{error:?}"
        );
    }
}

fn site_error(site: &Site, destination: &std::path::Path) -> ArchiveError {
    extract(&site.archive, destination, &options()).unwrap_err()
}

#[test]
fn what_a_killed_extraction_has_left_is_removed_by_the_next() {
    let site = Site::new(&topped());
    let partial = site.destination.with_file_name(".destination.partial");
    fs::create_dir_all(partial.join("top/old")).unwrap();
    fs::write(partial.join("top/old/file"), "half").unwrap();
    symlink("../beside", partial.join("top/link")).unwrap();
    extract(&site.archive, &site.destination, &options()).unwrap();
    assert!(!partial.exists());
    assert_eq!(site.tree().len(), 5);
    assert!(
        site.destination
            .with_file_name("beside")
            .join("canary")
            .exists()
    );
}

#[test]
fn a_link_in_the_place_of_the_partial_folder_is_not_followed() {
    let site = Site::new(&topped());
    let partial = site.destination.with_file_name(".destination.partial");
    symlink("beside", &partial).unwrap();
    let error = site_error(&site, &site.destination);
    assert!(
        matches!(error, ArchiveError::Destination { .. }),
        "{error:?}"
    );
    let beside = snapshot(&site.destination.with_file_name("beside"));
    assert_eq!(beside.into_keys().collect::<Vec<_>>(), ["canary"]);
}

#[test]
fn two_extractions_to_one_place_are_told_apart() {
    let site = Site::new(&topped());
    let second = RefCell::new(None);
    let during = |_: Bytes| {
        let mut second = second.borrow_mut();
        if second.is_none() {
            *second = Some(extract(&site.archive, &site.destination, &options()));
        }
    };
    site.extract_with(&ExtractOptions {
        progress: &during,
        ..options()
    })
    .unwrap();
    let second = second.into_inner().unwrap();
    assert!(
        matches!(second, Err(ArchiveError::Busy { .. })),
        "{second:?}"
    );
    assert_eq!(site.tree()["top/y"], file("2"));
}

#[test]
fn cancelling_leaves_nothing_whenever_it_comes() {
    let archives = [
        topped(),
        gz(&topped()),
        zip(&[
            Entry::new("top/a", "1"),
            Entry::deflated("top/b", b"2"),
            Entry::link("top/c", "a"),
        ]),
    ];
    for archive in archives {
        let site = Site::new(&archive);
        let mut after = 0;
        loop {
            let asked = Cell::new(0);
            let cancelled = || {
                asked.set(asked.get() + 1);
                asked.get() > after
            };
            match site.extract_with(&ExtractOptions {
                cancelled: &cancelled,
                ..options()
            }) {
                Ok(_) => break,
                Err(error) => assert!(matches!(error, ArchiveError::Cancelled { .. }), "{error:?}"),
            }
            after += 1;
        }
        assert!(after > 8, "{after}");
    }
}

#[test]
fn progress_counts_what_was_written() {
    let site = Site::new(&tar(&[
        Block::file("a", vec![1; 200_000]),
        Block::file("b", "12"),
    ]));
    let told = RefCell::new(Vec::new());
    let progress = |bytes: Bytes| told.borrow_mut().push(bytes.0);
    site.extract_with(&ExtractOptions {
        progress: &progress,
        ..options()
    })
    .unwrap();
    let told = told.into_inner();
    assert!(told.is_sorted(), "{told:?}");
    assert!(told.len() >= 4, "{told:?}");
    assert_eq!(told.last(), Some(&200_002));
}

/// Rewrites the archive in its place as soon as the second pass writes.
fn rewritten(before: &[u8], after: &[u8]) -> ArchiveError {
    let site = Site::new(before);
    let once = Cell::new(false);
    let progress = |_: Bytes| {
        if !once.replace(true) {
            let mut archive = File::options().write(true).open(&site.archive).unwrap();
            archive.seek(SeekFrom::Start(0)).unwrap();
            archive.write_all(after).unwrap();
            archive.set_len(after.len() as u64).unwrap();
        }
    };
    let result = extract(
        &site.archive,
        &site.destination,
        &ExtractOptions {
            progress: &progress,
            ..options()
        },
    );
    let names: Vec<_> = snapshot(site.destination.parent().unwrap())
        .into_keys()
        .collect();
    assert!(
        !names.iter().any(|name| name.contains("destination")),
        "{names:?}"
    );
    result.expect_err("it was changed")
}

#[test]
fn an_archive_that_changes_between_the_passes_is_refused() {
    let large = vec![1; 300_000];
    let with = |second: Block| tar(&[Block::file("a", &large), second]);
    let before = with(Block::file("b", "1"));
    for after in [
        with(Block::file("b", "2")),
        with(Block::file("c", "1")),
        with(Block::file("b", "1").mode(0o755)),
        with(Block::link("b", "../../../canary")),
        with(Block::file("../canary", "1")),
        tar(&[Block::file("a", &large)]),
        before[..before.len() - 1_024].to_vec(),
    ] {
        let error = rewritten(&before, &after);
        assert!(matches!(error, ArchiveError::Changed { .. }), "{error:?}");
    }
    let before = zip(&[Entry::new("a", &large), Entry::new("b", "1")]);
    for after in [
        zip(&[Entry::new("a", &large), Entry::new("b", "2")]),
        zip(&[Entry::new("a", &large)]),
    ] {
        let error = rewritten(&before, &after);
        assert!(
            matches!(
                error,
                ArchiveError::Changed { .. } | ArchiveError::Read { .. }
            ),
            "{error:?}"
        );
    }
}

#[test]
fn a_new_time_alone_is_no_change() {
    let site = Site::new(&topped());
    let times = FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    let progress = |_: Bytes| {
        let archive = File::options().write(true).open(&site.archive).unwrap();
        archive.set_times(times).unwrap();
    };
    site.extract_with(&ExtractOptions {
        progress: &progress,
        ..options()
    })
    .unwrap();
}

#[test]
fn a_disk_that_is_full_is_told_apart_from_a_bad_archive() {
    // /proc takes no files: what matters is that it is not the archive's fault.
    let site = Site::new(&topped());
    let error = extract(&site.archive, "/proc/llmgw-none".as_ref(), &options()).unwrap_err();
    assert!(
        matches!(error, ArchiveError::Destination { .. }),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::Internal);
}

#[test]
fn an_archive_of_thousands_of_files_keeps_few_open() {
    let blocks: Vec<Block> = (0..3_000)
        .map(|number| Block::file(format!("{}/{}/x", number % 70, number), "1"))
        .collect();
    let site = Site::new(&tar(&blocks));
    let most = Cell::new(0);
    let progress = |_: Bytes| {
        let open = fs::read_dir("/proc/self/fd").unwrap().count();
        most.set(most.get().max(open));
    };
    site.extract_with(&ExtractOptions {
        limits: Limits::default(),
        progress: &progress,
        ..options()
    })
    .unwrap();
    assert!(most.get() < 60, "{}", most.get());
}
