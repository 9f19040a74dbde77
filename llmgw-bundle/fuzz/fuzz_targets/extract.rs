//! Any bytes as an archive: nothing may be written outside the destination, nothing may be left after a refusal,
//! nobody may panic, and what a limit bounds must stay within it.
//!
//! `cargo fuzz run extract CORPUS` with a nightly toolchain; a stable one builds it with
//! `RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
//! -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
//! -Cllvm-args=-sanitizer-coverage-trace-compares" cargo build --release --target x86_64-unknown-linux-gnu`.
//! Good starts are the archives of `tests/archives/corpora.rs`, sorted by format.
#![no_main]

use std::{collections::BTreeSet, fs, path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use llmgw_bundle::{
    archive::{ExtractOptions, extract, extract_member, inspect},
    limits::Limits,
};
use llmgw_core::units::Bytes;
use tempfile::TempDir;

fuzz_target!(|bytes: &[u8]| {
    let site = site();
    let archive = site.join("archive");
    let destination = site.join("destination");
    fs::write(&archive, bytes).unwrap();
    let limits = limits();
    let listed = inspect(&archive, &limits);
    let done = extract(
        &archive,
        &destination,
        &ExtractOptions {
            limits,
            collapse_top: bytes.len() % 2 == 0,
            cancelled: &|| false,
            progress: &|written| assert!(written <= limits.total),
        },
    );
    if done.is_ok() {
        assert!(listed.is_ok());
        fs::remove_dir_all(&destination).unwrap();
    }
    let mut out = Vec::new();
    drop(extract_member(&archive, "a/b", &mut out, &limits));
    assert!(out.len() as u64 <= limits.member.0);
    let left: BTreeSet<_> = fs::read_dir(site)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, BTreeSet::from(["archive".into(), "canary".into()]));
    assert_eq!(fs::read(site.join("canary")).unwrap(), b"sings");
});

/// In memory, with a canary beside the destination.
fn site() -> &'static Path {
    static SITE: OnceLock<TempDir> = OnceLock::new();
    SITE.get_or_init(|| {
        let site = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(site.path().join("canary"), "sings").unwrap();
        site
    })
    .path()
}

fn limits() -> Limits {
    let mut limits = Limits::default()
        .with_member(Bytes::mib(1))
        .with_total(Bytes::mib(2));
    limits.entries = 200;
    limits.text = Bytes(20_000);
    limits.window = Bytes::mib(8);
    limits
}
