//! Usage on disk, from soon after its call until the store has it.
//!
//! A directory with a file for each parcel of records. A line is a record: the CRC-32 of its JSON, and the JSON. A
//! process that is killed leaves at most a torn last line, a damaged disk some damaged lines, and neither keeps the
//! other lines from being read. What a file had is given to the store again if the process ended before it was
//! removed; the store passes over what it has.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::{cluster::account::UsageRecord, error::Code, error::Coded, units::Bytes};

/// Where a gateway keeps usage until the store has it.
#[derive(Debug)]
pub struct UsageSpool {
    directory: PathBuf,
    limit: Bytes,
    /// What an earlier process left.
    left: Vec<Left>,
    /// Held for as long as the directory is ours.
    _lock: File,
}

/// Why a spool can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// Another gateway has it.
    #[error("{} is used by another gateway", directory.display())]
    Used {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory can't be made or read.
    #[error("{doing} {}", path.display())]
    Unusable {
        /// What we were doing.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// A file that an earlier process left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Left {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// Lines, damaged ones too.
    pub(super) records: u64,
}

/// What a file has.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) records: Vec<UsageRecord>,
    /// Lines that are no records any more.
    pub(super) damaged: u64,
}

// === impl UsageSpool ===

impl UsageSpool {
    /// Takes the directory, which is made if it is not there, for as long as the spool lives. At most `limit` is kept
    /// in it. Blocks while it looks at what is there.
    ///
    /// # Errors
    /// [`SpoolError::Used`] when another process or spool has it, and [`SpoolError::Unusable`].
    pub fn open(directory: &Path, limit: Bytes) -> Result<Self, SpoolError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| SpoolError::Unusable {
                doing,
                path,
                source,
            }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("making", directory))?;
        let path = directory.join("lock");
        let lock = private().open(&path).map_err(failed("opening", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let directory = directory.to_owned();
                return Err(SpoolError::Used { directory });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed("locking", &path)(error)),
        }
        let left = list(directory).map_err(failed("reading", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            limit,
            left,
            _lock: lock,
        })
    }

    /// What may be kept.
    pub(super) fn limit(&self) -> Bytes {
        self.limit
    }

    /// What an earlier process left, the oldest first. Told once.
    pub(super) fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    /// Adds records to the file of this number, which has `bytes` until now, and brings them to the disk. Returns
    /// how many bytes it has then. After a failure the file is as it was.
    pub(super) fn append(
        &self,
        number: u64,
        bytes: u64,
        records: &[UsageRecord],
    ) -> io::Result<u64> {
        let mut text = Vec::with_capacity(records.len() * 384);
        for record in records {
            let begin = text.len();
            text.extend_from_slice(NO_SUM);
            serde_json::to_writer(&mut text, record)?;
            if let Some((sum, json)) = text
                .get_mut(begin..)
                .and_then(|line| line.split_at_mut_checked(NO_SUM.len()))
            {
                let mut sum = sum;
                write!(sum, "{:08x}", crc32fast::hash(json))?;
            }
            text.push(b'\n');
        }
        let path = self.path(number);
        let mut file = private().append(true).open(&path)?;
        let added = file.write_all(&text).and_then(|()| file.sync_data());
        let added = added.and_then(|()| match bytes {
            0 => File::open(&self.directory)?.sync_all(),
            _ => Ok(()),
        });
        if let Err(error) = added {
            if bytes == 0 {
                // What stays is a torn line, which is told from a record.
                fs::remove_file(&path).ok();
            } else {
                file.set_len(bytes)?;
            }
            return Err(error);
        }
        Ok(bytes + text.len() as u64)
    }

    /// Reads the file of this number.
    pub(super) fn read(&self, number: u64) -> io::Result<Content> {
        let mut content = Content::default();
        let mut lines = BufReader::new(File::open(self.path(number))?.take(self.limit.0));
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(content);
            }
            match record(&line) {
                Some(record) => content.records.push(record),
                None => content.damaged += 1,
            }
        }
    }

    /// Removes the file of this number; it may be gone already. That it is gone need not survive a power failure.
    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        match fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(file_name(number))
    }
}

impl Coded for SpoolError {
    fn code(&self) -> Code {
        match self {
            Self::Used { .. } => Code::Conflict,
            Self::Unusable { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Used { .. } => Some("give each gateway a data directory of its own".to_owned()),
            Self::Unusable { .. } => None,
        }
    }
}

fn file_name(number: u64) -> String {
    format!("{number:020}.{ENDING}")
}

/// The files that are there, the oldest first.
fn list(directory: &Path) -> io::Result<Vec<Left>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        // What only looks like a file of ours could not be read by its number.
        let ours = |number: &u64| name.to_str() == Some(file_name(*number).as_str());
        let Some(number) = number.filter(ours).filter(|_| path.is_file()) else {
            continue;
        };
        let mut file = BufReader::new(File::open(&path)?);
        let (mut bytes, mut records, mut whole) = (0, 0, true);
        loop {
            let chunk = file.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let length = chunk.len();
            bytes += length as u64;
            records += memchr::memchr_iter(b'\n', chunk).count() as u64;
            whole = chunk.last() == Some(&b'\n');
            file.consume(length);
        }
        left.push(Left {
            number,
            bytes,
            records: records + u64::from(!whole),
        });
    }
    left.sort_unstable_by_key(|left| left.number);
    Ok(left)
}

