//! The rules that archives are held to.

use std::fmt;

use llmgw_core::units::Bytes;

/// A rule that archives are held to. What breaks one is refused whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    // Names.
    /// A name is relative.
    AbsoluteName,
    /// A name has no `.` or `..` part and no empty one.
    LeavingName,
    /// A name is text, without control characters and backslashes.
    UnreadableName,
    /// A name is at most so long.
    LongName(usize),
    /// A part of a name is at most so long.
    LongPart(usize),
    /// A name has at most so many parts.
    TooDeep(usize),
    /// A name stands once.
    Duplicate,
    /// Names differ in more than case and Unicode form, in which some file systems don't tell them apart.
    SameFolded,
    /// What stands beneath a name makes that name a folder's, and not a file's.
    FileAsFolder,
    /// Nothing stands beneath a link.
    ThroughLink,
    /// Nothing stands where a link stands.
    OverLink,

    // Kinds.
    /// A member that is asked for is a file.
    NotAFile,
    /// A link leads to a relative place inside the archive, also through other links.
    LeavingLink,
    /// A link leads somewhere.
    EndlessLink,
    /// There are no hard links.
    HardLink,
    /// There are no devices.
    Device,
    /// There are no named pipes and sockets.
    Pipe,
    /// There are no files with holes: each reader fills them in its own way.
    Sparse,
    /// There are files, folders and symbolic links, and nothing else.
    UnknownKind,
    /// There are no set-user-id, set-group-id and sticky bits.
    SetId,

    // Sizes.
    /// A member is at most so large.
    TooLarge(Bytes),
    /// All members together are at most so large.
    TooMuch(Bytes),
    /// A member, or all that comes out of a compressed stream, is at most so many times larger than its
    /// compressed form.
    TooDense(u64),
    /// A member is as large as the header says.
    OtherSize {
        /// What the header says.
        declared: Bytes,
        /// What came.
        actual: Bytes,
    },
    /// A member ends where its header says.
    Longer(Bytes),
    /// There are at most so many entries.
    TooManyEntries(usize),
    /// All names and link targets together are at most so long.
    TooMuchText(Bytes),
    /// A zstd stream asks for at most so much memory.
    WideWindow(Bytes),

    // Structure.
    /// Nothing is encrypted.
    Encrypted,
    /// A member is stored or deflated.
    Method,
    /// A header is read the same way by every reader.
    Ambiguous(Ambiguity),
    /// A header's checksum is that of its bytes.
    HeaderChecksum,
    /// A header's numbers are numbers.
    HeaderNumber,
    /// An extended header is well-formed and belongs to an entry.
    ExtendedHeader,
    /// A header for all entries does not change their names, kinds or sizes.
    GlobalHeader,
    /// The archive ends with an end mark, and not in the middle.
    CutOff,
    /// Nothing follows the end of the archive.
    AfterEnd,
    /// No other archive or compressed stream follows the first.
    Concatenated,
    /// A zip's local header says what the directory says.
    LocalHeader,
    /// The members of a zip don't share bytes.
    Overlap,
    /// Nothing stands between the members of a zip.
    Between,
}

