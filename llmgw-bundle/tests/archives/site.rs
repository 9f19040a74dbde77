//! A place to extract to, with things around it that must not be touched.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use llmgw_bundle::{
    archive::{ExtractOptions, Extracted, extract},
    error::{ArchiveError, Rule},
    limits::Limits,
};
use llmgw_core::error::{Code, Coded as _};
use tempfile::TempDir;

/// What is at a place, without following links.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum There {
    Folder { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { target: String },
}

/// A folder with an archive in it, a destination beside it, and canaries around both.
pub(crate) struct Site {
    root: TempDir,
    pub(crate) archive: PathBuf,
    pub(crate) destination: PathBuf,
    before: BTreeMap<String, There>,
}

impl Site {
    /// An archive of these bytes under a name that says nothing of its format.
    pub(crate) fn new(archive: &[u8]) -> Self {
        Self::named("archive", archive)
    }

    pub(crate) fn named(name: &str, archive: &[u8]) -> Self {
        let root = workplace();
        let site = root.path().join("a/b/site");
        fs::create_dir_all(site.join("beside")).unwrap();
        for folder in [
            root.path(),
            &root.path().join("a"),
            &root.path().join("a/b"),
            &site,
        ] {
            fs::write(folder.join("canary"), "sings").unwrap();
        }
        fs::write(site.join("beside/canary"), "sings").unwrap();
        symlink("beside", site.join("link")).unwrap();
        let archive_path = site.join(name);
        fs::write(&archive_path, archive).unwrap();
        let before = snapshot(root.path());
        Self {
            destination: site.join("destination"),
            archive: archive_path,
            before,
            root,
        }
    }

    /// Extracts, and looks whether anything outside has changed, or inside when it was refused.
    pub(crate) fn extract(&self, limits: Limits) -> Result<Extracted, ArchiveError> {
        self.extract_with(&ExtractOptions {
            limits,
            ..options()
        })
    }

    pub(crate) fn extract_with(
        &self,
        options: &ExtractOptions<'_>,
    ) -> Result<Extracted, ArchiveError> {
        let result = extract(&self.archive, &self.destination, options);
        let mut after = snapshot(self.root.path());
        if result.is_ok() {
            after.retain(|path, _| !path.starts_with("a/b/site/destination"));
        }
        assert_eq!(after, self.before, "{result:?}");
        result
    }

    /// What was extracted.
    pub(crate) fn tree(&self) -> BTreeMap<String, There> {
        snapshot(&self.destination)
    }
}

pub(crate) fn options() -> ExtractOptions<'static> {
    ExtractOptions {
        limits: Limits::default(),
        collapse_top: false,
        cancelled: &|| false,
        progress: &|_| {},
    }
}

/// The rule that an archive of these bytes breaks and the entry that is named: nothing may be left of it.
pub(crate) fn refusal(archive: &[u8]) -> (Rule, Option<String>) {
    refusal_within(archive, Limits::default())
}

pub(crate) fn refusal_within(archive: &[u8], limits: Limits) -> (Rule, Option<String>) {
    let error = Site::new(archive)
        .extract(limits)
        .expect_err("it breaks a rule");
    assert_eq!(error.code(), Code::VerificationFailed, "{error}");
    assert!(error.hint().is_some(), "{error}");
    match error {
        ArchiveError::Refused { entry, rule, .. } => (rule, Some(entry)),
        ArchiveError::RefusedWhole { rule, .. } => (rule, None),
        other => panic!("{other:?}"),
    }
}

/// The tree that an archive of these bytes makes.
pub(crate) fn extracted(archive: &[u8]) -> BTreeMap<String, There> {
    let site = Site::new(archive);
    site.extract(Limits::default()).unwrap();
    site.tree()
}

/// A folder in memory where there is one for that: each extraction waits until the disk has everything that any
/// process has written.
pub(crate) fn workplace() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// All that is beneath a folder.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<String, There> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let there = if metadata.is_dir() {
                folders.push(path.clone());
                There::Folder { mode }
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                There::Link {
                    target: target.to_str().unwrap().to_owned(),
                }
            } else {
                assert!(metadata.is_file(), "{}", path.display());
                There::File {
                    mode,
                    bytes: fs::read(&path).unwrap(),
                }
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            found.insert(name.to_owned(), there);
        }
    }
    found
}

pub(crate) fn file(bytes: impl AsRef<[u8]>) -> There {
    There::File {
        mode: 0o644,
        bytes: bytes.as_ref().to_vec(),
    }
}

pub(crate) fn program(bytes: impl AsRef<[u8]>) -> There {
    There::File {
        mode: 0o755,
        bytes: bytes.as_ref().to_vec(),
    }
}

pub(crate) fn folder() -> There {
    There::Folder { mode: 0o755 }
}

pub(crate) fn link(target: &str) -> There {
    There::Link {
        target: target.to_owned(),
    }
}

/// Short, so that one sees what differs.
impl fmt::Debug for There {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { mode } => write!(f, "folder {mode:o}"),
            Self::File { mode, bytes } => {
                let start = bytes.get(..16).unwrap_or(bytes);
                write!(f, "file {mode:o} of {} bytes, {start:x?}", bytes.len())
            }
            Self::Link { target } => write!(f, "link to {target}"),
        }
    }
}
