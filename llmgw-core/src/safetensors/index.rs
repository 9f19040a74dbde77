//! A model of one file or of many: which files, and all their tensors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::header::{Header, Limits, SafetensorsError};
use crate::header::{ReadError, read_growing};

/// Why a model could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct OpenError {
    /// The file or directory.
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
    Read(#[from] ReadError<SafetensorsError>),
    /// The index of shards can't be right.
    #[error("{field}: {problem}")]
    Index {
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor stands in two files.
    #[error("tensors.{name}: stands in another file too")]
    Twice {
        /// The tensor.
        name: String,
    },
    /// There are no weights in the directory.
    #[error("holds neither {INDEX} nor {SINGLE}")]
    Empty,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The files of a model: `path` itself, or what its directory holds.
///
/// # Errors
///
/// [`OpenError`] when the index of shards can't be right, or there are no weights.
pub fn files(path: &Path, limits: &Limits) -> Result<Vec<PathBuf>, OpenError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let index = path.join(INDEX);
    let text = match read_index(&index, limits) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let single = path.join(SINGLE);
            if single.is_file() {
                return Ok(vec![single]);
            }
            let path = path.to_owned();
            let cause = OpenCause::Empty;
            return Err(OpenError { path, cause });
        }
        Err(error) => {
            let cause = ReadError::Io(error).into();
            return Err(OpenError { path: index, cause });
        }
    };
    match shards(&text, limits) {
        Ok(names) => Ok(names.iter().map(|name| path.join(name)).collect()),
        Err(cause) => Err(OpenError { path: index, cause }),
    }
}

/// Reads the headers of all files of a model, as one.
///
/// # Errors
///
/// [`OpenError`] with the file that can't be read.
pub fn open(path: &Path, limits: &Limits) -> Result<Header, OpenError> {
    let mut all = Header::default();
    for path in files(path, limits)? {
        let header = match read(&path, limits) {
            Ok(header) => header,
            Err(error) => {
                let cause = error.into();
                return Err(OpenError { path, cause });
            }
        };
        for (name, tensor) in header.tensors {
            if all.tensors.contains_key(&name) {
                let cause = OpenCause::Twice { name };
                return Err(OpenError { path, cause });
            }
            all.tensors.insert(name, tensor);
        }
    }
    Ok(all)
}

fn read(path: &Path, limits: &Limits) -> Result<Header, ReadError<SafetensorsError>> {
    let mut file = File::open(path).map_err(ReadError::Io)?;
    read_growing(&mut file, |bytes| Header::parse(bytes, limits))
}

fn read_index(path: &Path, limits: &Limits) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let length = fs::metadata(path)?.len();
    if length > limits.header_bytes {
        let problem = format!("{length} bytes; at most {} are read", limits.header_bytes);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    File::open(path)?
        .take(limits.header_bytes)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// The names of the files in the index, each once.
///
/// # Errors
///
/// [`OpenCause::Index`] when it is none, or names what is no file beside it.
pub fn shards(text: &[u8], limits: &Limits) -> Result<BTreeSet<String>, OpenCause> {
    let refuse = |field: String, problem: String| OpenCause::Index { field, problem };
    let index: Index = serde_json::from_slice(text)
        .map_err(|error| refuse("weight_map".to_owned(), error.to_string()))?;
    let mut names = BTreeSet::new();
    for (tensor, name) in index.weight_map {
        let plain = !name.starts_with('.') && !name.contains(['/', '\\', '\0']) && !name.is_empty();
        if !plain {
            let problem = format!("{name:?} is no name of a file beside the index");
            return Err(refuse(format!("weight_map.{tensor}"), problem));
        }
        names.insert(name);
        if names.len() > limits.files {
            let problem = format!("more than {} files", limits.files);
            return Err(refuse("weight_map".to_owned(), problem));
        }
    }
    if names.is_empty() {
        return Err(refuse("weight_map".to_owned(), "names no file".to_owned()));
    }
    Ok(names)
}

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
