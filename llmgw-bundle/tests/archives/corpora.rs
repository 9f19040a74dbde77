//! The archives that other readers of archives are tested with: Go's, Python's and those of the crate
//! `astral-tokio-tar`, whose makers collected what readers were found to differ in.
//!
//! Each verdict is written down in `tests/corpora/verdicts.txt` and was reviewed; a change of one is a change of
//! what is let in. `LLMGW_TEST_WRITE_VERDICTS=1` writes the file anew, `LLMGW_TEST_NO_CORPORA=1` leaves this out.
#![expect(clippy::disallowed_methods, reason = "tests have no flags")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use llmgw_bundle::{
    archive::{extract_member, inspect},
    error::ArchiveError,
    limits::Limits,
};

use crate::site::Site;

#[test]
fn every_archive_of_the_corpora_gets_the_verdict_that_was_reviewed() {
    if env::var("LLMGW_TEST_NO_CORPORA").is_ok_and(|value| value == "1") {
        println!("skipped: LLMGW_TEST_NO_CORPORA");
        return;
    }
    let mut verdicts = BTreeMap::new();
    for (name, path) in [rust(), go("tar"), go("zip"), python()].concat() {
        verdicts.insert(name, verdict(&path));
    }
    assert!(verdicts.len() > 100, "{}", verdicts.len());
    let text: String = verdicts
        .iter()
        .map(|(name, verdict)| format!("{name}: {verdict}\n"))
        .collect();
    let reviewed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/verdicts.txt");
    if env::var("LLMGW_TEST_WRITE_VERDICTS").is_ok_and(|value| value == "1") {
        fs::write(&reviewed, &text).unwrap();
    }
    let expected = fs::read_to_string(&reviewed).unwrap();
    for (own, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(own, expected);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

/// What comes of an archive. The site fails when anything is written outside, or left after a refusal.
fn verdict(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let site = Site::named(name, &fs::read(path).unwrap());
    // A member that is asked for must do no harm either.
    drop(extract_member(
        &site.archive,
        "test.txt",
        &mut Vec::new(),
        &Limits::default(),
    ));
    let listed = inspect(&site.archive, &Limits::default());
    match (site.extract(Limits::default()), listed) {
        (Ok(done), Ok(listing)) => {
            assert_eq!(done.bytes, listing.bytes, "{name}");
            format!(
                "{}, {} entries, {} bytes",
                done.format, done.entries, done.bytes.0
            )
        }
        (Err(error), Err(same)) => {
            assert_eq!(error.to_string(), same.to_string(), "{name}");
            refusal(&error, &site.archive)
        }
        (extracted, listed) => panic!("{name}: {extracted:?}, {listed:?}"),
    }
}

/// The error without the place of the archive.
fn refusal(error: &ArchiveError, archive: &Path) -> String {
    let text = error.to_string();
    let text = text.replace(archive.to_str().unwrap(), "");
    text.trim_start_matches([':', ' ']).to_owned()
}

/// The sources of a crate that is fetched with all others and never compiled.
fn rust() -> Vec<(String, PathBuf)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let package = metadata["packages"]
        .as_array()
        .and_then(|packages| {
            let is_it = |package: &&serde_json::Value| package["name"] == "astral-tokio-tar";
            packages.iter().find(is_it)
        })
        .expect("astral-tokio-tar is a dependency of this package's tests");
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    files("rust", &manifest.with_file_name("tests").join("archives"))
}

/// Go's own sources.
fn go(format: &str) -> Vec<(String, PathBuf)> {
    let root = newest("/usr/share", "go-").map(|go| go.join("src/archive").join(format));
    let root = root.filter(|root| root.is_dir()).unwrap_or_else(|| {
        panic!("Go's sources are not installed: apt-get install golang-1.19-src (or set LLMGW_TEST_NO_CORPORA=1)")
    });
    files(&format!("go-{format}"), &root.join("testdata"))
}

/// Python's own tests, of which a few files are archives.
fn python() -> Vec<(String, PathBuf)> {
    let root = newest("/usr/lib", "python3.").map(|python| python.join("test"));
    let root = root.filter(|root| root.join("testtar.tar").is_file()).unwrap_or_else(|| {
        panic!("Python's tests are not installed: apt-get install libpython3.11-testsuite (or set LLMGW_TEST_NO_CORPORA=1)")
    });
    let names = [
        "recursion.tar",
        "testtar.tar",
        "testtar.tar.xz",
        "zip_cp437_header.zip",
        "zipdir.zip",
        "ziptestdata/exe_with_z64",
        "ziptestdata/exe_with_zip",
    ];
    names
        .map(|name| (format!("python/{name}"), root.join(name)))
        .to_vec()
}

/// The last folder of `root` whose name begins so.
fn newest(root: &str, start: &str) -> Option<PathBuf> {
    let folders = fs::read_dir(root).ok()?.filter_map(Result::ok);
    folders
        .filter(|folder| {
            folder
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(start))
        })
        .map(|folder| folder.path())
        .max()
}

fn files(corpus: &str, folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (format!("{corpus}/{name}"), path.clone())
        })
        .collect()
}
