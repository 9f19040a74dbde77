//! What lies in the store: told, collected, and cleared of what was abandoned.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use llmgw_core::{
    clock::Timestamp,
    cluster::weights::{Sha256Digest, WeightsOnDisk},
    fingerprint::Fingerprint,
    units::Bytes,
};

use super::{
    set,
    shelf::{PARTIAL, RECORD, USED, is_partial},
    verified::{Look, Verified},
};
use crate::durable;

/// The store's directory, looked at. Everything here may wait for the disk.
#[derive(Debug)]
pub(super) struct Stock {
    directory: PathBuf,
    /// Fingerprints of files that look as they did when they were read.
    fingerprints: Mutex<BTreeMap<PathBuf, (Look, Fingerprint)>>,
}

impl Stock {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            fingerprints: Mutex::default(),
        }
    }

    /// What is whole and checked, by digest, then by name. What does not look as it did when it was checked is not told.
    pub(super) fn look(&self, in_use: &BTreeSet<Sha256Digest>) -> io::Result<Vec<WeightsOnDisk>> {
        let mut found = Vec::new();
        for shelf in entries(&self.shelves())? {
            let Some(record) = record(&shelf.join(RECORD)) else {
                continue;
            };
            let is_own = shelf
                .file_name()
                .is_some_and(|name| name.to_string_lossy() == record.sha256.to_string());
            let file = shelf.join(&record.file);
            if is_own && let Some(size) = unchanged(&file, &record) {
                let used = fs::metadata(shelf.join(USED)).and_then(|marker| marker.modified());
                found.push(WeightsOnDisk {
                    sha256: record.sha256,
                    size,
                    name: record.file.display().to_string(),
                    in_place: false,
                    in_use: in_use.contains(&record.sha256),
                    last_used: used.ok().and_then(timestamp),
                    fingerprint: self.fingerprint(&file, &record.look),
                });
            }
        }
        for path in entries(&self.directory.join("in-place"))? {
            let Some(record) = record(&path) else {
                continue;
            };
            if let Some(size) = unchanged(&record.file, &record) {
                found.push(WeightsOnDisk {
                    sha256: record.sha256,
                    size,
                    name: record.file.display().to_string(),
                    in_place: true,
                    in_use: in_use.contains(&record.sha256),
                    last_used: None,
                    fingerprint: self.fingerprint(&record.file, &record.look),
                });
            }
        }
        found.sort_by(|a, b| (a.sha256, &a.name).cmp(&(b.sha256, &b.name)));
        Ok(found)
    }

    /// Removes the weights of a digest. Says how much that was; nothing when there were none.
    pub(super) fn remove(&self, digest: Sha256Digest) -> io::Result<Bytes> {
        let shelf = self.shelves().join(digest.to_string());
        let size = record(&shelf.join(RECORD))
            .and_then(|record| fs::metadata(shelf.join(record.file)).ok())
            .map_or(Bytes::ZERO, |file| Bytes(file.len()));
        // First it is nobody's any more, at once; a crash leaves what the next start removes.
        let gone = self.shelves().join(format!("{digest}.gone{PARTIAL}"));
        if gone.exists() {
            fs::remove_dir_all(&gone)?;
        }
        match fs::rename(&shelf, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes::ZERO),
            renamed => renamed?,
        }
        fs::remove_dir_all(&gone)?;
        self.remove_broken_sets()?;
        Ok(size)
    }

    /// Removes partial files that nobody has written to since `before`, what a removal has left, and empty shelves.
    pub(super) fn remove_abandoned(&self, before: Timestamp) -> io::Result<usize> {
        let mut removed = 0;
        for shelf in entries(&self.shelves())? {
            if is_partial(&shelf) {
                fs::remove_dir_all(&shelf)?;
                removed += 1;
                continue;
            }
            if !shelf.is_dir() {
                continue;
            }
            let before_shelf = removed;
            for path in entries(&shelf)? {
                let Ok(found) = fs::symlink_metadata(&path) else {
                    continue;
                };
                let written = found.modified().ok().and_then(timestamp);
                if !is_partial(&path) || written.is_none_or(|written| written >= before) {
                    continue;
                }
                if found.is_dir() {
                    fs::remove_dir_all(&path)?;
                } else {
                    fs::remove_file(&path)?;
                }
                removed += 1;
            }
            let made = fs::metadata(&shelf).and_then(|found| found.modified());
            let is_old = made
                .ok()
                .and_then(timestamp)
                .is_some_and(|made| made < before);
            if removed > before_shelf || is_old {
                // It fails for one that is not empty. A younger one may be about to be written to.
                drop(fs::remove_dir(&shelf));
            }
        }
        Ok(removed)
    }

    fn shelves(&self) -> PathBuf {
        self.directory.join("sha256")
    }

    /// Sets of which a file is gone are made again when they are wanted.
    fn remove_broken_sets(&self) -> io::Result<()> {
        for set in entries(&set::sets(&self.directory))? {
            if is_broken(&set)? {
                fs::remove_dir_all(&set)?;
            }
        }
        Ok(())
    }

    fn fingerprint(&self, path: &Path, look: &Look) -> Option<Fingerprint> {
        let mut known = self
            .fingerprints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, fingerprint)) = known.get(path)
            && of == look
        {
            return Some(*fingerprint);
        }
        let fingerprint = sample(path).ok()?;
        known.insert(path.to_owned(), (look.clone(), fingerprint));
        Some(fingerprint)
    }
}

/// Tells the same weights at two paths without reading them whole: from the size, and 64 KiB at the beginning, in the
/// middle and at the end.
fn sample(path: &Path) -> io::Result<Fingerprint> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = size.to_le_bytes().to_vec();
    for at in [0, size / 2, size.saturating_sub(SAMPLE)] {
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(SAMPLE).read_to_end(&mut bytes)?;
    }
    Ok(Fingerprint::of_bytes(&bytes))
}

fn is_broken(directory: &Path) -> io::Result<bool> {
    for path in entries(directory)? {
        let is_broken = if fs::symlink_metadata(&path)?.is_dir() {
            is_broken(&path)?
        } else {
            !path.exists()
        };
        if is_broken {
            return Ok(true);
        }
    }
    Ok(false)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

fn record(path: &Path) -> Option<Verified> {
    let json = durable::read(path, durable::SMALL).ok()?;
    serde_json::from_slice(&json).ok()
}

/// The size of a file that looks as it did when it was checked.
fn unchanged(file: &Path, record: &Verified) -> Option<Bytes> {
    let found = fs::metadata(file).ok()?;
    (found.is_file() && Look::of(&found) == record.look).then_some(Bytes(found.len()))
}

fn timestamp(at: SystemTime) -> Option<Timestamp> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp(i64::try_from(since.as_millis()).ok()?))
}

/// A person who stops a model over a week-end goes on with its download on Monday.
pub(super) const ABANDONED_AFTER: Duration = Duration::from_secs(7 * 86_400);
const SAMPLE: u64 = 64 << 10;
