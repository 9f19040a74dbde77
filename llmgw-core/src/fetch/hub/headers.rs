//! What weights say of themselves, read from where they are before any node has them.

use std::sync::Arc;

use super::{Hub, HubError};
use crate::{
    cluster::weights::{Source, Weights, gguf_parts},
    error::{Code, Coded},
    fetch::{FetchRequest, beginning::HeaderError},
    gguf,
    header::ReadError,
    hf_config, safetensors,
    units::Bytes,
};

/// What weights say of themselves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WeightsHeader {
    /// The headers of all parts as one.
    Gguf(gguf::Header),
    /// The headers of all shards as one, and how they are built together.
    Safetensors {
        /// `config.json`.
        config: hf_config::Config,
        /// The tensors.
        header: safetensors::Header,
    },
}

/// Why the header of weights could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct HeadersError {
    /// Which file, or which source.
    pub file: String,
    /// What went wrong.
    pub problem: String,
    /// The kind of failure.
    pub code: Code,
    /// What would help.
    pub hint: Option<String>,
    /// What lies beneath, for logs.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Coded for HeadersError {
    fn code(&self) -> Code {
        self.code
    }

    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl Hub {
    /// Reads the header of weights from the first source that gives it, without fetching them: `hf:`, `https:` and,
    /// beneath `mirror`, `mirror:`. The weights of a hub are to be [pinned](Hub::pin) first.
    ///
    /// # Errors
    /// What came of the last source; that there is none that can be read so is an error too.
    pub async fn header_of(
        &self,
        weights: &Weights,
        mirror: Option<&str>,
    ) -> Result<WeightsHeader, HeadersError> {
        let mut last = None;
        for source in &weights.sources {
            if matches!(source, Source::File { .. } | Source::Pip { .. }) {
                continue;
            }
            let reading = Reading {
                hub: self,
                mirror,
                weights,
                source,
            };
            match reading.header().await {
                Ok(header) => return Ok(header),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| HeadersError {
            file: weights
                .sources
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
            problem:
                "what weights of this kind of source say of themselves can't be read from afar"
                    .to_owned(),
            code: Code::InvalidRequest,
            hint: Some("declare what they need: profiles: [{memory: 12GiB}]".to_owned()),
            source: None,
        }))
    }

    /// A request for a source; `None` for those that no server gives.
    #[must_use]
    pub fn request_of(&self, source: &Source, mirror: Option<&str>) -> Option<FetchRequest> {
        match source {
            Source::Hub {
                repo,
                path,
                revision,
            } => Some(self.request(repo, path, revision.as_deref())),
            Source::Web { url } => Some(FetchRequest::new(url)),
            Source::Mirror { path } => {
                let mirror = mirror?.trim_end_matches('/');
                Some(FetchRequest::new(format!(
                    "{mirror}/{}",
                    super::encode(path, "/")
                )))
            }
            Source::File { .. } | Source::Pip { .. } => None,
        }
    }
}

/// One source that headers are read from.
struct Reading<'a> {
    hub: &'a Hub,
    mirror: Option<&'a str>,
    weights: &'a Weights,
    source: &'a Source,
}

