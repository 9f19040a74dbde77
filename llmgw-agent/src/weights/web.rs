use std::io;

use async_trait::async_trait;
use llmgw_bundle::digest::Digested;
use llmgw_core::{
    cluster::weights::Source,
    fetch::{FetchError, FetchRequest, Fetcher, Watch},
    units::Bytes,
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
            Source::Web { url } => download(&self.fetcher, FetchRequest::new(url), request).await,
            other => Err(SourceError::scheme(other)),
        }
    }
}

/// Reads what `ask` names into the partial file, going on with what is there of it.
pub(super) async fn download(
    fetcher: &Fetcher,
    ask: FetchRequest,
    request: &SourceRequest<'_>,
) -> Result<Obtained, SourceError> {
    let ask = ask.with_size(request.size).with_sha256(request.sha256);
    let watch = Watch {
        room: &|need| (request.room)(need).map_err(SourceError::Short),
        progress: request.progress,
    };
    let fetched = fetcher.to_partial(&ask, request.partial, &watch).await;
    let fetched = fetched.map_err(|error| no_room(error, request))?;
    Ok(Obtained::Written(Digested {
        bytes: fetched.bytes,
        sha256: fetched.sha256,
    }))
}

/// A full disk is said with what is missing, however it was noticed.
fn no_room(error: SourceError, request: &SourceRequest<'_>) -> SourceError {
    let SourceError::Fetch(FetchError::Write { source, .. }) = &error else {
        return error;
    };
    let is_full = matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    match (request.room)(Bytes(1)) {
        Err(short) if is_full => SourceError::Short(short),
        _ => error,
    }
}
