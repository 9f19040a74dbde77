//! Where probes read: the machine itself, or a tree that was captured from another.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use llmgw_core::units::Bytes;
use rustix::fs::OFlags;

use super::capture::{DiskSizes, Machine};

/// The directory that stands for `/`, and what stands in no file.
///
/// What is read through it can be noted, so that a tree holds exactly what probes read and nothing else.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    /// What a captured machine would answer; absent for the running one, which is asked.
    machine: Option<Arc<Machine>>,
    notes: Option<Arc<Mutex<Notes>>>,
}

/// What was read, by its path from `/`.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) dirs: BTreeMap<PathBuf, Vec<(String, Entry)>>,
    pub(super) disks: BTreeMap<PathBuf, DiskSizes>,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Entry {
    File,
    Directory,
}

impl Root {
    /// The machine itself.
    #[must_use]
    pub fn system() -> Self {
        Self {
            dir: PathBuf::from("/"),
            machine: None,
            notes: None,
        }
    }

    /// A tree and the answers of its machine.
    #[must_use]
    pub fn captured(dir: impl Into<PathBuf>, machine: Machine) -> Self {
        Self {
            dir: dir.into(),
            machine: Some(Arc::new(machine)),
            notes: None,
        }
    }

    /// The same, noting what is read.
    pub(super) fn noting(self, notes: &Arc<Mutex<Notes>>) -> Self {
        Self {
            notes: Some(Arc::clone(notes)),
            ..self
        }
    }

    /// What a captured machine would answer; `None` for the running one.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_deref()
    }

    /// The place of a file that is named from `/`.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(from_top(path.as_ref()))
    }

    /// The bytes of a file, at most the first `limit`; `None` when it can't be read.
    #[must_use]
    pub fn bytes(&self, path: impl AsRef<Path>, limit: u64) -> Option<Vec<u8>> {
        let bytes = self.read(path.as_ref(), limit)?;
        self.note(path, &bytes);
        Some(bytes)
    }

    /// The text of a file, at most its first 4 MiB; `None` when it can't be read.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path, TEXT_LIMIT)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The line of a file that has one, such as most of those beneath `/sys`; `None` when it can't be read or is
    /// empty.
    #[must_use]
    pub fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path, LINE_LIMIT)?;
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// The number in such a file, decimal or with `0x` before it.
    #[must_use]
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        let line = self.line(path)?;
        match line.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => line.parse().ok(),
        }
    }

    /// The bytes of a file without noting them: for what is too large, or is nobody else's business.
    pub(super) fn read(&self, path: &Path, limit: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = self.open(path)?;
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Opens what is a regular file, and of a captured tree what lies in it: a stranger's tree may hold links to files of
    /// this machine, and pipes that nobody writes to.
    fn open(&self, path: &Path) -> Option<File> {
        let at = self.inside(self.path(path))?;
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open(at)
            .ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// The path when it does not lead out of a captured tree.
    fn inside(&self, at: PathBuf) -> Option<PathBuf> {
        if self.machine().is_none() {
            return Some(at);
        }
        let (real, top) = (at.canonicalize().ok()?, self.dir.canonicalize().ok()?);
        real.starts_with(top).then_some(real)
    }

    /// Notes what a captured tree should hold at this path.
    pub(super) fn note(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        if let Some(notes) = &self.notes {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.files.insert(from_top(path.as_ref()), bytes.to_vec());
        }
    }

    /// Those names in a directory that are asked for, sorted, at most 4096; `None` when it can't be read.
    #[must_use]
    pub fn names(
        &self,
        path: impl AsRef<Path>,
        asked_for: impl Fn(&str) -> bool,
    ) -> Option<Vec<String>> {
        let dir = self.inside(self.path(path.as_ref()))?;
        let mut names: Vec<String> = fs::read_dir(&dir)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| asked_for(name))
            .take(NAMES_LIMIT)
            .collect();
        names.sort();
        if let Some(notes) = &self.notes {
            let entries = names.iter().map(|name| {
                let entry = if dir.join(name).is_dir() {
                    Entry::Directory
                } else {
                    Entry::File
                };
                (name.clone(), entry)
            });
            let entries: Vec<(String, Entry)> = entries.collect();
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes
                .dirs
                .entry(from_top(path.as_ref()))
                .or_default()
                .extend(entries);
        }
        Some(names)
    }

    /// Whether a name stands in a directory; the file itself is not opened.
    #[must_use]
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let there = self.path(path).symlink_metadata().is_ok();
        if let (true, Some(notes), Some(dir), Some(name)) =
            (there, &self.notes, path.parent(), path.file_name())
        {
            let entry = if self.path(path).is_dir() {
                Entry::Directory
            } else {
                Entry::File
            };
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            let names = notes.dirs.entry(from_top(dir)).or_default();
            names.push((name.to_string_lossy().into_owned(), entry));
        }
        there
    }

    /// The real place of a directory, or of the deepest one above it that exists; a captured machine has told the
    /// real one.
    #[must_use]
    pub fn resolve(&self, dir: &Path) -> Option<PathBuf> {
        if self.machine.is_some() {
            return Some(dir.to_owned());
        }
        // Before the first start a directory does not exist; it will be made on the disk of the one above.
        dir.ancestors().find_map(|dir| fs::canonicalize(dir).ok())
    }

    /// The sizes of the disk that holds `dir`, which is mounted at `mount`; `None` when they can't be told.
    #[must_use]
    pub fn disk_sizes(&self, dir: &Path, mount: &Path) -> Option<DiskSizes> {
        let sizes = match &self.machine {
            Some(machine) => *machine.disks.get(mount)?,
            None => {
                let sizes = rustix::fs::statvfs(dir).ok()?;
                DiskSizes {
                    total: Bytes(sizes.f_blocks.saturating_mul(sizes.f_frsize)),
                    free: Bytes(sizes.f_bavail.saturating_mul(sizes.f_frsize)),
                }
            }
        };
        if let Some(notes) = &self.notes {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.disks.insert(mount.to_owned(), sizes);
        }
        Some(sizes)
    }
}

