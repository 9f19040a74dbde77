//! What was refused, and why.

use std::{error::Error, fmt, io, path::PathBuf};

use llmgw_core::{
    error::{Code, Coded},
    units::Bytes,
};

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
    /// It is no zip archive, or the end of it is missing.
    #[error("{} is not a whole zip archive", archive.display())]
    NotWhole {
        /// The archive.
        archive: PathBuf,
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
}

/// A rule that archives are held to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// A name is relative.
    AbsoluteName,
    /// A name has no `.` or `..` part and no empty one.
    LeavingName,
    /// A name is text, without control characters and backslashes.
    UnreadableName,
    /// A name is at most so long.
    LongName(usize),
    /// A name stands once.
    Duplicate,
    /// A member is a file.
    NotAFile,
    /// Nothing is encrypted.
    Encrypted,
    /// A member is stored or deflated.
    Method,
    /// A member is at most so large.
    TooLarge(Bytes),
    /// A member is at most so many times larger than its compressed form.
    TooDense(u64),
    /// A member is as large as the directory says.
    OtherSize {
        /// What the directory says.
        declared: Bytes,
        /// What came.
        actual: Bytes,
    },
    /// There are at most so many entries.
    TooManyEntries(usize),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AbsoluteName => f.write_str("its name is absolute"),
            Self::LeavingName => f.write_str("its name has a part that is empty, . or .."),
            Self::UnreadableName => {
                f.write_str("its name is not UTF-8, or has control characters or backslashes in it")
            }
            Self::LongName(limit) => write!(f, "its name is longer than {limit} bytes"),
            Self::Duplicate => f.write_str("another entry has the same name"),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::Encrypted => f.write_str("it is encrypted"),
            Self::Method => f.write_str("it is compressed by another method than deflate"),
            Self::TooLarge(limit) => write!(f, "it is larger than {limit}"),
            Self::TooDense(limit) => {
                write!(
                    f,
                    "it unpacks to more than {limit} times its compressed size"
                )
            }
            Self::OtherSize { declared, actual } => write!(
                f,
                "it has {} bytes and not the {} that the directory says",
                actual.0, declared.0
            ),
            Self::TooManyEntries(limit) => write!(f, "it has more than {limit} entries"),
        }
    }
}

impl Coded for ArchiveError {
    fn code(&self) -> Code {
        match self {
            Self::NotWhole { .. }
            | Self::Refused { .. }
            | Self::RefusedWhole { .. }
            | Self::Damaged { .. } => Code::VerificationFailed,
            Self::NoMember { .. } => Code::NotFound,
            Self::Open { .. } | Self::Write { .. } => Code::Internal,
        }
    }
}
