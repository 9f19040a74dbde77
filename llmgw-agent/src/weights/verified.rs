//! What was checked of a file, and how it is known again without reading it.

use std::{
    fs::{File, Metadata},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use llmgw_bundle::digest::{Digested, digest};
use llmgw_core::{cluster::weights::Sha256Digest, units::Bytes};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::durable;

/// A record beside a file that was read and hashed.
///
/// It is believed as long as the file looks as it did then. It does not protect from who can write to the disk
/// and the record; it protects from what happens to files.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Verified {
    /// The file, as a name beside the record or as a whole path.
    pub file: PathBuf,
    pub sha256: Sha256Digest,
    pub look: Look,
}

/// What a file looks like from outside.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Look {
    size: Bytes,
    inode: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: (i64, i64),
    /// Seconds and nanoseconds of the last change of anything: can't be set back by copying programs.
    changed: (i64, i64),
}

/// Stops a reader or a writer on a blocking thread, which can't be cancelled otherwise.
#[derive(Debug)]
pub(super) struct Stoppable<T> {
    pub inner: T,
    pub stop: CancellationToken,
}

// === impl Verified ===

impl Verified {
    /// The record at `path`, when there is one that can be read.
    pub(super) async fn read(path: &Path) -> Option<Self> {
        let json = durable::read_aside(path.to_owned(), durable::SMALL)
            .await
            .ok()?;
        serde_json::from_slice(&json).ok()
    }

    pub(super) async fn write(&self, path: PathBuf) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        spawn_blocking(move || durable::write(&path, &json))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

// === impl Look ===

impl Look {
    pub(super) fn of(found: &Metadata) -> Self {
        Self {
            size: Bytes(found.size()),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Reads a file and says what it holds and what it looked like, before and after the same.
pub(super) async fn read_whole(path: PathBuf) -> io::Result<(Digested, Look)> {
    let stop = CancellationToken::new();
    // Dropping this future ends the reading.
    let _guard = stop.clone().drop_guard();
    let read = move || {
        let inner = File::open(path)?;
        let look = Look::of(&inner.metadata()?);
        let mut file = Stoppable { inner, stop };
        let digested = digest(&mut file)?;
        if Look::of(&file.inner.metadata()?) == look {
            Ok((digested, look))
        } else {
            Err(io::Error::other("it was changed while it was read"))
        }
    };
    spawn_blocking(read)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

// === impl Stoppable ===

impl<T> Stoppable<T> {
    fn check(&self) -> io::Result<()> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }
}

impl<T: Read> Read for Stoppable<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.inner.read(buffer)
    }
}

impl<T: Write> Write for Stoppable<T> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.inner.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_known_again_until_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let (first, look) = read_whole(path.clone()).await.unwrap();
        assert_eq!(Look::of(&std::fs::metadata(&path).unwrap()), look);
        // The same size, and the times set back: what a careless copy leaves.
        let times = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "two").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(times).unwrap();
        let (second, other) = read_whole(path).await.unwrap();
        assert_ne!(first.sha256, second.sha256);
        assert_ne!(look, other);
    }

    #[test]
    fn a_stopped_writer_takes_nothing_more() {
        let stop = CancellationToken::new();
        let mut writer = Stoppable {
            inner: Vec::new(),
            stop: stop.clone(),
        };
        writer.write_all(b"one").unwrap();
        stop.cancel();
        assert!(writer.write_all(b"two").is_err());
        assert_eq!(writer.inner, b"one");
    }
}
