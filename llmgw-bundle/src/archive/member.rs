//! One member out of a zip archive, checked.

use std::{collections::HashSet, io::Write, path::Path};

use llmgw_core::{cluster::weights::Sha256Digest, units::Bytes};

use super::{
    input,
    reading::Reading,
    zip::{self, Directory, What},
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
/// The whole directory and the headers of all members are checked before the first byte of the member is read: an
/// archive with one hostile name in it is not an archive to take another file from. The bytes of other members
/// are not read.
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
    let reading = Reading {
        archive,
        limits,
        cancelled: &|| false,
    };
    let (file, length) = input::open(archive)?;
    let directory = Directory::read(&reading, &file, length)?;
    let mut names = HashSet::new();
    for stored in &directory.stored {
        if !names.insert(stored.path.as_str()) {
            return Err(reading.refused(&stored.name, Rule::Duplicate));
        }
    }
    let found = directory.stored.iter().find(|stored| stored.name == member);
    let stored = found.ok_or_else(|| ArchiveError::NoMember {
        archive: archive.to_owned(),
        entry: member.to_owned(),
    })?;
    if !matches!(stored.what, What::File { .. }) {
        return Err(reading.refused(member, Rule::NotAFile));
    }
    let mut writer = HashingWriter::new(destination);
    let mut packed = zip::packed(&file, stored);
    zip::unpack(&reading, stored, &mut packed, &mut |chunk| {
        writer
            .write_all(chunk)
            .map_err(|source| reading.write(member, source))
    })?;
    writer
        .flush()
        .map_err(|source| reading.write(member, source))?;
    let digested = writer.finish();
    Ok(Member {
        bytes: digested.bytes,
        sha256: digested.sha256,
    })
}
