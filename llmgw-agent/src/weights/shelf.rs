//! The place of one digest in the store.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use llmgw_bundle::digest::Digested;
use llmgw_core::{
    clock::Timestamp,
    cluster::weights::{Sha256Digest, Source},
    fingerprint::Fingerprint,
};
use tokio::{fs, task::spawn_blocking};

use super::{
    SourceError, WeightsError,
    error::shown,
    verified::{Look, Verified, read_whole},
};

/// The directory of one digest.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: PathBuf,
    digest: Sha256Digest,
}

/// Where one attempt writes.
#[derive(Debug)]
pub(super) struct Place {
    pub partial: PathBuf,
    pub scratch: PathBuf,
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn new(store: &Path, digest: Sha256Digest) -> Self {
        Self {
            directory: store.join("sha256").join(digest.to_string()),
            digest,
        }
    }

    pub(super) fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// Whether something whole was here when it was looked at last.
    pub(super) fn has_something(&self) -> bool {
        self.record().is_file()
    }

    /// The whole file that is recorded here, if it looks as it did when it was checked. It may wait for the disk.
    pub(super) fn whole(&self) -> Option<PathBuf> {
        let json = std::fs::read(self.record()).ok()?;
        let record: Verified = serde_json::from_slice(&json).ok()?;
        let path = self.directory.join(&record.file);
        let found = std::fs::metadata(&path).ok()?;
        let is_same = record.sha256 == self.digest && record.look == Look::of(&found);
        is_same.then_some(path)
    }

    /// The whole file, if it is here. One that was changed since it was checked is read again, and removed when
    /// it is not what it was; so is one that a crash has left without its record.
    pub(super) async fn find(&self) -> Result<Option<PathBuf>, WeightsError> {
        let record = Verified::read(&self.record()).await;
        for path in self.files().await? {
            let recorded = record.as_ref().filter(|record| {
                record.sha256 == self.digest && self.directory.join(&record.file) == path
            });
            if let (Some(recorded), Ok(found)) = (recorded, fs::metadata(&path).await)
                && recorded.look == Look::of(&found)
            {
                return Ok(Some(path));
            }
            // A file that can't be read now, for want of descriptors or by a sick disk, is not known to be wrong.
            let (digested, look) = read_whole(path.clone())
                .await
                .map_err(failed("reading", &path))?;
            if digested.sha256 == self.digest {
                self.write_record(&path, look)
                    .await
                    .map_err(failed("writing", &self.record()))?;
                return Ok(Some(path));
            }
            tracing::warn!(path = %path.display(), "a file in the store is not what it should be; it is fetched again");
            fs::remove_file(&path)
                .await
                .map_err(failed("removing", &path))?;
        }
        Ok(None)
    }

    /// Removes the directory when nothing is in it.
    pub(super) async fn leave_if_empty(&self) {
        // It fails for one that is not empty, and for one that is not there.
        drop(fs::remove_dir(&self.directory).await);
    }

    /// Makes the directory, and removes what earlier attempts have left in it that can't be continued.
    pub(super) async fn clear(&self) -> Result<(), WeightsError> {
        fs::create_dir_all(&self.directory)
            .await
            .map_err(failed("making", &self.directory))?;
        for path in self.entries().await? {
            if is_scratch(&path) {
                remove(&path).await.map_err(failed("removing", &path))?;
            }
        }
        Ok(())
    }

