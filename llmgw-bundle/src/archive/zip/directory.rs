//! The directory at the end of a zip archive (APPNOTE.TXT, sections 4.3.12 to 4.3.16).

use std::{
    fs::File,
    io::{self, BufReader, Read},
};

use flate2::Crc;
use llmgw_core::units::Bytes;

use super::{
    fields::{Extra, Fields, wrong},
    local,
};
use crate::{
    archive::{
        content::BUFFER,
        format::Format,
        input::Window,
        name::{self, Name},
        reading::Reading,
        tar::{OWNER_MAY_EXECUTE, SET_ID},
    },
    error::{Ambiguity, ArchiveError, Rule},
};

/// All members, in the order of their bytes; their headers have been held against the directory.
#[derive(Debug)]
pub(in crate::archive) struct Directory {
    pub(in crate::archive) stored: Vec<Stored>,
}

/// A member as it is stored.
#[derive(Debug)]
pub(in crate::archive) struct Stored {
    /// The name as it stands there.
    pub(in crate::archive) name: String,
    /// The name without the slash of a folder.
    pub(in crate::archive) path: String,
    pub(in crate::archive) what: What,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) is_deflated: bool,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(in crate::archive) size: u64,
    /// Where its own header begins.
    pub(super) start: u64,
    /// Where its bytes begin, behind its own header.
    pub(super) data: u64,
}

/// What a member is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::archive) enum What {
    Folder,
    File { executable: bool },
    Link,
}

impl Directory {
    /// Reads the directory of the archive `file`, and each member's own header.
    pub(in crate::archive) fn read(
        reading: &Reading<'_>,
        file: &File,
        length: u64,
    ) -> Result<Self, ArchiveError> {
        let limits = reading.limits;
        let not_whole = |source: io::Error| reading.not_whole(Format::Zip, source);
        let end = End::find(file, length).map_err(not_whole)?;
        let End { count, start, stop } = match end {
            Found::End(end) => end,
            Found::Twice => {
                let rule = Rule::Ambiguous(Ambiguity::Directory);
                return Err(reading.refused_whole(rule));
            }
        };
        if usize::try_from(count).map_or(true, |count| count > limits.entries) {
            return Err(reading.refused_whole(Rule::TooManyEntries(limits.entries)));
        }
        let mut records = BufReader::with_capacity(BUFFER, Window::new(file, start, stop));
        let mut stored: Vec<Stored> = Vec::new();
        let mut text = 0_u64;
        let mut total = 0_u64;
        for _ in 0..count {
            reading.go_on()?;
            let record = Record::read(&mut records).map_err(not_whole)?;
            text = text.saturating_add(u64::try_from(record.name.len()).unwrap_or(u64::MAX));
            if text > limits.text.0 {
                return Err(reading.refused_whole(Rule::TooMuchText(limits.text)));
            }
            let one = record
                .check(reading)
                .map_err(|rule| reading.refused(&name::shown(&record.name), rule))?;
            total = total.saturating_add(one.size);
            stored.push(one);
        }
        let mut rest = [0];
        if records.read(&mut rest).map_err(not_whole)? > 0 {
            return Err(not_whole(wrong("its directory has more than its entries")));
        }
        if limits.is_too_dense(total, length) {
            return Err(reading.refused_whole(Rule::TooDense(limits.ratio)));
        }
        stored.sort_by_key(|one| one.start);
        local::check_all(reading, file, &mut stored, start)?;
        Ok(Self { stored })
    }
}

/// What stands at the very end.
struct End {
    count: u64,
    /// Where the directory begins, and where it has ended.
    start: u64,
    stop: u64,
}

enum Found {
    End(End),
    Twice,
}

// === impl End ===

impl End {
    /// Finds the end of the archive. A comment may follow, in which there must be no second end.
    fn find(file: &File, length: u64) -> io::Result<Found> {
        let from = length.saturating_sub(END_LENGTH + u64::from(u16::MAX));
        let mut tail = Vec::new();
        Window::new(file, from, length).read_to_end(&mut tail)?;
        let mut ends = tail
            .windows(END.len())
            .enumerate()
            .rev()
            .filter(|(_, window)| *window == END)
            .filter_map(|(at, _)| Some((at, tail.get(at..)?)));
        let is_last = |end: &[u8]| {
            let comment = end.get(20..22).and_then(|field| field.first_chunk());
            comment.is_some_and(|field| end.len() == usize::from(u16::from_le_bytes(*field)) + 22)
        };
        let Some((at, end)) = ends.next() else {
            return Err(wrong("it has no directory at its end"));
        };
        let others = ends.filter(|(_, end)| is_last(end)).count();
        match (is_last(end), others) {
            (true, 0) => {}
            (false, 0) => return Err(wrong("it has no directory at its end")),
            _ => return Ok(Found::Twice),
        }
        let at = from.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        Self::read(file, at, end).map(Found::End)
    }

