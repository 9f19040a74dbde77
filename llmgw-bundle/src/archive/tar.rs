//! Tar archives, block by block.
//!
//! Every block is accounted for: headers with their checksums, extended headers with the entry that they belong
//! to, the bytes of files, the end mark, and nothing but zeros after it. Where readers are known to differ (a
//! size in the header and another in the extended header; a prefix in a header that has none; a folder with
//! bytes) the archive is refused.

mod header;
mod pax;

use std::io::{self, ErrorKind, Read};

use llmgw_core::units::Bytes;

use self::{
    header::{BLOCK, Header},
    pax::Extended,
};
use super::{
    content,
    input::Input,
    listing::{Entry, Kind},
    name::{self, Name},
    reading::Reading,
    walk::Visitor,
};
use crate::error::{Ambiguity, ArchiveError, Rule};

/// Whether a tar archive can begin like this: with a header, or with its end.
pub(super) fn is_first_block(start: &[u8]) -> bool {
    start
        .first_chunk::<BLOCK>()
        .is_some_and(|block| is_zero(block) || header::has_its_checksum(block))
}

/// Shows `visitor` what is in the archive that `stream` is, up to the end of `stream`.
pub(super) fn walk(
    input: &Input<'_>,
    stream: &mut dyn Read,
    visitor: &mut dyn Visitor,
) -> Result<(), ArchiveError> {
    let mut tar = Tar {
        input,
        reading: input.reading,
        stream,
    };
    let mut about = About::default();
    // Headers of all kinds: a list of extended headers without end has no entries.
    let mut headers = 0_usize;
    loop {
        tar.reading.go_on()?;
        let block = tar.block()?;
        if is_zero(&block) {
            break;
        }
        headers = headers.saturating_add(1);
        if headers / HEADERS_PER_ENTRY >= tar.reading.limits.entries {
            let rule = Rule::TooManyEntries(tar.reading.limits.entries);
            return Err(tar.reading.refused_whole(rule));
        }
        let header = Header::read(&block)
            .map_err(|rule| tar.reading.refused(&header::shown(&block), rule))?;
        tar.take(header, &mut about, visitor)?;
    }
    if !about.is_empty() {
        return Err(tar.reading.refused_whole(Rule::ExtendedHeader));
    }
    tar.end()
}

/// What was said of the next entry before its own header.
#[derive(Debug, Default)]
struct About {
    extended: Option<Extended>,
    long_name: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
}

struct Tar<'a> {
    input: &'a Input<'a>,
    reading: Reading<'a>,
    stream: &'a mut dyn Read,
}

// === impl About ===

impl About {
    fn is_empty(&self) -> bool {
        let Self {
            extended,
            long_name,
            long_target,
        } = self;
        extended.is_none() && long_name.is_none() && long_target.is_none()
    }

    /// Keeps what is said only once.
    fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Rule> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(Rule::ExtendedHeader),
        }
    }

    /// The name, the target and the size that hold, out of all that was said.
    fn resolve(self, header: &Header) -> Result<(Vec<u8>, Vec<u8>, u64), Rule> {
        let Self {
            extended,
            long_name,
            long_target,
        } = self;
        let Extended { path, link, size } = extended.unwrap_or_default();
        if path.is_some() && long_name.is_some() || link.is_some() && long_target.is_some() {
            return Err(Rule::Ambiguous(Ambiguity::Name));
        }
        let size = match size {
            // What is too large for the header's digits is zero there.
            Some(size) if header.size == size || header.size == 0 && size > LARGEST_OCTAL => size,
            Some(_) => return Err(Rule::Ambiguous(Ambiguity::Size)),
            None => header.size,
        };
        let name = path.or(long_name).unwrap_or_else(|| header.name.clone());
        let target = link.or(long_target).unwrap_or_else(|| header.link.clone());
        Ok((name, target, size))
    }
}

// === impl Tar ===