/// A path from `/`, without what would lead out of a tree.
fn from_top(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// `/proc/cpuinfo` of 512 threads has about 1 MiB; nothing that we read is larger.
const TEXT_LIMIT: u64 = 4 << 20;

/// Files of `/sys` that hold one value have a page at most.
const LINE_LIMIT: u64 = 4096;

/// More cards or ports than that has no machine.
const NAMES_LIMIT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_not_left() {
        let root = Root::captured("/t", Machine::default());
        assert_eq!(root.path("/proc/x"), Path::new("/t/proc/x"));
        assert_eq!(root.path("../../etc/x"), Path::new("/t/etc/x"));
    }

    #[test]
    fn numbers_are_read_in_both_forms() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::captured(dir.path(), Machine::default());
        for (text, number) in [
            ("42\n", Some(42)),
            ("0x1002\n", Some(0x1002)),
            ("-1\n", None),
            ("0xzz", None),
            ("", None),
        ] {
            fs::write(dir.path().join("n"), text).unwrap();
            assert_eq!(root.number("n"), number, "{text:?}");
        }
    }

    #[test]
    fn a_strangers_tree_is_not_left_and_nothing_in_it_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, secret) = (dir.path().join("tree"), dir.path().join("secret"));
        fs::create_dir(&tree).unwrap();
        fs::write(&secret, "secret").unwrap();
        fs::write(tree.join("plain"), "plain").unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, tree.join(name)).unwrap();
        link(&secret, "out");
        link(Path::new("../secret"), "up");
        link(Path::new("plain"), "in");
        link(dir.path(), "folder");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.join("pipe"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        let root = Root::captured(&tree, Machine::default());
        assert_eq!(root.text("in").as_deref(), Some("plain"));
        for name in ["out", "up", "pipe"] {
            assert_eq!(root.text(name), None, "{name}");
        }
        assert_eq!(root.names("folder", |_| true), None);
        // Of the machine itself links are followed, and pipes are not.
        assert_eq!(
            Root::system().text(tree.join("out")).as_deref(),
            Some("secret")
        );
        assert_eq!(Root::system().text(tree.join("pipe")), None);
    }
}