    fn read(file: &File, at: u64, end: &[u8]) -> io::Result<Self> {
        let mut fields = Fields(end);
        fields.take(4)?;
        let disks = (fields.u16()?, fields.u16()?);
        let counts = (fields.u16()?, fields.u16()?);
        let (size, start) = (fields.u32()?, fields.u32()?);
        let own = Self {
            count: u64::from(counts.1),
            start: u64::from(start),
            stop: at,
        };
        let (end, size) = match Self::large(file, at)? {
            None => (own, u64::from(size)),
            Some((large, large_size)) => {
                // What is too large for the old fields is all ones there.
                let agree = |old: u64, most: u64, new: u64| old == most || old == new;
                let ones = u64::from(u32::MAX);
                if !agree(own.count, u64::from(u16::MAX), large.count)
                    || !agree(u64::from(size), ones, large_size)
                    || !agree(own.start, ones, large.start)
                {
                    return Err(wrong("its two ends contradict each other"));
                }
                (large, large_size)
            }
        };
        if disks != (0, 0) || counts.0 != counts.1 {
            return Err(wrong("it is a part of an archive on several disks"));
        }
        if end.start.checked_add(size) != Some(end.stop) {
            return Err(wrong("its directory is not where its end says"));
        }
        Ok(end)
    }

    /// The end in 64 bits, when one stands before the end at `at`, and the size of the directory.
    fn large(file: &File, at: u64) -> io::Result<Option<(Self, u64)>> {
        let Some(locator_at) = at.checked_sub(LOCATOR_LENGTH) else {
            return Ok(None);
        };
        let locator = bytes(file, locator_at, LOCATOR_LENGTH)?;
        let mut fields = Fields(&locator);
        if fields.take(4)? != LOCATOR {
            return Ok(None);
        }
        let (disk, stop, disks) = (fields.u32()?, fields.u64()?, fields.u32()?);
        if stop.checked_add(LARGE_END_LENGTH) != Some(locator_at) || disk != 0 || disks > 1 {
            return Err(wrong("its 64-bit end is not where its locator says"));
        }
        let end = bytes(file, stop, LARGE_END_LENGTH)?;
        let mut fields = Fields(&end);
        let is_end = fields.take(4)? == LARGE_END;
        // The length counts from behind itself.
        let length = fields.u64()?;
        fields.take(4)?;
        let disks = (fields.u32()?, fields.u32()?);
        let counts = (fields.u64()?, fields.u64()?);
        let (size, start) = (fields.u64()?, fields.u64()?);
        if !is_end || length != LARGE_END_LENGTH - 12 || disks != (0, 0) || counts.0 != counts.1 {
            return Err(wrong("its 64-bit end can't be read"));
        }
        let count = counts.1;
        Ok(Some((Self { count, start, stop }, size)))
    }
}

/// What the directory says of a member.
struct Record {
    host: u8,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    attributes: u32,
    start: u64,
    name: Vec<u8>,
    /// The name in another encoding than the directory's, when there is one, and the checksum of that one.
    unicode_name: Option<Vec<u8>>,
}

// === impl Record ===

impl Record {
    fn read(records: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; RECORD_LENGTH];
        records.read_exact(&mut head)?;
        let mut fields = Fields(&head);
        if fields.take(4)? != RECORD {
            return Err(wrong("its directory has no entry where one must be"));
        }
        let [_, host] = fields.u16()?.to_le_bytes();
        fields.take(2)?;
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.take(4)?;
        let crc = fields.u32()?;
        let (mut packed, mut size) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
        let (name, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
        let disk = fields.u16()?;
        fields.take(2)?;
        let attributes = fields.u32()?;
        let mut start = u64::from(fields.u32()?);
        if disk != 0 {
            return Err(wrong("it is a part of an archive on several disks"));
        }
        let mut tail = vec![0; usize::from(name) + usize::from(extra) + usize::from(comment)];
        records.read_exact(&mut tail)?;
        let mut fields = Fields(&tail);
        let name = fields.take(usize::from(name))?.to_vec();
        let extra = Extra::read(fields.take(usize::from(extra))?)?;
        extra.widen(&mut [&mut size, &mut packed, &mut start])?;
        Ok(Self {
            host,
            flags,
            method,
            crc,
            packed,
            size,
            attributes,
            start,
            name,
            unicode_name: extra.unicode_name.map(<[u8]>::to_vec),
        })
    }