/// The record of a line, if it is one still.
pub(super) fn record(line: &[u8]) -> Option<UsageRecord> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, json) = line.split_at_checked(9)?;
    let sum = str::from_utf8(sum.strip_suffix(b" ")?).ok()?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (crc32fast::hash(json) == sum).then_some(())?;
    serde_json::from_slice(json).ok()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

/// Where the sum of a line goes, and the space behind it.
const NO_SUM: &[u8] = b"00000000 ";

const ENDING: &str = "usage";

/// Longer than any record.
const LINE: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock::Timestamp,
        id::{KeyId, RequestId},
        units::Tokens,
    };

    pub(super) fn a_record(tokens: u64) -> UsageRecord {
        UsageRecord {
            request: RequestId::generate(),
            key: KeyId::generate(),
            model: "m".parse().unwrap(),
            replica: None,
            prompt_tokens: Tokens(tokens),
            cached_tokens: Tokens(0),
            completion_tokens: Tokens(1),
            estimated: false,
            status: 200,
            started_at: Timestamp(0),
            duration: Duration::from_millis(5),
            time_to_first_token: None,
            level: Default::default(),
            cost: Default::default(),
            guard: Vec::new(),
        }
    }

    fn open(directory: &Path) -> UsageSpool {
        UsageSpool::open(directory, Bytes::mib(1)).unwrap()
    }

    #[test]
    fn what_was_appended_is_read_and_what_was_removed_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let records: Vec<UsageRecord> = (0..5).map(a_record).collect();
        let spool = open(directory.path());
        let bytes = spool.append(7, 0, &records[..3]).unwrap();
        let bytes = spool.append(7, bytes, &records[3..]).unwrap();
        assert_eq!(spool.read(7).unwrap().records, records);
        drop(spool);
        let mut spool = open(directory.path());
        let left = Left {
            number: 7,
            bytes,
            records: 5,
        };
        assert_eq!(spool.take_left(), [left]);
        spool.remove(7).unwrap();
        spool.remove(7).unwrap();
        drop(spool);
        assert!(open(directory.path()).take_left().is_empty());
    }

    #[test]
    fn a_directory_has_one_user_and_files_that_others_cannot_read() {
        use std::os::unix::fs::PermissionsExt as _;

        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("usage");
        let spool = open(&directory);
        let second = UsageSpool::open(&directory, Bytes::mib(1)).unwrap_err();
        assert!(matches!(second, SpoolError::Used { .. }), "{second}");
        spool.append(1, 0, &[a_record(1)]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&spool.path(1))), (0o700, 0o600));
        drop(spool);
        open(&directory);
    }

    #[test]
    fn what_only_looks_like_a_file_of_usage_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(directory.path());
        spool.append(7, 0, &[a_record(1)]).unwrap();
        drop(spool);
        for name in ["9.usage", "x.usage", "00000000000000000009.txt", ".usage"] {
            fs::write(directory.path().join(name), "something else").unwrap();
        }
        fs::create_dir(directory.path().join(file_name(9))).unwrap();
        let left = open(directory.path()).take_left();
        assert_eq!(left.iter().map(|left| left.number).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_torn_line_costs_itself_alone() {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(directory.path());
        let records: Vec<UsageRecord> = (0..3).map(a_record).collect();
        let bytes = spool.append(1, 0, &records).unwrap();
        let file = OpenOptions::new().write(true).open(spool.path(1)).unwrap();
        file.set_len(bytes - 4).unwrap();
        let content = spool.read(1).unwrap();
        assert_eq!(
            (content.records, content.damaged),
            (records[..2].to_vec(), 1)
        );
        drop(spool);
        assert_eq!(open(directory.path()).take_left()[0].records, 3);
    }

    proptest! {
        #[test]
        fn damage_is_noticed_and_kept_to_its_line(at in 0_usize..1_000, flip in 1_u8..=255) {
            let directory = tempfile::tempdir().unwrap();
            let spool = open(directory.path());
            let records: Vec<UsageRecord> = (0..3).map(a_record).collect();
            spool.append(1, 0, &records).unwrap();
            let path = spool.path(1);
            let mut bytes = fs::read(&path).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            fs::write(&path, &bytes).unwrap();
            let content = spool.read(1).unwrap();
            // A hexadecimal digit in the other case is the same digit.
            let lost = records.iter().filter(|record| !content.records.contains(record)).count();
            prop_assert!(content.records.iter().all(|record| records.contains(record)));
            prop_assert!(lost <= 2, "a line break that went joins two lines");
            prop_assert_eq!(lost > 0, content.damaged > 0);
        }

        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(record(&line).is_none());
        }
    }
}