/// In what readers would differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ambiguity {
    /// The header is of none of the known formats: old Unix, ustar and GNU.
    Format,
    /// The name's prefix is set where only some readers look for it.
    Prefix,
    /// The size is said twice, and differently.
    Size,
    /// The name is said twice.
    Name,
    /// The entry is a folder by its name and a file by its kind, or has bytes where there can't be any.
    Folder,
    /// The end of a zip's directory can be found at two places.
    Directory,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::LongName(limit) => {
                return write!(f, "its name is longer than {limit} bytes");
            }
            Self::LongPart(limit) => {
                return write!(f, "a part of its name is longer than {limit} bytes");
            }
            Self::TooDeep(limit) => {
                return write!(f, "its name has more than {limit} parts");
            }
            Self::TooLarge(limit) => return write!(f, "it is larger than {limit}"),
            Self::TooMuch(limit) => {
                return write!(f, "it unpacks to more than {limit} in all");
            }
            Self::TooDense(limit) => {
                return write!(
                    f,
                    "it unpacks to more than {limit} times its compressed size"
                );
            }
            Self::OtherSize { declared, actual } => {
                return write!(
                    f,
                    "it has {} bytes and not the {} that its header says",
                    actual.0, declared.0
                );
            }
            Self::Longer(declared) => {
                return write!(
                    f,
                    "it has more than the {} bytes that its header says",
                    declared.0
                );
            }
            Self::TooManyEntries(limit) => {
                return write!(f, "it has more than {limit} entries");
            }
            Self::TooMuchText(limit) => {
                return write!(f, "its names are longer than {limit} in all");
            }
            Self::WideWindow(limit) => {
                return write!(f, "unpacking it takes more than {limit} of memory");
            }
            Self::Ambiguous(ambiguity) => {
                return write!(f, "readers differ in what it is: {ambiguity}");
            }
            Self::AbsoluteName => "its name is absolute",
            Self::LeavingName => "its name has a part that is empty, . or ..",
            Self::UnreadableName => {
                "its name is not UTF-8, or has control characters or backslashes in it"
            }
            Self::Duplicate => "another entry has the same name",
            Self::SameFolded => {
                "another entry has the same name in other case or another Unicode form"
            }
            Self::FileAsFolder => "an entry stands beneath a file",
            Self::ThroughLink => "it stands beneath a link",
            Self::OverLink => "a link stands where it should",
            Self::NotAFile => "it is not a regular file",
            Self::LeavingLink => "it is a link that leaves the archive",
            Self::EndlessLink => "it is a link that leads to itself",
            Self::HardLink => "it is a hard link",
            Self::Device => "it is a device",
            Self::Pipe => "it is a named pipe or a socket",
            Self::Sparse => "it is a file with holes",
            Self::UnknownKind => "it is neither a file nor a folder nor a symbolic link",
            Self::SetId => "it has a set-user-id, set-group-id or sticky bit",
            Self::Encrypted => "it is encrypted",
            Self::Method => "it is compressed by another method than deflate",
            Self::HeaderChecksum => "its header is not what the header's checksum is of",
            Self::HeaderNumber => "its header has no number where one must be",
            Self::ExtendedHeader => "its extended header is malformed, or belongs to no entry",
            Self::GlobalHeader => {
                "a header for all entries changes their names, their sizes or their form"
            }
            Self::CutOff => "it ends without an end mark",
            Self::AfterEnd => "something follows its end",
            Self::Concatenated => "another archive follows its end",
            Self::LocalHeader => "its own header says something else than the archive's directory",
            Self::Overlap => "it shares bytes with the next entry",
            Self::Between => "something stands between it and the entry before",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "its header is of no known format",
            Self::Prefix => "its name has a prefix that only some look for",
            Self::Size => "its size is said twice, and differently",
            Self::Name => "its name is said twice",
            Self::Folder => "its name, its kind and its size contradict each other",
            Self::Directory => "the end of its directory can be found twice",
        })
    }
}

impl Rule {
    /// What helps whoever has an archive that breaks the rule.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::CutOff
            | Self::HeaderChecksum
            | Self::HeaderNumber
            | Self::OtherSize { .. }
            | Self::Longer(_) => {
                "it may have been cut short or damaged on its way: get it again and compare its sha256"
            }
            Self::TooLarge(_)
            | Self::TooMuch(_)
            | Self::TooDense(_)
            | Self::TooManyEntries(_)
            | Self::TooMuchText(_)
            | Self::WideWindow(_)
            | Self::LongName(_)
            | Self::LongPart(_)
            | Self::TooDeep(_) => {
                "nothing was written; no published engine or wheel is like this, so compare its sha256 with \
                 its maker's"
            }
            Self::Encrypted | Self::Method | Self::Sparse | Self::HardLink => {
                "nothing was written; pack it again without that, as plain files"
            }
            _ => {
                "nothing was written; compare its sha256 with its maker's, and don't unpack it with another \
                 tool before"
            }
        }
    }
}
