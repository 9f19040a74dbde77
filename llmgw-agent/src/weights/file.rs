use async_trait::async_trait;
use llmgw_core::cluster::weights::Source;

use super::{Obtained, SourceError, SourceRequest, WeightSource};

/// Files on the node, used where they lie.
#[derive(Debug)]
pub(super) struct FileSource;

#[async_trait]
impl WeightSource for FileSource {
    fn scheme(&self) -> &'static str {
        "file"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        match request.source {
            Source::File { path } => Ok(Obtained::InPlace(path.into())),
            other => Err(SourceError::scheme(other)),
        }
    }
}
