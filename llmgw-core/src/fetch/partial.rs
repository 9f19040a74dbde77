//! The partial file of a fetch: what is there of it, and the threads that write and hash what comes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes as Chunk;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

use super::note::Note;
use crate::{cluster::weights::Sha256Digest, fingerprint::Fingerprint, units::Bytes};

/// A partial file that is being written.
///
/// Two threads work on it, so that neither the disk nor the hash makes the network wait: one writes, one hashes.
/// Dropping it ends both, after at most [`QUEUE`] chunks; whoever opens the file next waits for that.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    asked: Fingerprint,
    have: Bytes,
    note: Option<Note>,
    writer: Worker<File>,
    hasher: Worker<Sha256>,
}

/// A thread that works off what it is sent.
#[derive(Debug)]
struct Worker<T> {
    work: mpsc::Sender<Work>,
    /// Absent once it was heard how it ended: that is heard once.
    done: Option<JoinHandle<io::Result<T>>>,
}

#[derive(Clone, Debug)]
enum Work {
    /// The next bytes.
    Chunk(Chunk),
    /// All that came so far is of no use.
    Restart,
}

/// Tells a thread that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
struct Stop(Arc<AtomicBool>);

/// Stops the thread when it is dropped.
#[derive(Debug)]
struct StopOnDrop(Stop);

// === impl Partial ===

impl Partial {
    /// Opens the file at `path`, and reads what is there if it is what was asked for. Waits until nobody else has it
    /// open.
    pub(super) async fn open(path: &Path, asked: Fingerprint) -> io::Result<Self> {
        let stop = Stop::default();
        let _stop_on_drop = StopOnDrop(stop.clone());
        let place = path.to_owned();
        let opening = spawn_blocking(move || open(&place, asked, &stop));
        let (file, hash, have, note) = joined(opening.await)?;
        Ok(Self {
            path: path.to_owned(),
            asked,
            have,
            note,
            writer: Worker::start(file, write),
            hasher: Worker::start(hash, hash_chunk),
        })
    }

    /// Bytes that are there.
    pub(super) fn have(&self) -> Bytes {
        self.have
    }

    /// What is remembered of the version that they are of.
    pub(super) fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// Remembers what the server said of the version that comes now. Without it, what comes is of no use to the next
    /// attempt, and nothing else is wrong.
    pub(super) async fn remember(&mut self, note: Note) -> io::Result<()> {
        if self.note.as_ref() == Some(&note) {
            return Ok(());
        }
        let (path, written) = (self.path.clone(), note.clone());
        joined(spawn_blocking(move || written.write(&path)).await)?;
        self.note = Some(note);
        Ok(())
    }

    /// What the note says of what was asked for.
    pub(super) fn asked(&self) -> Fingerprint {
        self.asked
    }

    /// Takes the next bytes; returns when there is room for more.
    pub(super) async fn push(&mut self, chunk: Chunk) -> io::Result<()> {
        let length = Bytes(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        self.tell(Work::Chunk(chunk)).await?;
        self.have = self.have + length;
        Ok(())
    }

    /// Begins with nothing.
    pub(super) async fn restart(&mut self) -> io::Result<()> {
        self.have = Bytes::ZERO;
        self.note = None;
        self.tell(Work::Restart).await
    }

    /// Ends: the bytes are on the disk, and this is their digest.
    pub(super) async fn finish(self) -> io::Result<Sha256Digest> {
        let file = self.writer.finish().await?;
        let hash = self.hasher.finish().await?;
        joined(spawn_blocking(move || file.sync_all()).await)?;
        Ok(Sha256Digest(hash.finalize().into()))
    }

    /// Ends, and removes the file: it must not be continued.
    pub(super) async fn discard(self) -> io::Result<()> {
        // An error of writing does not matter to a file that goes.
        drop(self.writer.finish().await);
        drop(self.hasher.finish().await);
        Self::remove(&self.path).await
    }

    /// Waits until what came is written, so that a later attempt finds it. The bytes need not be on the disk. Of
    /// nothing, nothing is left.
    pub(super) async fn leave(self) -> io::Result<()> {
        if self.have == Bytes::ZERO {
            return self.discard().await;
        }
        drop(self.hasher.finish().await);
        self.writer.finish().await.map(drop)
    }

    /// Removes the file at `path`, which nobody has open, and what is remembered of it.
    pub(super) async fn remove(path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        let remove = move || {
            Note::remove(&path)?;
            fs::remove_file(&path)
        };
        joined(spawn_blocking(remove).await)
    }

    /// Forgets what is remembered of the file at `path`, which is whole.
    pub(super) async fn forget(path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        joined(spawn_blocking(move || Note::remove(&path)).await)
    }

    async fn tell(&mut self, work: Work) -> io::Result<()> {
        self.writer.tell(work.clone()).await?;
        self.hasher.tell(work).await
    }
}

// === impl Worker ===

impl<T: Send + 'static> Worker<T> {
    fn start(mut state: T, step: impl Fn(&mut T, Work) -> io::Result<()> + Send + 'static) -> Self {
        let (work, mut queue) = mpsc::channel(QUEUE);
        let done = spawn_blocking(move || {
            while let Some(work) = queue.blocking_recv() {
                step(&mut state, work)?;
            }
            Ok(state)
        });
        Self {
            work,
            done: Some(done),
        }
    }

