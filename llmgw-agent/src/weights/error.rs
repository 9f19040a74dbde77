use std::{error::Error, io, path::PathBuf, sync::Arc};

use llmgw_bundle::error::ArchiveError;
use llmgw_core::{
    cluster::weights::{Sha256Digest, Source},
    error::{Code, Coded},
    fetch::{FetchError, hub::HubError},
    gguf,
    units::Bytes,
};

pub(super) use llmgw_core::cluster::weights::shown;

use crate::python::{PythonError, pip::PipError};

/// Why weights are not there.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// All sources were tried in vain.
    #[error("no source gives the weights: {}", lines(attempts))]
    NoSource {
        /// What came of each, in the order of trying.
        attempts: Vec<Attempt>,
    },
    /// There is no room for them.
    #[error(transparent)]
    Short(DiskShort),
    /// A file of a set is not there.
    #[error("{path} of the set")]
    Part {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: Box<Self>,
    },
    /// The files of a set do not belong together.
    #[error("the parts do not make one model")]
    Set {
        /// What the first of them says.
        #[source]
        source: Arc<gguf::OpenError>,
    },
    /// The store's own files can't be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
}

/// What came of one source.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// Which source.
    pub source: Source,
    /// Why it gave nothing, in one line that names it.
    pub line: String,
    /// The kind of failure.
    pub code: Code,
    /// What would help.
    pub hint: Option<String>,
}

/// A disk that has no room.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the disk of {} has no room for the weights: they need {need}, {have} are free beside a reserve of {reserve}, short by {short}",
    directory.display()
)]
pub struct DiskShort {
    /// A directory on the disk.
    pub directory: PathBuf,
    /// How much is needed.
    pub need: Bytes,
    /// How much may be used.
    pub have: Bytes,
    /// How much is missing.
    pub short: Bytes,
    /// How much stays free.
    pub reserve: Bytes,
}

/// Why a source gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No reader for such sources.
    #[error("{source_text} is a source that this store does not read")]
    Scheme {
        /// The source.
        source_text: String,
    },
    /// An address could not be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The hub does not let us have it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// No mirror is known.
    #[error("{source_text} needs a mirror, and the control plane names none")]
    NoMirror {
        /// The source.
        source_text: String,
    },
    /// No Python to run `pip` with.
    #[error(transparent)]
    Python(#[from] PythonError),
    /// `pip` did not get the package.
    #[error(transparent)]
    Pip(#[from] PipError),
    /// The package does not have the file, or is not to be trusted.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is no room.
    #[error(transparent)]
    Short(#[from] DiskShort),
    /// The bytes are not those that they should be.
    #[error("{source_text} gives other bytes: sha256 {actual}, not the expected {expected}")]
    Digest {
        /// The source.
        source_text: String,
        /// What it must be.
        expected: Sha256Digest,
        /// What it is.
        actual: Sha256Digest,
    },
    /// Bytes from elsewhere are not used unchecked.
    #[error("{source_text} is not used without a sha256 to check it against")]
    NoDigest {
        /// The source.
        source_text: String,
    },
    /// The file is not there.
    #[error("there is no file at {}", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// What is there is no file, or an empty one.
    #[error("{} is not a file with something in it", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A package came as something else than one wheel.
    #[error("pip got {count} wheels for {package}, and not one")]
    Wheels {
        /// The package, with its version.
        package: String,
        /// How many.
        count: usize,
    },
    /// A file can't be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

// === impl SourceError ===

impl SourceError {
    pub(super) fn scheme(source: &Source) -> Self {
        Self::Scheme {
            source_text: shown(source),
        }
    }
}

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(source: &Source, error: &SourceError) -> Self {
        Self {
            source: source.clone(),
            line: line(error),
            code: error.code(),
            hint: error.hint(),
        }
    }
}

/// The error and what lies at its bottom; the layers between say how programs are built.
fn line(error: &SourceError) -> String {
    if matches!(
        error,
        SourceError::Fetch(FetchError::Unreachable { after: Some(_), .. })
    ) {
        // That the time was over stands there already.
        return error.to_string();
    }
    let mut root = error.source();
    while let Some(cause) = root.and_then(Error::source) {
        root = Some(cause);
    }
    let whole = root.map_or_else(|| error.to_string(), |root| format!("{error}: {root}"));
    // A certificate's complaint lists all the names that it is good for.
    whole.chars().take(MAX_LINE).collect()
}

fn lines(attempts: &[Attempt]) -> String {
    if attempts.is_empty() {
        return "none is named".to_owned();
    }
    let lines: Vec<&str> = attempts
        .iter()
        .map(|attempt| attempt.line.as_str())
        .collect();
    lines.join("; ")
}

impl Coded for WeightsError {
    fn code(&self) -> Code {
        match self {
            // A source that may answer later is worth another try, whatever the others said.
            Self::NoSource { attempts } => attempts
                .iter()
                .map(|attempt| attempt.code)
                .find(|code| {
                    matches!(
                        code,
                        Code::Unavailable | Code::UpstreamTimeout | Code::UpstreamDisconnected
                    )
                })
                .or_else(|| attempts.last().map(|attempt| attempt.code))
                .unwrap_or(Code::InvalidRequest),
            Self::Short(error) => error.code(),
            Self::Part { source, .. } => source.code(),
            Self::Set { .. } => Code::VerificationFailed,
            Self::File { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Part { source, .. } => source.hint(),
            Self::Set { .. } => {
                Some("name the first file of the set, of one model and one quantisation".to_owned())
            }
            Self::NoSource { attempts } => attempts
                .iter()
                .rev()
                .find_map(|attempt| attempt.hint.clone()),
            Self::Short(error) => error.hint(),
            Self::File {
                doing: "reading",
                path,
                ..
            } => Some(format!(
                "see that {} can be read, or remove it so that it is fetched again",
                path.display(),
            )),
            Self::File { .. } => Some("check the rights of the data directory".to_owned()),
        }
    }
}

impl Coded for DiskShort {
    fn code(&self) -> Code {
        Code::Unavailable
    }

    fn hint(&self) -> Option<String> {
        Some(format!("free {} or use a larger disk", self.short))
    }
}

impl Coded for SourceError {
    fn code(&self) -> Code {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Hub(error) => error.code(),
            Self::Python(error) => error.code(),
            Self::Pip(error) => error.code(),
            Self::Archive(error) => error.code(),
            Self::Short(error) => error.code(),
            Self::Digest { .. } | Self::Wheels { .. } => Code::VerificationFailed,
            Self::Scheme { .. } | Self::NoDigest { .. } | Self::NoMirror { .. } => {
                Code::InvalidRequest
            }
            Self::Missing { .. } | Self::NotAFile { .. } => Code::NotFound,
            Self::File { .. } => Code::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch(error) => error.hint(),
            Self::Hub(error) => error.hint(),
            Self::NoMirror { .. } => Some(
                "name it in the settings of the control plane: weights: {mirror: URL}".to_owned(),
            ),
            Self::Python(error) => error.hint(),
            Self::Pip(error) => error.hint(),
            Self::Short(error) => error.hint(),
            Self::Digest { .. } => Some(
                "the file was changed or is another one: check the sha256 of the model".to_owned(),
            ),
            Self::Missing { .. } => {
                Some("file: names a path on the node that runs the model".to_owned())
            }
            _ => None,
        }
    }
}

const MAX_LINE: usize = 400;
