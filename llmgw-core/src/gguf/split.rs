//! Models in several files: `name-00001-of-00005.gguf` and its siblings.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use super::{error::GgufError, limits::Limits, metadata::Metadata, parse::Header};
use crate::header::{ReadError, read_growing};

/// Which part of a split model a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Split {
    /// Its place, from 0.
    pub number: u64,
    /// Files in all.
    pub count: u64,
    /// Tensors in all files together.
    pub tensors: u64,
}

/// Why the files of a split model can't be told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The file says of itself that it is not the first.
    #[error("this is file {} of {count} of a split model", number.saturating_add(1))]
    NotFirst {
        /// Its place, from 0.
        number: u64,
        /// Files in all.
        count: u64,
    },
    /// The name does not tell the others.
    #[error(
        "a split model of {count} files, but the name does not end in -00001-of-{count:05}.gguf"
    )]
    Name {
        /// Files in all.
        count: u64,
    },
    /// There are more files than allowed.
    #[error("split.count: {count}; at most {limit} are allowed")]
    TooMany {
        /// What the file says.
        count: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The files together do not have the tensors that the first promises.
    #[error("split.tensors.count: {promised}, but the files hold {found}")]
    Tensors {
        /// What the first file says.
        promised: u64,
        /// What is there.
        found: u64,
    },
    /// A file is part of another set.
    #[error("its split.count is {found}, not {expected}")]
    Stranger {
        /// Files of the first one's set.
        expected: u64,
        /// Files of its own.
        found: u64,
    },
    /// A file is not the part that its name says.
    #[error("its split.no is {found}, not {expected}")]
    Misplaced {
        /// The part that its name says, from 0.
        expected: u64,
        /// What the file says.
        found: u64,
    },
}

/// Why a model could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What happened.
    #[source]
    pub cause: OpenCause,
}

/// What happened to a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenCause {
    /// It could not be read, or its header is broken.
    #[error(transparent)]
    Read(#[from] ReadError<GgufError>),
    /// It is not what it should be in a split model.
    #[error(transparent)]
    Split(#[from] SplitError),
}

/// Reads the header of a model on disk, with those of all its files when it is split.
///
/// # Errors
///
/// [`OpenError`] with the file that can't be read.
pub fn open(path: &Path, limits: &Limits) -> Result<Header, OpenError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |cause: OpenCause| OpenError { path, cause }
    };
    let mut first = read(path, limits).map_err(at(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(split) = Split::of(&first.metadata).map_err(|error| at(path)(broken(error)))? else {
        return match parts_of(&name) {
            Some(expected) if expected > 1 => {
                Err(at(path)(SplitError::Stranger { expected, found: 1 }.into()))
            }
            _ => Ok(first),
        };
    };
    let names = split
        .names(&name, limits)
        .map_err(|error| at(path)(error.into()))?;
    for (expected, name) in (0..).zip(&names).skip(1) {
        let part = path.with_file_name(name);
        let header = read(&part, limits).map_err(at(&part))?;
        let part_of = Split::of(&header.metadata).map_err(|error| at(&part)(broken(error)))?;
        split
            .check_part(expected, part_of)
            .map_err(|error| at(&part)(error.into()))?;
        first.tensors.extend(header.tensors);
    }
    split
        .check_whole(&first)
        .map_err(|error| at(path)(error.into()))?;
    Ok(first)
}

/// Of how many files one with this name is: `m-00001-of-00003.gguf` is one of 3.
fn parts_of(name: &str) -> Option<u64> {
    let (first, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (_, number) = first.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && is_number(count)).then(|| count.parse().ok())?
}

fn read(path: &Path, limits: &Limits) -> Result<Header, OpenCause> {
    let mut file = File::open(path).map_err(ReadError::Io)?;
    Ok(read_growing(&mut file, |bytes| {
        Header::parse(bytes, limits)
    })?)
}

fn broken(error: GgufError) -> OpenCause {
    OpenCause::Read(ReadError::Broken(error))
}

// === impl Split ===

impl Split {
    /// What the metadata says of it; absent for a model in one file.
    ///
    /// # Errors
    ///
    /// [`GgufError`] when a number is none.
    pub fn of(metadata: &Metadata) -> Result<Option<Self>, GgufError> {
        let Some(count) = metadata.number("split.count")? else {
            return Ok(None);
        };
        if count <= 1 {
            return Ok(None);
        }
        Ok(Some(Self {
            number: metadata.number("split.no")?.unwrap_or(0),
            count,
            tensors: metadata.number("split.tensors.count")?.unwrap_or(0),
        }))
    }

    /// Checks that a file, which says `found` of itself, is the part of this set that its name says, from 0.
    ///
    /// # Errors
    ///
    /// [`SplitError`] when it is of another set, or another part.
    pub fn check_part(&self, expected: u64, found: Option<Self>) -> Result<(), SplitError> {
        let count = found.map_or(1, |part| part.count);
        if count != self.count {
            return Err(SplitError::Stranger {
                expected: self.count,
                found: count,
            });
        }
        let found = found.map_or(0, |part| part.number);
        if found != expected {
            return Err(SplitError::Misplaced { expected, found });
        }
        Ok(())
    }

    /// Checks that a header with the tensors of all files has as many as were promised.
    ///
    /// # Errors
    ///
    /// [`SplitError`] when it has more or fewer.
    pub fn check_whole(&self, all: &Header) -> Result<(), SplitError> {
        let found = u64::try_from(all.tensors.len()).unwrap_or(u64::MAX);
        if found != self.tensors {
            let promised = self.tensors;
            return Err(SplitError::Tensors { promised, found });
        }
        Ok(())
    }

    /// The names of all files, given that of the first.
    ///
    /// # Errors
    ///
    /// [`SplitError`] when this is not the first, or its name is not made like that of a split model.
    pub fn names(&self, first: &str, limits: &Limits) -> Result<Vec<String>, SplitError> {
        let Self {
            number,
            count,
            tensors: _,
        } = *self;
        if number != 0 {
            return Err(SplitError::NotFirst { number, count });
        }
        if count > limits.files {
            let limit = limits.files;
            return Err(SplitError::TooMany { count, limit });
        }
        let stem = first
            .strip_suffix(&format!("-00001-of-{count:05}.gguf"))
            .ok_or(SplitError::Name { count })?;
        Ok((1..=count)
            .map(|part| format!("{stem}-{part:05}-of-{count:05}.gguf"))
            .collect())
    }
}
