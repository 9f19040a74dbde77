//! What checking an archive takes of memory.

use std::fs;

use llmgw_bundle::{archive::inspect, error::ArchiveError, limits::Limits};
use llmgw_core::units::Bytes;

use crate::{
    craft::tar::{Block, tar},
    site::Site,
};

/// A figure of this process in bytes.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn an_archive_of_as_much_as_is_allowed_takes_the_memory_that_is_said() {
    const ENTRIES: usize = 20_000;
    // Each entry implies a folder of its own, with a name that folds to a longer one.
    let blocks: Vec<Block> = (0..ENTRIES / 2)
        .map(|number| Block::file(format!("folder-{number:05}/File-\u{fb03}-{number:05}"), ""))
        .collect();
    let site = Site::new(&tar(&blocks));
    drop(blocks);
    let mut limits = Limits::default();
    limits.entries = ENTRIES;
    limits.text = Bytes(32 * ENTRIES as u64 / 2);

    // Forgets the peak until now (proc(5), clear_refs).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let listing = inspect(&site.archive, &limits).unwrap();
    let taken = status("VmHWM:").saturating_sub(before);
    assert_eq!(listing.entries.len(), ENTRIES / 2);
    let said = 400 * ENTRIES as u64 + 4 * limits.text.0 + (1 << 20);
    assert!(taken < said, "{taken} of {said}");
    // It does take memory: what is measured is the right thing.
    assert!(taken > 100 * ENTRIES as u64, "{taken}");

    limits.entries -= 1;
    let error = inspect(&site.archive, &limits).unwrap_err();
    assert!(matches!(error, ArchiveError::Refused { .. }), "{error:?}");
}