impl Tar<'_> {
    /// Takes one header and what belongs to it.
    fn take(
        &mut self,
        header: Header,
        about: &mut About,
        visitor: &mut dyn Visitor,
    ) -> Result<(), ArchiveError> {
        let shown = name::shown(&header.name);
        let reading = self.reading;
        let refused = |rule| reading.refused(&shown, rule);
        match header.flag {
            b'x' => {
                let body = self.extension(&header)?;
                let extended = Extended::read(&body).map_err(refused)?;
                About::set(&mut about.extended, extended).map_err(refused)
            }
            b'g' => {
                let body = self.extension(&header)?;
                pax::check_global(&body).map_err(refused)
            }
            b'L' => {
                let body = self.extension(&header)?;
                About::set(&mut about.long_name, without_end(body)).map_err(refused)
            }
            b'K' => {
                let body = self.extension(&header)?;
                About::set(&mut about.long_target, without_end(body)).map_err(refused)
            }
            _ => {
                let about = std::mem::take(about);
                let (name, target, size) = about.resolve(&header).map_err(refused)?;
                let shown = name::shown(&name);
                let refused = |rule| reading.refused(&shown, rule);
                let entry = self.entry(&header, &name, &target, size).map_err(refused)?;
                match entry {
                    Some(entry) => self.show(entry, &shown, visitor),
                    None => Ok(()),
                }
            }
        }
    }

    /// The entry that a header is of; none for the folder that all are in.
    fn entry(
        &self,
        header: &Header,
        name: &[u8],
        target: &[u8],
        size: u64,
    ) -> Result<Option<Entry>, Rule> {
        let limits = self.reading.limits;
        let name = Name::in_tar(name, limits)?;
        let odd = Rule::Ambiguous(Ambiguity::Folder);
        let is_file = match header.flag {
            // Before there was a flag for folders, the slash made one.
            b'\0' => !name.is_folder,
            b'0' if name.is_folder => return Err(odd),
            b'0' => true,
            b'1' => return Err(Rule::HardLink),
            b'2' => {
                if name.is_folder || size != 0 {
                    return Err(odd);
                }
                let target = name::target(target, limits)?;
                return Ok(Some(Entry {
                    path: name.path,
                    kind: Kind::Link { target },
                }));
            }
            b'3' | b'4' => return Err(Rule::Device),
            b'5' => false,
            b'6' => return Err(Rule::Pipe),
            _ => return Err(Rule::UnknownKind),
        };
        if header.mode & SET_ID != 0 {
            return Err(Rule::SetId);
        }
        let kind = if is_file {
            if size > limits.member.0 {
                return Err(Rule::TooLarge(limits.member));
            }
            Kind::File {
                bytes: Bytes(size),
                executable: header.mode & OWNER_MAY_EXECUTE != 0,
            }
        } else if size == 0 {
            Kind::Folder
        } else {
            return Err(odd);
        };
        let path = name.path;
        match kind {
            Kind::Folder if path.is_empty() => Ok(None),
            _ if path.is_empty() => Err(Rule::LeavingName),
            kind => Ok(Some(Entry { path, kind })),
        }
    }

    fn show(
        &mut self,
        entry: Entry,
        shown: &str,
        visitor: &mut dyn Visitor,
    ) -> Result<(), ArchiveError> {
        let Kind::File { bytes, .. } = entry.kind else {
            return visitor.entry(entry);
        };
        visitor.entry(entry)?;
        let reading = self.reading;
        let mut body = (&mut *self.stream).take(bytes.0);
        let came = content::copy(&reading, shown, &mut body, bytes.0, &mut |chunk| {
            visitor.bytes(chunk)
        })?;
        if came != bytes.0 {
            return Err(reading.refused(shown, Rule::CutOff));
        }
        self.padding(bytes.0)?;
        visitor.end()
    }

    /// The body of an extended header.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, ArchiveError> {
        let reading = self.reading;
        let shown = name::shown(&header.name);
        if header.size > LARGEST_EXTENSION {
            return Err(reading.refused(&shown, Rule::ExtendedHeader));
        }
        let mut body = Vec::new();
        let read = (&mut *self.stream).take(header.size).read_to_end(&mut body);
        let count = read.map_err(|source| reading.damaged(&shown, source))?;
        if u64::try_from(count) != Ok(header.size) {
            return Err(reading.refused(&shown, Rule::CutOff));
        }
        self.padding(header.size)?;
        Ok(body)
    }

    /// What fills the last block of a body. Old programs left there whatever was in their memory.
    fn padding(&mut self, size: u64) -> Result<(), ArchiveError> {
        const BLOCK_SIZE: u64 = BLOCK as u64;
        let length = size.wrapping_neg() % BLOCK_SIZE;
        let mut rest = [0; BLOCK];
        let end = usize::try_from(length).unwrap_or_default();
        self.fill(rest.get_mut(..end).unwrap_or_default())
    }

    /// The next block; there is always one before the end mark.
    fn block(&mut self) -> Result<[u8; BLOCK], ArchiveError> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        self.stream
            .read_exact(buffer)
            .map_err(|source| self.failed(source))
    }

    /// The end mark is two blocks of zeros (POSIX.1-2017, pax, "ustar Interchange Format"); programs fill their
    /// last record with more.
    fn end(&mut self) -> Result<(), ArchiveError> {
        let second = self.block()?;
        if !is_zero(&second) {
            return Err(self.after_end(&second));
        }
        let mut left = MOST_FILLING;
        let mut block = [0; BLOCK];
        loop {
            let mut count = 0;
            // Read by blocks, so that a second archive is known by its first header.
            while let Some(rest) = block.get_mut(count..).filter(|rest| !rest.is_empty()) {
                match self.stream.read(rest) {
                    Ok(0) => break,
                    Ok(more) => count += more,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(source) => return Err(self.failed(source)),
                }
            }
            let filling = block.get(..count).unwrap_or_default();
            left = left.saturating_sub(count);
            if !is_zero(filling) || left == 0 {
                return Err(self.after_end(filling));
            }
            if count < BLOCK {
                return Ok(());
            }
        }
    }

    fn after_end(&self, block: &[u8]) -> ArchiveError {
        let another = block
            .first_chunk::<BLOCK>()
            .is_some_and(header::has_its_checksum);
        self.reading.refused_whole(if another {
            Rule::Concatenated
        } else {
            Rule::AfterEnd
        })
    }

    /// Reading between the entries failed.
    fn failed(&self, source: io::Error) -> ArchiveError {
        if source.kind() == ErrorKind::UnexpectedEof {
            return self.reading.refused_whole(Rule::CutOff);
        }
        self.reading.not_whole(self.input.format, source)
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// GNU's long names end with a zero.
fn without_end(mut body: Vec<u8>) -> Vec<u8> {
    if body.last() == Some(&0) {
        body.pop();
    }
    body
}

/// A long name, a long target and an extended header, before that of the entry.
const HEADERS_PER_ENTRY: usize = 4;
/// Set-user-id, set-group-id and sticky.
pub(super) const SET_ID: u32 = 0o7000;
pub(super) const OWNER_MAY_EXECUTE: u32 = 0o100;
/// Eleven octal digits.
const LARGEST_OCTAL: u64 = 0o77_777_777_777;
/// Names end at 4 KiB; extended attributes, which are not kept, may be as long as Linux lets them be in all.
const LARGEST_EXTENSION: u64 = 1 << 20;
/// `tar --blocking-factor` of 2,048, a hundred times its default.
const MOST_FILLING: usize = 1 << 20;
