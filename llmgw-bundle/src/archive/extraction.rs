//! The whole of an archive, checked, in a folder of its own.

use std::{fmt, path::Path};

use llmgw_core::units::Bytes;
use serde::Serialize;

use super::{
    format::Format,
    input::Input,
    listing::{Checked, Entry, Kind, check},
    place::{Place, Writing},
    reading::Reading,
    walk::{Visitor, walk},
};
#[cfg(doc)]
use crate::error::Rule;
use crate::{error::ArchiveError, limits::Limits};

/// How an archive is extracted.
#[derive(Clone, Copy)]
pub struct ExtractOptions<'a> {
    /// What it may be, at most.
    pub limits: Limits,
    /// When everything is in one folder, whether that folder is left out and its contents stand in the
    /// destination themselves.
    pub collapse_top: bool,
    /// Asked before every entry and every 64 KiB, in both passes: when it says `true`, extracting ends with
    /// [`ArchiveError::Cancelled`] and nothing is left.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Told how many bytes of files have been written, at least every 64 KiB of them. Nothing is written during
    /// the first pass, which takes as long as unpacking does.
    pub progress: &'a dyn Fn(Bytes),
}

/// What was extracted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Extracted {
    /// What the archive is.
    pub format: Format,
    /// How many entries it has; the folder that all are in is none of them.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: Bytes,
    /// The folder that everything is in, when there is one.
    pub top: Option<String>,
}

/// Extracts the archive at `archive` into the folder `destination`, which must not exist or be empty; the folder
/// above it must exist.
///
/// The archive is read twice. Nothing is written before all of it was checked, and nothing stands at `destination`
/// before all of it was written and is on the disk: until then it grows in `.NAME.partial` beside it, which is
/// removed when extracting fails. What a killed process has left there is removed by the next extraction to the
/// same place; two at the same time are told apart.
///
/// Blocks; an async caller runs it on a thread of its own.
///
/// # Errors
/// When the archive breaks a [`Rule`] or a limit, is damaged or is written to meanwhile; when the destination is
/// taken or can't be written; when it is cancelled. The error names the entry and the rule.
pub fn extract(
    archive: &Path,
    destination: &Path,
    options: &ExtractOptions<'_>,
) -> Result<Extracted, ArchiveError> {
    let reading = Reading {
        archive,
        limits: &options.limits,
        cancelled: options.cancelled,
    };
    Place::check(destination)?;
    let input = Input::open(reading)?;
    let checked = check(&input, options.collapse_top)?;
    let place = Place::make(destination)?;
    match write(&input, &checked, &place, options) {
        Ok(()) => {}
        Err(error) => return Err(place.abandon(error)),
    }
    place.settle()?;
    let listing = checked.listing;
    Ok(Extracted {
        format: listing.format,
        entries: u64::try_from(listing.entries.len()).unwrap_or(u64::MAX),
        bytes: listing.bytes,
        top: listing.top,
    })
}

/// The second pass.
fn write(
    input: &Input<'_>,
    checked: &Checked,
    place: &Place,
    options: &ExtractOptions<'_>,
) -> Result<(), ArchiveError> {
    let top = checked.listing.top.as_deref();
    let mut writer = Writer {
        reading: input.reading,
        expected: checked.listing.entries.iter(),
        top: top.filter(|_| options.collapse_top),
        writing: place.writing(),
        links: Vec::new(),
        entry: "",
        bytes: 0,
        progress: options.progress,
    };
    let digested = walk(input, &mut writer).map_err(|error| match error {
        // It was whole and right a moment ago.
        ArchiveError::Refused { .. }
        | ArchiveError::RefusedWhole { .. }
        | ArchiveError::NotWhole { .. }
        | ArchiveError::Damaged { .. } => input.reading.changed(),
        error => error,
    })?;
    if writer.expected.next().is_some() || digested != checked.digested {
        return Err(input.reading.changed());
    }
    writer.link()
}

/// Writes the entries that it expects, and no others.
struct Writer<'a> {
    reading: Reading<'a>,
    expected: std::slice::Iter<'a, Entry>,
    /// The folder that is left out.
    top: Option<&'a str>,
    writing: Writing<'a>,
    /// Made when all else was: while files are written there is no link that could be followed.
    links: Vec<(&'a str, &'a str)>,
    entry: &'a str,
    bytes: u64,
    progress: &'a dyn Fn(Bytes),
}

impl Writer<'_> {
    fn link(&mut self) -> Result<(), ArchiveError> {
        for (path, target) in &self.links {
            self.reading.go_on()?;
            self.writing
                .link(path, target)
                .map_err(|source| self.reading.write(path, source))?;
        }
        Ok(())
    }
}

impl Visitor for Writer<'_> {
    fn entry(&mut self, entry: Entry) -> Result<(), ArchiveError> {
        let reading = self.reading;
        let Some(expected) = self.expected.next().filter(|expected| **expected == entry) else {
            return Err(reading.changed());
        };
        let path = match self.top {
            None => expected.path.as_str(),
            Some(top) if expected.path == top => return Ok(()),
            Some(top) => {
                let beneath = expected.path.strip_prefix(top);
                let beneath = beneath.and_then(|path| path.strip_prefix('/'));
                beneath.ok_or_else(|| reading.changed())?
            }
        };
        self.entry = path;
        let written = match &expected.kind {
            Kind::Folder => self.writing.folder(path),
            Kind::File { executable, .. } => self.writing.file(path, *executable),
            Kind::Link { target } => {
                self.links.push((path, target));
                Ok(())
            }
        };
        written.map_err(|source| reading.write(path, source))
    }

    fn bytes(&mut self, chunk: &[u8]) -> Result<(), ArchiveError> {
        self.writing
            .append(chunk)
            .map_err(|source| self.reading.write(self.entry, source))?;
        let count = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(count);
        (self.progress)(Bytes(self.bytes));
        Ok(())
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        self.writing.close();
        Ok(())
    }
}

impl fmt::Debug for ExtractOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limits,
            collapse_top,
            cancelled: _,
            progress: _,
        } = self;
        f.debug_struct("ExtractOptions")
            .field("limits", limits)
            .field("collapse_top", collapse_top)
            .finish_non_exhaustive()
    }
}
