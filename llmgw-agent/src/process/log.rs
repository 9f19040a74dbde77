//! The outputs of engines, in files that are bounded in number and in size.
//!
//! Each replica has a file of its own in the data directory's `logs/`. When a model fails, the log of the
//! *first* failure is kept beside, until the model has been ready again: what came after it is mostly the
//! restart's own noise. What was written is read in [parts](part::Part), also while more is written.
//!
//! A log has what its engine wrote, and nothing else: no argument and no variable that the engine was started with is
//! put into it.

pub mod part;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use llmgw_core::id::{ModelName, ReplicaId};

/// The log files of one data directory. Its methods block for as long as the disk does.
#[derive(Clone, Debug)]
pub struct Logs {
    dir: PathBuf,
    /// How much was cut off each log in this life of the agent. Held while a log is cut or read.
    cuts: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
}

impl Logs {
    /// The logs in `dir`, which is made when it is missing.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        Ok(Self {
            dir,
            cuts: Arc::default(),
        })
    }

    /// Makes room for a new replica's log, and says where it is. Of a model's earlier replicas, the logs of the
    /// last few stay, and of those that are `live` all.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn begin(
        &self,
        model: &ModelName,
        replica: ReplicaId,
        live: &BTreeSet<ReplicaId>,
    ) -> io::Result<PathBuf> {
        let mut earlier: Vec<(SystemTime, PathBuf)> = Vec::new();
        let prefix = format!("{}.", file_name(model));
        for file in fs::read_dir(&self.dir)? {
            let file = file?;
            let name = file.file_name();
            let owner: Option<ReplicaId> = name.to_str().and_then(|name| {
                name.strip_prefix(&prefix)?
                    .strip_suffix(".log")?
                    .parse()
                    .ok()
            });
            if owner.is_some_and(|owner| !live.contains(&owner)) {
                // Another replica of the model may begin now, and remove the same files.
                let modified = file.metadata().and_then(|data| data.modified());
                earlier.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), file.path()));
            }
        }
        earlier.sort();
        let surplus = earlier.len().saturating_sub(KEPT_PER_MODEL - 1);
        for (_, path) in earlier.into_iter().take(surplus) {
            self.cuts().remove(&path);
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(self.dir.join(format!("{prefix}{replica}.log")))
    }

    /// Keeps the log of a failure, unless there is one of an earlier failure in the same row.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_first_failure(&self, model: &ModelName, log: &Path) -> io::Result<()> {
        let kept = self.first_failure(model);
        if kept.exists() {
            return Ok(());
        }
        let mut file = private(&kept)?;
        file.write_all(&end_of(log, FAILURE_LIMIT)?.1)
    }

    /// Ends a row of failures: the model is ready. The kept log stays under another name until the next.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn failures_are_over(&self, model: &ModelName) -> io::Result<()> {
        let earlier = self
            .dir
            .join(format!("{}.earlier-failure.log", file_name(model)));
        match fs::rename(self.first_failure(model), earlier) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Where the log of a model's first failure is kept.
    #[must_use]
    pub fn first_failure(&self, model: &ModelName) -> PathBuf {
        self.dir
            .join(format!("{}.first-failure.log", file_name(model)))
    }

    /// Cuts a log that has grown over its limit back to its end, while its writer goes on appending.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn trim(&self, log: &Path) -> io::Result<()> {
        if fs::metadata(log)?.len() <= LOG_LIMIT {
            return Ok(());
        }
        let mut cuts = self.cuts();
        let (before, end) = end_of(log, FAILURE_LIMIT)?;
        // Lines that come between the cut and the write stand before the older ones: that is worth less than a
        // writer's place in a file that is moved away.
        let mut file = fs::OpenOptions::new().append(true).open(log)?;
        file.set_len(0)?;
        let cut = cuts.entry(log.to_owned()).or_default();
        *cut = cut.saturating_add(before);
        file.write_all(&end)
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeMap<PathBuf, u64>> {
        // The counts are right after any panic.
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last lines of a log, fit to be shown: without control characters, each line and all together bounded.
#[must_use]
pub fn tail(log: &Path) -> Vec<String> {
    let (_, bytes) = end_of(log, TAIL_LIMIT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| plain(line, LINE_LIMIT))
        .filter(|line| !line.is_empty())
        .collect();
    let surplus = lines.len().saturating_sub(TAIL_LINES);
    lines.into_iter().skip(surplus).collect()
}

/// A model's name as a file's: `/` would be a directory. Model names contain no comma, so that no two meet, and
/// one for one, so that the longest still is a file name.
fn file_name(model: &ModelName) -> String {
    model.as_str().replace('/', ",")
}

fn private(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// The end of a log, and how many bytes are before it.
fn end_of(log: &Path, limit: u64) -> io::Result<(u64, Vec<u8>)> {
    let mut file = fs::File::open(log)?;
    let before = file.metadata()?.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(before))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((before, bytes))
}

/// Drops escape sequences (ECMA-48: `ESC [ … letter`) and other control characters, and cuts a long line.
fn plain(line: &str, limit: usize) -> String {
    let mut kept = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next_if_eq(&'[').is_some() {
            while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
        } else if !c.is_control() {
            kept.push(c);
        }
    }
    let mut short: String = kept.trim_end().chars().take(limit).collect();
    if short.len() < kept.trim_end().len() {
        short.push('…');
    }
    short
}

