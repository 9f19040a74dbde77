//! What was refused, and why.

mod rule;

use std::{error::Error, io, path::PathBuf};

use llmgw_core::error::{Code, Coded};

pub use self::rule::{Ambiguity, Rule};
use crate::archive::Format;

/// Why an archive, or an entry of it, was not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive can't be opened.
    #[error("opening {}", archive.display())]
    Open {
        /// The archive.
        archive: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The archive can't be read on.
    #[error("reading {}", archive.display())]
    Read {
        /// The archive.
        archive: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// It is no archive that is known here.
    #[error("{} is neither a tar nor a zip archive that can be read here", archive.display())]
    UnknownFormat {
        /// The archive.
        archive: PathBuf,
    },
    /// Its name says that it is something else.
    #[error("{} is called .{says}, and is {holds}", archive.display())]
    OtherFormat {
        /// The archive.
        archive: PathBuf,
        /// The end of its name.
        says: &'static str,
        /// What it is.
        holds: Format,
    },
    /// It is no archive of this format, or the end of it is missing.
    #[error("{} is not a whole {format} archive", archive.display())]
    NotWhole {
        /// The archive.
        archive: PathBuf,
        /// What it would be.
        format: Format,
        /// Where reading it ended.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// An entry breaks a rule.
    #[error("{}: entry {entry:?} is refused: {rule}", archive.display())]
    Refused {
        /// The archive.
        archive: PathBuf,
        /// The entry, as it is called there.
        entry: String,
        /// What it breaks.
        rule: Rule,
    },
    /// The archive as a whole breaks a rule.
    #[error("{} is refused: {rule}", archive.display())]
    RefusedWhole {
        /// The archive.
        archive: PathBuf,
        /// What it breaks.
        rule: Rule,
    },
    /// There is no such member.
    #[error("{} has no entry {entry:?}", archive.display())]
    NoMember {
        /// The archive.
        archive: PathBuf,
        /// The name that was looked for.
        entry: String,
    },
    /// The bytes of an entry can't be read, or are not those that its checksum is of.
    #[error("{}: entry {entry:?} is damaged", archive.display())]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// The entry.
        entry: String,
        /// What reading it said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// It is not what was checked a moment ago.
    #[error("{} was written to while it was read", archive.display())]
    Changed {
        /// The archive.
        archive: PathBuf,
    },
    /// What was read can't be written.
    #[error("{}: writing entry {entry:?}", archive.display())]
    Write {
        /// The archive.
        archive: PathBuf,
        /// The entry.
        entry: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// There is something at the destination already.
    #[error("{} exists and is not an empty folder", destination.display())]
    Taken {
        /// Where it should have gone.
        destination: PathBuf,
    },
    /// Another extraction has the destination.
    #[error("{} is being written by another extraction", destination.display())]
    Busy {
        /// Where it should have gone.
        destination: PathBuf,
    },
    /// The destination can't be made.
    #[error("making {}", destination.display())]
    Destination {
        /// Where it should have gone.
        destination: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Extracting failed, and what was written until then can't be removed.
    #[error("{} is half written and can't be removed", partial.display())]
    Left {
        /// What is left.
        partial: PathBuf,
        /// Why extracting failed.
        #[source]
        source: Box<Self>,
    },
    /// Whoever asked for it no longer wants it.
    #[error("extracting {} was cancelled", archive.display())]
    Cancelled {
        /// The archive.
        archive: PathBuf,
    },
}

impl Coded for ArchiveError {
    fn code(&self) -> Code {
        match self {
            Self::UnknownFormat { .. }
            | Self::OtherFormat { .. }
            | Self::NotWhole { .. }
            | Self::Refused { .. }
            | Self::RefusedWhole { .. }
            | Self::Damaged { .. }
            | Self::Changed { .. } => Code::VerificationFailed,
            Self::NoMember { .. } => Code::NotFound,
            Self::Taken { .. } | Self::Busy { .. } => Code::Conflict,
            Self::Cancelled { .. } => Code::ShuttingDown,
            Self::Open { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Destination { .. }
            | Self::Left { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownFormat { .. } => {
                "tar, tar.gz, tar.zst and zip are read; pack it as one of these"
            }
            Self::OtherFormat { .. } => {
                "an archive that is not what it is called was mixed up or tampered with; get it again"
            }
            Self::NotWhole { .. } | Self::Damaged { .. } => {
                "it may have been cut short or damaged on its way: get it again and compare its sha256"
            }
            Self::Refused { rule, .. } | Self::RefusedWhole { rule, .. } => rule.hint(),
            Self::Changed { .. } => "nothing was kept; try again when nobody writes to it",
            Self::Taken { .. } => "name a folder that does not exist yet",
            Self::Busy { .. } => "wait until the other one has ended, or name another folder",
            Self::Write { source, .. } | Self::Destination { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "nothing was kept; free some disk space and try again"
                }
                io::ErrorKind::NotFound => "make the folder above it first",
                _ => return None,
            },
            Self::Left { source, .. } => return source.hint(),
            Self::Open { .. }
            | Self::Read { .. }
            | Self::NoMember { .. }
            | Self::Cancelled { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