    /// Checks what can be checked without the member's own header.
    fn check(&self, reading: &Reading<'_>) -> Result<Stored, Rule> {
        let limits = reading.limits;
        let name = Name::new(&self.name, limits)?;
        let text = String::from_utf8_lossy(&self.name).into_owned();
        if !self.name_is_unicode() {
            return Err(Rule::UnreadableName);
        }
        if self.flags & ENCRYPTED != 0 {
            return Err(Rule::Encrypted);
        }
        if !matches!(self.method, STORED | DEFLATED) || self.flags & PATCHED != 0 {
            return Err(Rule::Method);
        }
        let what = self.what(name.is_folder)?;
        if self.size > limits.member.0 {
            return Err(Rule::TooLarge(limits.member));
        }
        if limits.is_too_dense(self.size, self.packed) {
            return Err(Rule::TooDense(limits.ratio));
        }
        if what == What::Link && usize::try_from(self.size).map_or(true, |size| size > limits.name)
        {
            return Err(Rule::LongName(limits.name));
        }
        if self.method == STORED && self.size != self.packed {
            return Err(Rule::OtherSize {
                declared: Bytes(self.size),
                actual: Bytes(self.packed),
            });
        }
        Ok(Stored {
            name: text,
            path: name.path,
            what,
            flags: self.flags,
            method: self.method,
            is_deflated: self.method == DEFLATED,
            crc: self.crc,
            packed: self.packed,
            size: self.size,
            start: self.start,
            data: 0,
        })
    }

    /// Whether all readers take the name for the same: beyond ASCII, it must be said that it is UTF-8.
    fn name_is_unicode(&self) -> bool {
        let Some(field) = &self.unicode_name else {
            return self.name.is_ascii() || self.flags & NAME_IS_UTF8 != 0;
        };
        let mut crc = Crc::new();
        crc.update(&self.name);
        let sum = crc.sum().to_le_bytes();
        field
            .strip_prefix(&[1])
            .and_then(|field| field.strip_prefix(&sum))
            .is_some_and(|name| name == self.name)
    }

    /// What it is: by the mode of Unix where there is one, else by the slash at the end of its name.
    fn what(&self, has_slash: bool) -> Result<What, Rule> {
        let mode = self.attributes >> 16;
        let is_unix = matches!(self.host, UNIX | MACOS);
        let odd = Rule::Ambiguous(Ambiguity::Folder);
        let what = match mode & KIND {
            0 if has_slash => What::Folder,
            0 | REGULAR => What::File {
                executable: is_unix && mode & OWNER_MAY_EXECUTE != 0,
            },
            FOLDER => What::Folder,
            LINK => What::Link,
            CHARACTER_DEVICE | BLOCK_DEVICE => return Err(Rule::Device),
            PIPE | SOCKET => return Err(Rule::Pipe),
            _ => return Err(Rule::UnknownKind),
        };
        let is_folder = what == What::Folder;
        if is_folder != has_slash || is_folder && self.size != 0 {
            return Err(odd);
        }
        if what != What::Link && mode & SET_ID != 0 {
            return Err(Rule::SetId);
        }
        Ok(what)
    }
}

/// `length` bytes of `file` at `at`.
pub(super) fn bytes(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Window::new(file, at, at.saturating_add(length)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()) != Ok(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

const END: &[u8] = b"PK\x05\x06";
const LARGE_END: &[u8] = b"PK\x06\x06";
const LOCATOR: &[u8] = b"PK\x06\x07";
const RECORD: &[u8] = b"PK\x01\x02";
/// Of each, without what has a length of its own.
const END_LENGTH: u64 = 22;
const LARGE_END_LENGTH: u64 = 56;
const LOCATOR_LENGTH: u64 = 20;
const RECORD_LENGTH: usize = 46;

/// Bits of the flags (APPNOTE.TXT, section 4.4.4): encrypted, by strong encryption, with masked headers.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const PATCHED: u16 = 1 << 5;
const NAME_IS_UTF8: u16 = 1 << 11;
/// Methods (section 4.4.5).
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Hosts whose attributes are those of Unix (section 4.4.2).
const UNIX: u8 = 3;
const MACOS: u8 = 19;

/// `S_IFMT` of POSIX's `sys/stat.h`, and what it says.
const KIND: u32 = 0o170_000;
const PIPE: u32 = 0o010_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const FOLDER: u32 = 0o040_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;
