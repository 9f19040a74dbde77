//! Zip archives, of which every byte belongs to something.
//!
//! The directory at the end says what there is; before anything is unpacked, each member's own header is held
//! against it, and the members must follow each other from the first byte of the file to the directory without
//! gaps and without sharing bytes.

mod directory;
mod fields;
mod local;

use std::{
    fs::File,
    io::{self, BufRead, Read},
};

use flate2::Crc;
use llmgw_core::units::Bytes;

pub(super) use self::directory::{Directory, Stored, What};
use super::{
    content::{self, Sink},
    input::Input,
    listing::{Entry, Kind},
    name,
    packed::Inflate,
    reading::Reading,
    walk::Visitor,
};
use crate::error::{ArchiveError, Rule};

/// Shows `visitor` what is in the archive, in the order of its bytes. `file` is all of it, from its first byte.
pub(super) fn walk(
    input: &Input<'_>,
    file: &mut impl BufRead,
    visitor: &mut dyn Visitor,
) -> Result<(), ArchiveError> {
    let reading = input.reading;
    let directory = Directory::read(&reading, &input.file, input.length)?;
    let mut at = 0;
    for stored in &directory.stored {
        reading.go_on()?;
        skip(&reading, file, stored.data.saturating_sub(at))?;
        at = stored.data.saturating_add(stored.packed);
        show(
            &reading,
            stored,
            &mut file.by_ref().take(stored.packed),
            visitor,
        )?;
    }
    // The directory was read already; this time it is counted among the archive's bytes.
    skip(&reading, file, input.length.saturating_sub(at))
}

/// Hands the bytes of a member to `sink`, out of `packed`, which holds it and no more.
pub(super) fn unpack(
    reading: &Reading<'_>,
    stored: &Stored,
    packed: &mut dyn BufRead,
    sink: Sink<'_>,
) -> Result<(), ArchiveError> {
    let shown = stored.name.as_str();
    let mut crc = Crc::new();
    let mut checked = |chunk: &[u8]| {
        crc.update(chunk);
        sink(chunk)
    };
    let came = if stored.is_deflated {
        let mut stream = Inflate::new(packed);
        let came = content::copy(reading, shown, &mut stream, stored.size, &mut checked)?;
        let rest = stream.into_rest().fill_buf();
        if !rest.map_err(|source| reading.read(source))?.is_empty() {
            return Err(reading.refused(shown, Rule::AfterEnd));
        }
        came
    } else {
        let mut stream = packed;
        content::copy(reading, shown, &mut stream, stored.size, &mut checked)?
    };
    if came != stored.size {
        let rule = Rule::OtherSize {
            declared: Bytes(stored.size),
            actual: Bytes(came),
        };
        return Err(reading.refused(shown, rule));
    }
    if crc.sum() != stored.crc {
        let wrong = io::Error::new(io::ErrorKind::InvalidData, "its CRC-32 is another");
        return Err(reading.damaged(shown, wrong));
    }
    Ok(())
}

/// A reader of one member's packed bytes, apart from whoever else reads the file.
pub(super) fn packed<'a>(file: &'a File, stored: &Stored) -> impl BufRead + use<'a> {
    let end = stored.data.saturating_add(stored.packed);
    let window = super::input::Window::new(file, stored.data, end);
    io::BufReader::with_capacity(content::BUFFER, window)
}

fn show(
    reading: &Reading<'_>,
    stored: &Stored,
    packed: &mut dyn BufRead,
    visitor: &mut dyn Visitor,
) -> Result<(), ArchiveError> {
    let path = stored.path.clone();
    match stored.what {
        What::Folder => {
            // Some programs deflate the nothing that a folder holds.
            unpack(reading, stored, packed, &mut |_| Ok(()))?;
            visitor.entry(Entry {
                path,
                kind: Kind::Folder,
            })
        }
        What::File { executable } => {
            let bytes = Bytes(stored.size);
            visitor.entry(Entry {
                path,
                kind: Kind::File { bytes, executable },
            })?;
            unpack(reading, stored, packed, &mut |chunk| visitor.bytes(chunk))?;
            visitor.end()
        }
        What::Link => {
            let mut raw = Vec::new();
            unpack(reading, stored, packed, &mut |chunk| {
                raw.extend_from_slice(chunk);
                Ok(())
            })?;
            let target = name::target(&raw, reading.limits)
                .map_err(|rule| reading.refused(&stored.name, rule))?;
            visitor.entry(Entry {
                path,
                kind: Kind::Link { target },
            })
        }
    }
}

fn skip(reading: &Reading<'_>, file: &mut impl BufRead, count: u64) -> Result<(), ArchiveError> {
    let skipped = io::copy(&mut file.by_ref().take(count), &mut io::sink())
        .map_err(|source| reading.read(source))?;
    if skipped < count {
        return Err(reading.changed());
    }
    Ok(())
}
