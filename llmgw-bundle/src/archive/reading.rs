//! What is read, how far one goes with it, and the errors that name it.

use std::{error::Error, fmt, io, path::Path};

use super::format::Format;
use crate::{
    error::{ArchiveError, Rule},
    limits::Limits,
};

/// What is read, and how far one goes with it.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) archive: &'a Path,
    pub(super) limits: &'a Limits,
    pub(super) cancelled: &'a dyn Fn() -> bool,
}

/// A reader stops here because a rule is broken, and not because reading failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Stop(pub(super) Rule);

impl Reading<'_> {
    /// An error when nobody wants the result any more.
    pub(super) fn go_on(&self) -> Result<(), ArchiveError> {
        if (self.cancelled)() {
            return Err(ArchiveError::Cancelled {
                archive: self.archive.to_owned(),
            });
        }
        Ok(())
    }

    pub(super) fn refused(&self, entry: &str, rule: Rule) -> ArchiveError {
        ArchiveError::Refused {
            archive: self.archive.to_owned(),
            entry: entry.to_owned(),
            rule,
        }
    }

    pub(super) fn refused_whole(&self, rule: Rule) -> ArchiveError {
        ArchiveError::RefusedWhole {
            archive: self.archive.to_owned(),
            rule,
        }
    }

    /// Reading between the entries failed.
    pub(super) fn not_whole(
        &self,
        format: Format,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> ArchiveError {
        match stopped(source.into()) {
            Ok(rule) => self.refused_whole(rule),
            Err(source) => ArchiveError::NotWhole {
                archive: self.archive.to_owned(),
                format,
                source,
            },
        }
    }

    /// Reading the bytes of an entry failed.
    pub(super) fn damaged(
        &self,
        entry: &str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> ArchiveError {
        match stopped(source.into()) {
            Ok(rule) => self.refused(entry, rule),
            Err(source) => ArchiveError::Damaged {
                archive: self.archive.to_owned(),
                entry: entry.to_owned(),
                source,
            },
        }
    }

    pub(super) fn read(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Read {
            archive: self.archive.to_owned(),
            source,
        }
    }

    pub(super) fn write(&self, entry: &str, source: io::Error) -> ArchiveError {
        ArchiveError::Write {
            archive: self.archive.to_owned(),
            entry: entry.to_owned(),
            source,
        }
    }

    pub(super) fn changed(&self) -> ArchiveError {
        ArchiveError::Changed {
            archive: self.archive.to_owned(),
        }
    }
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            archive,
            limits,
            cancelled: _,
        } = self;
        f.debug_struct("Reading")
            .field("archive", archive)
            .field("limits", limits)
            .finish_non_exhaustive()
    }
}

/// The rule for which a reader stopped, or the error again.
fn stopped(source: Box<dyn Error + Send + Sync>) -> Result<Rule, Box<dyn Error + Send + Sync>> {
    let inner = source
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match inner.and_then(|inner| inner.downcast_ref::<Stop>()) {
        Some(Stop(rule)) => Ok(*rule),
        None => Err(source),
    }
}
