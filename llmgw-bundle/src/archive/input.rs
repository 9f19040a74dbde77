//! The archive's file: opened once, read twice.

use std::{
    fs::{self, File},
    io::{self, Read, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
};

use super::{format::Format, reading::Reading};
use crate::{digest::HashingReader, error::ArchiveError, limits::Limits};

/// An archive that is open, of a known format and length.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) format: Format,
    pub(super) file: File,
    pub(super) length: u64,
}

/// Finds out what an archive is, from its beginning and its name, and reads no more of it.
///
/// # Errors
/// When it can't be opened, is none that is known here, or is called something else than it is.
pub fn recognise(archive: &Path) -> Result<Format, ArchiveError> {
    let reading = Reading {
        archive,
        limits: &Limits::default(),
        cancelled: &|| false,
    };
    Input::open(reading).map(|input| input.format)
}

/// A part of a file, read without moving what others read.
#[derive(Debug)]
pub(super) struct Window<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl<'a> Input<'a> {
    /// Opens the archive and finds out what it is.
    pub(super) fn open(reading: Reading<'a>) -> Result<Self, ArchiveError> {
        let (file, length) = open(reading.archive)?;
        let mut start = Vec::new();
        Window::new(&file, 0, FIRST_BLOCK)
            .read_to_end(&mut start)
            .map_err(|source| reading.read(source))?;
        let Some(format) = Format::of_content(&start) else {
            return Err(ArchiveError::UnknownFormat {
                archive: reading.archive.to_owned(),
            });
        };
        if let Some(says) = format.contradicted_by(reading.archive) {
            return Err(ArchiveError::OtherFormat {
                archive: reading.archive.to_owned(),
                says,
                holds: format,
            });
        }
        Ok(Self {
            reading,
            format,
            file,
            length,
        })
    }

    /// All of its bytes, from the first.
    pub(super) fn stream(&self) -> Result<HashingReader<&File>, ArchiveError> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .map_err(|source| self.reading.read(source))?;
        Ok(HashingReader::new(file))
    }
}

impl<'a> Window<'a> {
    /// The bytes of `file` from `at` up to `end`, as far as there are any.
    pub(super) fn new(file: &'a File, at: u64, end: u64) -> Self {
        Self { file, at, end }
    }
}

impl Read for Window<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let count = self
            .file
            .read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at = self
            .at
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

/// Opens a file to read it; opening a named pipe would wait for whoever writes to it.
pub(super) fn open(archive: &Path) -> Result<(File, u64), ArchiveError> {
    let opened = fs::metadata(archive).and_then(|there| {
        if !there.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let file = File::open(archive)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    });
    opened.map_err(|source| ArchiveError::Open {
        archive: archive.to_owned(),
        source,
    })
}

/// All formats show themselves in a tar block.
const FIRST_BLOCK: u64 = 512;
