use async_trait::async_trait;
use llmgw_bundle::digest::Digested;
use llmgw_core::{
    cluster::weights::Source,
    fetch::{FetchRequest, Fetcher},
};

use super::{Obtained, SourceError, SourceRequest, WeightSource};

/// Files on any web server.
#[derive(Debug)]
pub(super) struct WebSource {
    fetcher: Fetcher,
}

impl WebSource {
    pub(super) fn new(fetcher: Fetcher) -> Self {
        Self { fetcher }
    }
}

#[async_trait]
impl WeightSource for WebSource {
    fn scheme(&self) -> &'static str {
        "https"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        match request.source {
            Source::Web { url } => download(&self.fetcher, url, request).await,
            other => Err(SourceError::scheme(other)),
        }
    }
}

/// Reads `url` into the partial file.
pub(super) async fn download(
    fetcher: &Fetcher,
    url: &str,
    request: &SourceRequest<'_>,
) -> Result<Obtained, SourceError> {
    let download = fetcher
        .open(&FetchRequest::new(url).with_size(request.size))
        .await?;
    let length = download.length();
    if let Some(length) = length {
        (request.room)(length)?;
    }
    let fetched = download
        .to_file(request.partial, &|done| (request.progress)(done, length))
        .await?;
    Ok(Obtained::Written(Digested {
        bytes: fetched.bytes,
        sha256: fetched.sha256,
    }))
}