    /// Where to write the file of `source`: the same partial file each time, so that it is continued, and a directory
    /// for the rest that no earlier attempt, and no thread that still ends one, writes to.
    pub(super) async fn place(&self, source: &Source) -> Result<Place, SourceError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.directory)
            .await
            .map_err(|source| SourceError::File {
                doing: "making",
                path: self.directory.clone(),
                source,
            })?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = file_name(source);
        let of = Fingerprint::of_bytes(shown(source).as_bytes());
        Ok(Place {
            partial: self.directory.join(format!("{name}.{of}{PARTIAL}")),
            scratch: self.directory.join(format!("{name}.{number}{SCRATCH}")),
        })
    }

    /// Gives the file of an attempt its name, when it is what it should be.
    pub(super) async fn keep(
        &self,
        place: &Place,
        source: &Source,
        digested: Digested,
    ) -> Result<PathBuf, SourceError> {
        if digested.sha256 != self.digest {
            place.discard().await;
            return Err(SourceError::Digest {
                source_text: shown(source),
                expected: self.digest,
                actual: digested.sha256,
            });
        }
        let path = self.directory.join(file_name(source));
        let failed = |source| SourceError::File {
            doing: "naming",
            path: path.clone(),
            source,
        };
        let (partial, target, directory) =
            (place.partial.clone(), path.clone(), self.directory.clone());
        let name = move || {
            std::fs::rename(partial, &target)?;
            std::fs::File::open(directory)?.sync_all()?;
            std::fs::metadata(target)
        };
        let found = spawn_blocking(name)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(failed)?;
        self.write_record(&path, Look::of(&found))
            .await
            .map_err(failed)?;
        // Nobody continues what other sources have begun.
        for left in self.entries().await.unwrap_or_default() {
            if is_partial(&left)
                && let Err(error) = remove(&left).await
            {
                tracing::warn!(path = %left.display(), %error, "a part of a fetch is left");
            }
        }
        Ok(path)
    }

    /// Notes that a replica is started on what is here.
    pub(super) async fn note_use(&self, now: Timestamp) {
        let marker = self.directory.join(USED);
        let note = move || {
            let file = std::fs::File::create(marker)?;
            file.set_modified(system_time(now))
        };
        let noted = spawn_blocking(note).await;
        let noted = noted.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = noted {
            // Without it, they look as if nobody had used them lately: they are removed sooner, when that is allowed.
            tracing::warn!(digest = %self.digest, %error, "the use of weights could not be noted");
        }
    }

    async fn write_record(&self, path: &Path, look: Look) -> io::Result<()> {
        let verified = Verified {
            file: path.file_name().unwrap_or_default().into(),
            sha256: self.digest,
            look,
        };
        verified.write(self.record()).await
    }

    /// Files that may be whole, in the order of their names.
    async fn files(&self) -> Result<Vec<PathBuf>, WeightsError> {
        let mut files = self.entries().await?;
        let record = self.record();
        files.retain(|path| {
            !is_partial(path)
                && !path
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(record.as_os_str().as_encoded_bytes())
                && path.is_file()
        });
        Ok(files)
    }

    async fn entries(&self) -> Result<Vec<PathBuf>, WeightsError> {
        let failed = || failed("reading", &self.directory);
        let mut entries = match fs::read_dir(&self.directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed()(error)),
        };
        let mut paths = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(failed())? {
            paths.push(entry.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn record(&self) -> PathBuf {
        self.directory.join(RECORD)
    }
}

// === impl Place ===

impl Place {
    /// Removes what is of no use to the next attempt. What can't be removed now is removed before the next.
    pub(super) async fn clear(&self) {
        clear(&self.scratch).await;
    }

    /// Removes the partial file as well: it must not be continued.
    pub(super) async fn discard(&self) {
        clear(&self.partial).await;
    }
}

async fn clear(path: &Path) {
    if let Err(error) = remove(path).await {
        tracing::warn!(path = %path.display(), %error, "a part of a fetch is left");
    }
}

async fn remove(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path).await {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if found.is_dir() {
        fs::remove_dir_all(path).await
    } else {
        fs::remove_file(path).await
    }
}

/// A partial file, its note, or what else an attempt needs.
pub(super) fn is_partial(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    [PARTIAL, NOTE, NOTE_BESIDE]
        .iter()
        .any(|end| name.ends_with(end.as_bytes()))
}

fn is_scratch(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    name.ends_with(SCRATCH.as_bytes())
}

/// A point in time as the operating system takes it.
fn system_time(at: Timestamp) -> SystemTime {
    let millis = u64::try_from(at.0).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// What the file of a source is called here; a name of ours where the source's own would be in the way.
fn file_name(source: &Source) -> &str {
    let name = source.file_name();
    let usable = !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && !name.starts_with(RECORD)
        && !is_partial(Path::new(name));
    if usable { name } else { "weights" }
}

fn failed<'p>(
    doing: &'static str,
    path: &'p Path,
) -> impl FnOnce(io::Error) -> WeightsError + use<'p> {
    move |source| WeightsError::File {
        doing,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

pub(super) const RECORD: &str = "verified.json";
/// Its time says when the weights were used last. A name that no file of weights has.
pub(super) const USED: &str = "verified.json.used";
pub(super) const PARTIAL: &str = ".partial";
/// What stands beside a partial file.
const NOTE: &str = ".partial.json";
const NOTE_BESIDE: &str = ".partial.json.new";
const SCRATCH: &str = ".scratch.partial";
/// File systems allow 255 bytes; the rest is for what an attempt appends.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests;
