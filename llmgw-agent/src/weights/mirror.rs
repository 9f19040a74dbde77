use async_trait::async_trait;
use llmgw_core::{
    cluster::weights::Source,
    fetch::{Fetcher, hub::Hub},
};

use super::{
    Obtained, SourceError, SourceRequest, WeightSource, error::shown, orders::Orders, web::download,
};

/// Files beneath the mirror of the site, which the control plane names.
#[derive(Debug)]
pub(super) struct MirrorSource {
    fetcher: Fetcher,
    orders: Orders,
}

impl MirrorSource {
    pub(super) fn new(fetcher: Fetcher, orders: Orders) -> Self {
        Self { fetcher, orders }
    }
}

#[async_trait]
impl WeightSource for MirrorSource {
    fn scheme(&self) -> &'static str {
        "mirror"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        if !matches!(request.source, Source::Mirror { .. }) {
            return Err(SourceError::scheme(request.source));
        }
        let mirror = self.orders.get().mirror;
        // The address is made as a control plane makes it that reads a header from there.
        let hub = Hub::new(self.fetcher.clone(), "", None);
        let ask = hub
            .request_of(request.source, mirror.as_deref())
            .ok_or_else(|| SourceError::NoMirror {
                source_text: shown(request.source),
            })?;
        download(&self.fetcher, ask, request).await
    }
}