    async fn tell(&mut self, work: Work) -> io::Result<()> {
        if self.work.send(work).await.is_ok() {
            return Ok(());
        }
        // It has ended, which it does when it fails.
        match &mut self.done {
            None => Err(io::ErrorKind::BrokenPipe.into()),
            Some(done) => {
                let ended = joined(done.await);
                self.done = None;
                ended.and_then(|_| Err(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    async fn finish(self) -> io::Result<T> {
        drop(self.work);
        match self.done {
            None => Err(io::ErrorKind::BrokenPipe.into()),
            Some(done) => joined(done.await),
        }
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

fn open(
    path: &Path,
    asked: Fingerprint,
    stop: &Stop,
) -> io::Result<(File, Sha256, Bytes, Option<Note>)> {
    let mut file = locked(path)?;
    let note = Note::read(path).filter(|note| note.asked == asked);
    if note.is_none() {
        file.set_len(0)?;
        Note::remove(path)?;
        return Ok((file, Sha256::new(), Bytes::ZERO, None));
    }
    let mut hash = Sha256::new();
    let mut have: u64 = 0;
    let mut buffer = vec![0; READ];
    loop {
        if stop.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(buffer.get(..read).unwrap_or_default());
        have = have.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
    // A write that was cut off by a crash may have left the file longer than what was read of it.
    file.set_len(have)?;
    file.seek(SeekFrom::Start(have))?;
    Ok((file, hash, Bytes(have), note))
}

/// The file, which nobody else writes to: a thread of an attempt that was given up may still have some chunks.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match file.lock() {
            // A file system without locks has no second attempt to fear but our own, which the caller holds off.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            locked => locked?,
        }
        // While we waited it may have been removed or given its final name: then this is another file.
        let ours = file.metadata()?;
        match fs::metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

fn write(file: &mut File, work: Work) -> io::Result<()> {
    match work {
        Work::Chunk(chunk) => file.write_all(&chunk),
        Work::Restart => {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0)).map(drop)
        }
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a step of a worker may fail; this one never does"
)]
fn hash_chunk(hash: &mut Sha256, work: Work) -> io::Result<()> {
    match work {
        Work::Chunk(chunk) => hash.update(&chunk),
        Work::Restart => *hash = Sha256::new(),
    }
    Ok(())
}

fn joined<T>(done: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Chunks that may wait for a thread; some MiB.
const QUEUE: usize = 16;
const READ: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_has_failed_says_why_once_and_is_no_panic_afterwards() {
        let full = |_: &mut (), _| Err(io::Error::from(io::ErrorKind::StorageFull));
        let mut worker = Worker::start((), full);
        let why = loop {
            if let Err(error) = worker.tell(Work::Restart).await {
                break error.kind();
            }
        };
        assert_eq!(why, io::ErrorKind::StorageFull);
        assert!(worker.tell(Work::Restart).await.is_err());
        assert!(worker.finish().await.is_err());
    }
}
