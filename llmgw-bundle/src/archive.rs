//! One member out of a zip archive, checked.
//!
//! The whole directory is read and checked before the first byte of the member is: an archive with one hostile
//! name in it is not an archive to take another file from. Local headers must say what the directory says, so
//! that no other program finds another file under the same name.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufReader, ErrorKind, Read, Write},
    path::Path,
};

use llmgw_core::{cluster::weights::Sha256Digest, units::Bytes};
use zip::{
    CompressionMethod, ZipReadOptions,
    read::{ArchiveOffset, Config, ZipFileEntry},
    result::ZipError,
    unstable::read::ZipIterable,
};

use crate::{
    digest::HashingWriter,
    error::{ArchiveError, Rule},
    limits::Limits,
};

/// What was extracted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// How many bytes.
    pub bytes: Bytes,
    /// Their digest.
    pub sha256: Sha256Digest,
}

/// Writes the entry `member` of the zip archive at `archive` to `destination`.
///
/// On an error, `destination` may have got a part of the member: write to a place that nobody else reads.
///
/// # Errors
/// When the archive or the member breaks a rule of [`Rule`] or a limit, is damaged, or can't be read; the
/// error names the entry and the rule.
pub fn extract_member(
    archive: &Path,
    member: &str,
    destination: &mut dyn Write,
    limits: &Limits,
) -> Result<Member, ArchiveError> {
    let reading = Reading { archive, limits };
    let file = File::open(archive).map_err(|source| ArchiveError::Open {
        archive: archive.to_owned(),
        source,
    })?;
    // Nothing may stand before the archive: a file that two programs read from different offsets is two files.
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let mut zip = ZipIterable::try_new(BufReader::new(file), config)
        .map_err(|source| reading.not_whole(source))?
        .enforce_header_consistency(true);
    if zip.len() > limits.entries {
        return Err(ArchiveError::RefusedWhole {
            archive: archive.to_owned(),
            rule: Rule::TooManyEntries(limits.entries),
        });
    }
    let entries = zip.files().map_err(|source| reading.not_whole(source))?;
    let mut names = HashSet::new();
    let mut found = None;
    for entry in &mut *entries {
        let entry = entry.map_err(|source| reading.not_whole(source))?;
        let name = reading.name(&entry)?;
        if name == member {
            reading.check(&entry, &name)?;
            found = Some(entry);
        }
        if let Some(name) = names.replace(name) {
            return Err(reading.refused(&name, Rule::Duplicate));
        }
    }
    let entry = found.ok_or_else(|| ArchiveError::NoMember {
        archive: archive.to_owned(),
        entry: member.to_owned(),
    })?;
    reading.copy(entry, member, entries.reader_mut(), destination)
}

/// What is read, and how far one goes with it.
#[derive(Clone, Copy)]
struct Reading<'a> {
    archive: &'a Path,
    limits: &'a Limits,
}

impl Reading<'_> {
    /// The entry's name, when it is one that any entry may have.
    fn name(&self, entry: &ZipFileEntry<'_>) -> Result<String, ArchiveError> {
        let raw = entry.name_raw();
        let shown = || String::from_utf8_lossy(raw).into_owned();
        if raw.len() > self.limits.name {
            let start: String = shown().chars().take(64).collect();
            return Err(self.refused(&start, Rule::LongName(self.limits.name)));
        }
        let Ok(name) = std::str::from_utf8(raw) else {
            return Err(self.refused(&shown(), Rule::UnreadableName));
        };
        // A Unicode-path field may give the entry another name than the directory shows.
        if entry.name().is_ok_and(|decoded| decoded != name)
            || name.chars().any(|c| c.is_control() || c == '\\')
        {
            return Err(self.refused(name, Rule::UnreadableName));
        }
        let drive = name.as_bytes().get(1) == Some(&b':');
        if name.starts_with('/') || drive {
            return Err(self.refused(name, Rule::AbsoluteName));
        }
        let path = name.strip_suffix('/').unwrap_or(name);
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(self.refused(name, Rule::LeavingName));
        }
        Ok(name.to_owned())
    }

    /// Checks what the directory says of the member.
    fn check(&self, entry: &ZipFileEntry<'_>, name: &str) -> Result<(), ArchiveError> {
        let (size, packed) = (entry.size(), entry.compressed_size());
        let rule = if !entry.is_file() || !is_regular(entry.unix_mode()) {
            Rule::NotAFile
        } else if entry.encrypted() {
            Rule::Encrypted
        } else if !matches!(
            entry.compression(),
            CompressionMethod::Stored | CompressionMethod::Deflated
        ) {
            Rule::Method
        } else if size > self.limits.member.0 {
            Rule::TooLarge(self.limits.member)
        } else if self.is_too_dense(size, packed) {
            Rule::TooDense(self.limits.ratio)
        } else {
            return Ok(());
        };
        Err(self.refused(name, rule))
    }

    fn is_too_dense(&self, size: u64, packed: u64) -> bool {
        size > self.limits.ratio_from.0 && size > packed.saturating_mul(self.limits.ratio)
    }

    fn copy(
        &self,
        entry: ZipFileEntry<'_>,
        name: &str,
        reader: &mut BufReader<File>,
        destination: &mut dyn Write,
    ) -> Result<Member, ArchiveError> {
        let declared = entry.size();
        let mut body = entry
            .with_reader(reader, ZipReadOptions::new())
            .map_err(|source| self.damaged(name, Box::new(source)))?
            // One byte more than declared is enough to know that the directory lies.
            .take(declared.saturating_add(1));
        let mut writer = HashingWriter::new(destination);
        let mut buffer = vec![0; COPY_BUFFER];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(self.damaged(name, Box::new(source))),
            };
            let chunk = buffer.get(..count).unwrap_or_default();
            writer
                .write_all(chunk)
                .map_err(|source| self.write(name, source))?;
        }
        writer.flush().map_err(|source| self.write(name, source))?;
        let digested = writer.finish();
        if digested.bytes.0 != declared {
            let rule = Rule::OtherSize {
                declared: Bytes(declared),
                actual: digested.bytes,
            };
            return Err(self.refused(name, rule));
        }
        Ok(Member {
            bytes: digested.bytes,
            sha256: digested.sha256,
        })
    }

    fn refused(&self, entry: &str, rule: Rule) -> ArchiveError {
        ArchiveError::Refused {
            archive: self.archive.to_owned(),
            entry: entry.to_owned(),
            rule,
        }
    }

    fn not_whole(&self, source: ZipError) -> ArchiveError {
        ArchiveError::NotWhole {
            archive: self.archive.to_owned(),
            source: Box::new(source),
        }
    }

    fn damaged(
        &self,
        entry: &str,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> ArchiveError {
        ArchiveError::Damaged {
            archive: self.archive.to_owned(),
            entry: entry.to_owned(),
            source,
        }
    }

    fn write(&self, entry: &str, source: std::io::Error) -> ArchiveError {
        ArchiveError::Write {
            archive: self.archive.to_owned(),
            entry: entry.to_owned(),
            source,
        }
    }
}

/// Whether the mode of a Unix entry is that of a file; archives made elsewhere carry none.
fn is_regular(mode: Option<u32>) -> bool {
    mode.is_none_or(|mode| matches!(mode & FILE_KIND, 0 | REGULAR_FILE))
}

/// `S_IFMT` and `S_IFREG` of POSIX's `sys/stat.h`.
const FILE_KIND: u32 = 0o170_000;
const REGULAR_FILE: u32 = 0o100_000;
/// As large as deflate's window twice over; larger buffers were not faster.
const COPY_BUFFER: usize = 64 << 10;
