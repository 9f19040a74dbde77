//! A hub of models, as Hugging Face serves it: which commit a name stands for, which files belong together, and what
//! their bytes must be.
//!
//! A branch is asked for once, and is the commit that it was from then on. What the bytes of a large file must be is
//! its LFS record's `oid`, a SHA-256; small files have none, and are read, compared with the id that git gives them,
//! and hashed. So everything that is fetched afterwards is checked against a SHA-256, wherever it comes from.
//!
//! Paths: `GET /api/models/{repo}/revision/{revision}`, `POST /api/models/{repo}/paths-info/{commit}`,
//! `GET /{repo}/resolve/{commit}/{path}`. Answers are bounded in size, and believed no further than they hold together.

mod answers;
mod error;
pub mod headers;

use sha2::{Digest as _, Sha256};

use self::answers::{PathInfo, Revision};
pub use self::{
    error::HubError,
    headers::{HeadersError, WeightsHeader},
};
use super::{FetchError, FetchRequest, Fetcher};
use crate::{
    cluster::weights::{
        HubToken, Sha256Digest, Source, Weights, WeightsFile, companions, gguf_parts, is_index,
    },
    safetensors,
    units::Bytes,
};

/// A hub. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub {
    fetcher: Fetcher,
    base: String,
    token: Option<HubToken>,
}

// === impl Hub ===