const KEPT_PER_MODEL: usize = 4;
const TAIL_LINES: usize = 20;
const LINE_LIMIT: usize = 400;
/// Enough for twenty long lines.
const TAIL_LIMIT: u64 = 64 << 10;
const FAILURE_LIMIT: u64 = 1 << 20;
const LOG_LIMIT: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn logs() -> (tempfile::TempDir, Logs, ModelName) {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path().join("logs")).unwrap();
        (dir, logs, "org/model:7b".parse().unwrap())
    }

    #[test]
    fn the_first_failure_of_a_row_is_kept() {
        let (_dir, logs, model) = logs();
        let log = logs
            .begin(&model, ReplicaId::generate(), &BTreeSet::new())
            .unwrap();
        let kept = || fs::read_to_string(logs.first_failure(&model)).unwrap();
        fs::write(&log, "out of memory").unwrap();
        logs.keep_first_failure(&model, &log).unwrap();
        fs::write(&log, "port in use").unwrap();
        logs.keep_first_failure(&model, &log).unwrap();
        assert_eq!(kept(), "out of memory");
        let mode = fs::metadata(logs.first_failure(&model))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);

        logs.failures_are_over(&model).unwrap();
        logs.failures_are_over(&model).unwrap();
        logs.keep_first_failure(&model, &log).unwrap();
        assert_eq!(kept(), "port in use");
    }

    #[test]
    fn only_the_last_logs_of_a_model_stay_and_those_that_are_written_to() {
        let (_dir, logs, model) = logs();
        let running = ReplicaId::generate();
        let live = BTreeSet::from([running]);
        let begin = |model: &ModelName, replica| {
            let log = logs.begin(model, replica, &live).unwrap();
            fs::write(&log, "x").unwrap();
            log
        };
        let oldest = begin(&model, running);
        let others = begin(&"org".parse().unwrap(), ReplicaId::generate());
        for _ in 0..KEPT_PER_MODEL + 3 {
            begin(&model, ReplicaId::generate());
        }
        assert!(oldest.exists() && others.exists());
        assert_eq!(fs::read_dir(&logs.dir).unwrap().count(), KEPT_PER_MODEL + 2);
    }

    #[test]
    fn a_tail_is_bounded_and_plain_whatever_the_engine_wrote() {
        let (_dir, logs, _) = logs();
        let log = logs.dir.join("x.log");
        let mut bytes = vec![b'x'; 200_000];
        bytes.extend(b"\nbad \xff\xfe bytes\r\n\x1b[31mred\x1b[0m\x07\n\n");
        fs::write(&log, &bytes).unwrap();
        let lines = tail(&log);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].chars().count(), LINE_LIMIT + 1);
        assert_eq!(lines[1], "bad \u{fffd}\u{fffd} bytes");
        assert_eq!(lines[2], "red");
        fs::write(&log, "line\n".repeat(50)).unwrap();
        assert_eq!(tail(&log).len(), TAIL_LINES);
        assert!(tail(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_log_that_grew_too_large_keeps_its_end() {
        let (_dir, logs, _) = logs();
        let log = logs.dir.join("x.log");
        let file = private(&log).unwrap();
        file.set_len(LOG_LIMIT).unwrap();
        logs.trim(&log).unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len(), LOG_LIMIT);
        let mut writer = fs::OpenOptions::new().append(true).open(&log).unwrap();
        writer.write_all(b"the end").unwrap();
        logs.trim(&log).unwrap();
        writer.write_all(b", and more").unwrap();
        let bytes = fs::read(&log).unwrap();
        assert!(bytes.ends_with(b"the end, and more"));
        assert!(bytes.len() < 2 << 20);
    }
}