impl Reading<'_> {
    async fn header(&self) -> Result<WeightsHeader, HeadersError> {
        let files: Vec<&str> = self
            .weights
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        let shards: Vec<&str> = files
            .iter()
            .copied()
            .filter(|path| path.ends_with(".safetensors"))
            .collect();
        if !shards.is_empty() {
            return self.safetensors(&shards).await;
        }
        if self.source.file_name().ends_with(".safetensors") {
            let name = self.source.file_name().to_owned();
            return self.safetensors(&[&name]).await;
        }
        self.gguf().await
    }

    async fn gguf(&self) -> Result<WeightsHeader, HeadersError> {
        let limits = gguf::Limits::default();
        let first = self.weights.opened_by();
        let first = first.map_or_else(|| self.source.clone(), |path| self.source.beside(path));
        let mut all = self.gguf_part(&first, &limits).await?;
        let broken = |source: &Source, problem: &dyn ToString| HeadersError {
            file: source.to_string(),
            problem: problem.to_string(),
            code: Code::VerificationFailed,
            hint: None,
            source: None,
        };
        let split = gguf::Split::of(&all.metadata).map_err(|error| broken(&first, &error))?;
        let named = gguf_parts(first.file_name());
        let Some(split) = split else {
            return match named {
                Some(parts) if parts.len() > 1 => Err(broken(
                    &first,
                    &format!(
                        "its name is that of one of {} parts, and its header says that it is whole",
                        parts.len()
                    ),
                )),
                _ => Ok(WeightsHeader::Gguf(all)),
            };
        };
        let names = split
            .names(first.file_name(), &limits)
            .map_err(|error| broken(&first, &error))?;
        for (expected, name) in (0..).zip(&names).skip(1) {
            let source = first.beside(name);
            let part = self.gguf_part(&source, &limits).await?;
            let found = gguf::Split::of(&part.metadata).map_err(|error| broken(&source, &error))?;
            split
                .check_part(expected, found)
                .map_err(|error| broken(&source, &error))?;
            all.tensors.extend(part.tensors);
        }
        split
            .check_whole(&all)
            .map_err(|error| broken(&first, &error))?;
        Ok(WeightsHeader::Gguf(all))
    }

    async fn gguf_part(
        &self,
        source: &Source,
        limits: &gguf::Limits,
    ) -> Result<gguf::Header, HeadersError> {
        let request = self.request(source)?;
        let read = self
            .hub
            .fetcher
            .header(&request, |bytes| gguf::Header::parse(bytes, limits));
        let (header, _) = read.await.map_err(|error| self.unread(source, error))?;
        Ok(header)
    }

    async fn safetensors(&self, shards: &[&str]) -> Result<WeightsHeader, HeadersError> {
        let limits = safetensors::Limits::default();
        let source = self.source.beside("config.json");
        let request = self.request(&source)?.with_max(Bytes(
            u64::try_from(hf_config::MAX_BYTES).unwrap_or(u64::MAX),
        ));
        let text = async { self.hub.fetcher.open(&request).await?.read().await };
        let text = text.await.map_err(|error| {
            self.unread::<hf_config::ConfigError>(
                &source,
                ReadError::Broken(HeaderError::Fetch(error)),
            )
        })?;
        let config = hf_config::Config::parse(&text)
            .map_err(|error| self.unread(&source, ReadError::Broken(HeaderError::Parse(error))))?;
        let mut header = safetensors::Header::default();
        for shard in shards {
            let source = self.source.beside(shard);
            let request = self.request(&source)?;
            let read = self
                .hub
                .fetcher
                .header(&request, |bytes| safetensors::Header::parse(bytes, &limits));
            let (part, _) = read.await.map_err(|error| self.unread(&source, error))?;
            for (name, tensor) in part.tensors {
                if header.tensors.insert(name.clone(), tensor).is_some() {
                    let cause = safetensors::OpenCause::Twice { name };
                    return Err(HeadersError {
                        file: source.to_string(),
                        problem: cause.to_string(),
                        code: Code::VerificationFailed,
                        hint: None,
                        source: None,
                    });
                }
            }
        }
        Ok(WeightsHeader::Safetensors { config, header })
    }

    fn request(&self, source: &Source) -> Result<FetchRequest, HeadersError> {
        self.hub
            .request_of(source, self.mirror)
            .ok_or_else(|| HeadersError {
                file: source.to_string(),
                problem: "there is no mirror".to_owned(),
                code: Code::InvalidRequest,
                hint: Some(
                    "name the site's mirror in the settings: weights: {mirror: URL}".to_owned(),
                ),
                source: None,
            })
    }

    fn unread<E>(&self, source: &Source, error: ReadError<HeaderError<E>>) -> HeadersError
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let file = crate::cluster::weights::shown(source);
        match error {
            ReadError::Broken(HeaderError::Fetch(error)) => {
                let error = match source {
                    Source::Hub { repo, .. } => self.hub.refusal(repo, error),
                    _ => HubError::Fetch(error),
                };
                HeadersError {
                    file,
                    problem: crate::error::Chain(&error).to_string(),
                    code: error.code(),
                    hint: error.hint(),
                    source: None,
                }
            }
            error => HeadersError {
                file,
                problem: error.to_string(),
                code: Code::VerificationFailed,
                hint: None,
                source: Some(Arc::new(error)),
            },
        }
    }
}