impl Hub {
    /// The hub at `base`, such as `https://huggingface.co`. The token goes to that host alone.
    #[must_use]
    pub fn new(fetcher: Fetcher, base: &str, token: Option<HubToken>) -> Self {
        Self {
            fetcher,
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    /// The same weights with a commit in the place of a branch, with all files that belong to them, and with a digest
    /// and a size for each. `None` when no source names a hub, or nothing is missing.
    ///
    /// The first source that names the hub decides what the bytes must be; the others must have the same.
    ///
    /// # Errors
    /// When the hub can't be asked, has no such file, or does not let us have it.
    pub async fn pin(&self, weights: &Weights) -> Result<Option<Weights>, HubError> {
        if weights.sha256.is_some() || !weights.files.is_empty() {
            return Ok(None);
        }
        let named = weights
            .sources
            .iter()
            .position(|source| matches!(source, Source::Hub { .. }));
        let Some(Source::Hub {
            repo,
            path,
            revision,
        }) = named.and_then(|at| weights.sources.get(at))
        else {
            return Ok(None);
        };
        let found = self.revision(repo, revision.as_deref()).await?;
        let names = self.set(repo, &found, path).await?;
        let files = self.files(repo, &found.commit, &names).await?;
        let mut pinned = weights.clone();
        for source in &mut pinned.sources {
            if let Source::Hub {
                repo: other,
                path: of,
                revision,
            } = source
                && (&*other, &*of) == (repo, path)
            {
                *revision = Some(found.commit.clone());
            }
        }
        match files.as_slice() {
            [single] if single.path == *path && !is_safetensors(path) => {
                if weights.size.is_some_and(|size| Some(size) != single.size) {
                    return Err(HubError::Size {
                        path: path.clone(),
                        expected: weights.size.unwrap_or_default(),
                        found: single.size.unwrap_or_default(),
                    });
                }
                pinned.sha256 = Some(single.sha256);
                pinned.size = single.size;
            }
            _ => {
                pinned.size = None;
                let directory = path.rfind('/').map_or(0, |slash| slash + 1);
                pinned.files = files;
                for file in &mut pinned.files {
                    file.path.drain(..directory.min(file.path.len()));
                }
            }
        }
        Ok(Some(pinned))
    }

    /// The address of a file.
    #[must_use]
    pub fn address(&self, repo: &str, path: &str, revision: Option<&str>) -> String {
        // A revision is one segment, whatever is in its name.
        let revision = encode(revision.unwrap_or(MAIN), "");
        let (repo, path) = (encode(repo, "/"), encode(path, "/"));
        format!("{}/{repo}/resolve/{revision}/{path}", self.base)
    }

    /// A request for a file, with the token.
    #[must_use]
    pub fn request(&self, repo: &str, path: &str, revision: Option<&str>) -> FetchRequest {
        self.with_token(self.address(repo, path, revision))
    }

    fn with_token(&self, address: String) -> FetchRequest {
        let token = self.token.as_ref().map(|token| token.secret().to_owned());
        FetchRequest::new(address).with_bearer(token)
    }

    /// What an error of a request to the hub means for who asks for `repo`.
    #[must_use]
    pub fn refusal(&self, repo: &str, error: FetchError) -> HubError {
        match error {
            FetchError::Status {
                status: status @ (401 | 403),
                ..
            } => HubError::Gated {
                repo: repo.to_owned(),
                status,
                token: self.token.is_some(),
            },
            error => HubError::Fetch(error),
        }
    }

    async fn revision(&self, repo: &str, revision: Option<&str>) -> Result<Revision, HubError> {
        let revision = revision.unwrap_or(MAIN);
        let address = format!(
            "{}/api/models/{}/revision/{}",
            self.base,
            encode(repo, "/"),
            encode(revision, "")
        );
        let request = self.with_token(address).with_max(MAX_ANSWER);
        let body = self.read(repo, &request).await?;
        Revision::parse(&body, revision).map_err(|problem| HubError::Answer {
            what: format!("the revision {revision} of {repo}"),
            problem,
        })
    }

    /// The paths of all files that belong to the one at `path`.
    async fn set(&self, repo: &str, found: &Revision, path: &str) -> Result<Vec<String>, HubError> {
        let missing = |path: &str| HubError::Missing {
            repo: repo.to_owned(),
            commit: found.commit.clone(),
            path: path.to_owned(),
        };
        let mut names = if let Some(parts) = gguf_parts(path) {
            parts
        } else if is_index(path) {
            let request = self
                .request(repo, path, Some(&found.commit))
                .with_max(MAX_INDEX);
            let text = self.read(repo, &request).await?;
            let shards = safetensors::shards(&text, &safetensors::Limits::default());
            let shards = shards.map_err(|error| HubError::Answer {
                what: format!("{path} of {repo}"),
                problem: error.to_string(),
            })?;
            let (directory, _) = path
                .rsplit_once('/')
                .map_or(("", ""), |(directory, name)| (directory, name));
            let in_place = |name: String| match directory {
                "" => name,
                directory => format!("{directory}/{name}"),
            };
            let mut names: Vec<String> = shards.into_iter().map(in_place).collect();
            names.push(path.to_owned());
            names
        } else {
            vec![path.to_owned()]
        };
        if let Some(absent) = names.iter().find(|name| !found.files.contains(*name)) {
            return Err(missing(absent));
        }
        if is_index(path) || is_safetensors(path) {
            let listing = found.files.iter().map(String::as_str);
            names.extend(companions(path, listing).into_iter().map(str::to_owned));
        }
        names.sort();
        names.dedup();
        if names.len() > MOST_FILES {
            return Err(HubError::Answer {
                what: format!("{path} of {repo}"),
                problem: format!("{} files; at most {MOST_FILES} are taken", names.len()),
            });
        }
        Ok(names)
    }

    async fn files(
        &self,
        repo: &str,
        commit: &str,
        names: &[String],
    ) -> Result<Vec<WeightsFile>, HubError> {
        let address = format!(
            "{}/api/models/{}/paths-info/{commit}",
            self.base,
            encode(repo, "/")
        );
        let request = self.with_token(address).with_max(MAX_ANSWER);
        let question = serde_json::json!({ "paths": names, "expand": false });
        let answer = self.fetcher.post(&request, question.to_string()).await;
        let body = answer.map_err(|error| self.refusal(repo, error))?;
        let infos = PathInfo::parse(&body).map_err(|problem| HubError::Answer {
            what: format!("the files of {repo}"),
            problem,
        })?;
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let info = infos.get(name).ok_or_else(|| HubError::Missing {
                repo: repo.to_owned(),
                commit: commit.to_owned(),
                path: name.clone(),
            })?;
            let sha256 = match info.sha256 {
                Some(sha256) => sha256,
                None => self.hash_small(repo, commit, name, info).await?,
            };
            files.push(WeightsFile {
                path: name.clone(),
                sha256,
                size: Some(info.size),
            });
        }
        Ok(files)
    }

    /// The digest of a file that is kept in git itself, whose id there is its SHA-1 with a head.
    async fn hash_small(
        &self,
        repo: &str,
        commit: &str,
        path: &str,
        info: &PathInfo,
    ) -> Result<Sha256Digest, HubError> {
        if info.size > MAX_SMALL {
            return Err(HubError::Answer {
                what: format!("{path} of {repo}"),
                problem: format!(
                    "{} and no digest; files of more than {MAX_SMALL} have one",
                    info.size
                ),
            });
        }
        let request = self
            .request(repo, path, Some(commit))
            .with_size(Some(info.size))
            .with_max(MAX_SMALL);
        let body = self.read(repo, &request).await?;
        if answers::git_blob(&body) != info.blob {
            return Err(HubError::Answer {
                what: format!("{path} of {repo}"),
                problem: "its bytes are not those that its commit names".to_owned(),
            });
        }
        Ok(Sha256Digest(Sha256::digest(&body).into()))
    }

    async fn read(&self, repo: &str, request: &FetchRequest) -> Result<Vec<u8>, HubError> {
        let read = async { self.fetcher.open(request).await?.read().await };
        read.await.map_err(|error| self.refusal(repo, error))
    }
}

fn is_safetensors(path: &str) -> bool {
    path.ends_with(".safetensors")
}

/// Percent-encodes all but the unreserved characters of RFC 3986 (section 2.3) and those of `kept`.
fn encode(text: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let character = char::from(byte);
        if character.is_ascii_alphanumeric()
            || "-._~".contains(character)
            || kept.contains(character)
        {
            encoded.push(character);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The hub of this name, unless the operator names another.
pub const HUGGING_FACE: &str = "https://huggingface.co";
const MAIN: &str = "main";
/// A repository of some ten thousand files.
const MAX_ANSWER: Bytes = Bytes::mib(16);
const MAX_INDEX: Bytes = Bytes::mib(64);
/// The hub keeps larger files in LFS (its limit is 10 MiB).
const MAX_SMALL: Bytes = Bytes::mib(32);
const MOST_FILES: usize = 2_000;

#[cfg(test)]
mod tests;
