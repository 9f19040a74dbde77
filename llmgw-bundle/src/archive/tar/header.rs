//! A block that says what follows it.

use std::ops::Range;

use crate::{
    archive::name,
    error::{Ambiguity, Rule},
};

/// What a header says, before anything that was said ahead of it.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    /// The type flag.
    pub(super) flag: u8,
    pub(super) size: u64,
    pub(super) mode: u32,
}

impl Header {
    /// Reads a header that has its checksum, is of one of the three formats, and reads the same in all programs.
    pub(super) fn read(block: &[u8; BLOCK]) -> Result<Self, Rule> {
        if !has_its_checksum(block) {
            return Err(Rule::HeaderChecksum);
        }
        let header = ::tar::Header::from_byte_slice(block);
        let old = header.as_old();
        if old.linkflag == [b'S'] {
            // Its list of holes stands where others have a prefix.
            return Err(Rule::Sparse);
        }
        let is_clear = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if header.as_ustar().is_some() {
            // Schilling's format shortens the prefix, and says so at the end only.
            if block.ends_with(b"tar\0") {
                return Err(Rule::Ambiguous(Ambiguity::Format));
            }
        } else if header.as_gnu().is_none() && !is_clear(block.get(MAGIC).unwrap_or_default()) {
            return Err(Rule::Ambiguous(Ambiguity::Format));
        } else if !is_clear(block.get(PREFIX).unwrap_or_default()) {
            // GNU's own fields stand there in incremental archives; some programs take them for a prefix.
            return Err(Rule::Ambiguous(Ambiguity::Prefix));
        }
        let mode = number(&old.mode)?;
        Ok(Self {
            name: header.path_bytes().into_owned(),
            link: header.link_name_bytes().unwrap_or_default().into_owned(),
            flag: old.linkflag[0],
            size: number(&old.size)?,
            // Some programs write the kind into the bits above, as `stat` gives it.
            mode: u32::try_from(mode).map_err(|_| Rule::HeaderNumber)?,
        })
    }
}

/// Whether the block's checksum is that of its bytes, as unsigned ones.
pub(super) fn has_its_checksum(block: &[u8; BLOCK]) -> bool {
    let checksum = ::tar::Header::from_byte_slice(block).as_old().cksum;
    let own: u64 = checksum.iter().map(|byte| u64::from(*byte)).sum();
    let all: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    // The sum is made with spaces in its own place.
    let spaces = u64::from(b' ') * 8;
    number(&checksum) == Ok(all - own + spaces)
}

/// The start of the name in a header that may be anything.
pub(super) fn shown(block: &[u8; BLOCK]) -> String {
    let field = block.get(..100).unwrap_or_default();
    let end = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    name::shown(field.get(..end).unwrap_or_default())
}

/// A number in octal digits, or in GNU's binary form. An empty field is zero.
fn number(field: &[u8]) -> Result<u64, Rule> {
    match field {
        [0x80, digits @ ..] => digits.iter().try_fold(0_u64, |number, byte| {
            let shifted = number.checked_mul(256).ok_or(Rule::HeaderNumber)?;
            Ok(shifted | u64::from(*byte))
        }),
        _ => {
            let start = field.iter().position(|byte| *byte != b' ');
            let digits = field
                .get(start.unwrap_or(field.len())..)
                .unwrap_or_default();
            let end = digits
                .iter()
                .position(|byte| !matches!(byte, b'0'..=b'7'))
                .unwrap_or(digits.len());
            let (digits, rest) = digits.split_at(end);
            if rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
                return Err(Rule::HeaderNumber);
            }
            // Twelve digits are 36 bits.
            Ok(digits
                .iter()
                .fold(0, |number, digit| number << 3 | u64::from(digit - b'0')))
        }
    }
}

/// What all of a tar archive is divided into.
pub(super) const BLOCK: usize = 512;
/// The prefix of ustar, and what other formats have there.
const PREFIX: Range<usize> = 345..500;
/// Says the format; an old Unix header has ended there, and GNU tar fills in its own fields behind it.
const MAGIC: Range<usize> = 257..265;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary_and_nothing_else() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644\0\0\0\0\0", Some(0o644)),
            (b"        ", Some(0)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777", Some(0o77_777_777)),
            (b"\x80\0\0\0\0\0\x01\x02", Some(258)),
            (b"\x80\0\0\0\x01\0\0\0\0\0\0\0", Some(1 << 56)),
            (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"0000648\0", None),
            (b"-000644\0", None),
            (b"0x00644\0", None),
            (b"644\0\x36\x34\x34\0", None),
        ] {
            assert_eq!(number(field).ok(), expected, "{field:?}");
        }
    }
}
