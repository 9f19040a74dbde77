//! Each member's own header, and what stands between the members (APPNOTE.TXT, sections 4.3.7 and 4.3.9).

use std::{fs::File, io};

use super::{
    directory::{Stored, bytes},
    fields::{Extra, Fields, wrong},
};
use crate::{
    archive::reading::Reading,
    error::{ArchiveError, Rule},
};

/// Holds the headers of all members, which are in the order of their bytes, against what the directory says, and
/// finds out where their bytes begin. The directory begins at `end`.
pub(super) fn check_all(
    reading: &Reading<'_>,
    file: &File,
    stored: &mut [Stored],
    end: u64,
) -> Result<(), ArchiveError> {
    let starts: Vec<u64> = stored.iter().map(|one| one.start).collect();
    let nexts = starts.iter().skip(1).chain([&end]);
    let mut at = 0;
    for (one, next) in stored.iter_mut().zip(nexts) {
        reading.go_on()?;
        let refused = |one: &Stored, rule| reading.refused(&one.name, rule);
        if one.start != at {
            // They are sorted: only the first can begin too late here.
            return Err(refused(one, Rule::Between));
        }
        let is_same = check(file, one).map_err(|source| reading.damaged(&one.name, source))?;
        if !is_same {
            return Err(refused(one, Rule::LocalHeader));
        }
        let gap = one
            .data
            .checked_add(one.packed)
            .and_then(|stop| next.checked_sub(stop));
        let gap = gap.ok_or_else(|| refused(one, Rule::Overlap))?;
        let filled = if one.flags & SIZES_FOLLOW == 0 {
            gap == 0
        } else {
            has_sizes(file, one, gap).map_err(|source| reading.damaged(&one.name, source))?
        };
        if !filled {
            return Err(refused(one, Rule::Between));
        }
        at = *next;
    }
    if at != end {
        return Err(reading.refused_whole(Rule::Between));
    }
    Ok(())
}

/// Whether the member's own header says what the directory says. Times and attributes may differ.
fn check(file: &File, one: &mut Stored) -> io::Result<bool> {
    let head = bytes(file, one.start, HEADER_LENGTH)?;
    let mut fields = Fields(&head);
    if fields.take(4)? != HEADER {
        return Err(wrong("it has no header of its own"));
    }
    fields.take(2)?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    fields.take(4)?;
    let crc = fields.u32()?;
    let (mut packed, mut size) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
    let (name, extra) = (fields.u16()?, fields.u16()?);
    let tail = u64::from(name) + u64::from(extra);
    let at = one.start.saturating_add(HEADER_LENGTH);
    one.data = at.saturating_add(tail);
    let tail = bytes(file, at, tail)?;
    let mut fields = Fields(&tail);
    let name = fields.take(usize::from(name))?;
    let extra = Extra::read(fields.take(usize::from(extra))?)?;
    extra.widen(&mut [&mut size, &mut packed])?;
    // What follows the bytes need not be known before them.
    let follows = flags & SIZES_FOLLOW != 0;
    let agrees = |own: u64, said: u64| own == said || follows && own == 0;
    let unicode_name = extra.unicode_name.and_then(|field| field.get(5..));
    Ok(flags == one.flags
        && method == one.method
        && name == one.name.as_bytes()
        && unicode_name.is_none_or(|other| other == one.name.as_bytes())
        && agrees(u64::from(crc), u64::from(one.crc))
        && agrees(packed, one.packed)
        && agrees(size, one.size))
}

/// Whether the `gap` bytes behind the member are its checksum and its sizes, in one of the four forms that are in
/// use: with a signature or without, in 32 bits or in 64.
fn has_sizes(file: &File, one: &Stored, gap: u64) -> io::Result<bool> {
    let (has_signature, is_large) = match gap {
        12 => (false, false),
        16 => (true, false),
        20 => (false, true),
        24 => (true, true),
        _ => return Ok(false),
    };
    let follow = bytes(file, one.data.saturating_add(one.packed), gap)?;
    let mut fields = Fields(&follow);
    if has_signature && fields.take(4)? != SIZES {
        return Ok(false);
    }
    let crc = fields.u32()?;
    let (packed, size) = if is_large {
        (fields.u64()?, fields.u64()?)
    } else {
        (u64::from(fields.u32()?), u64::from(fields.u32()?))
    };
    Ok((crc, packed, size) == (one.crc, one.packed, one.size))
}

const HEADER: &[u8] = b"PK\x03\x04";
const HEADER_LENGTH: u64 = 30;
const SIZES: &[u8] = b"PK\x07\x08";
/// The bit of the flags for which the sizes follow the bytes.
const SIZES_FOLLOW: u16 = 1 << 3;
