use async_trait::async_trait;
use llmgw_core::{
    cluster::weights::Source,
    fetch::{FetchError, Fetcher, hub::Hub},
};

use super::{Obtained, SourceError, SourceRequest, WeightSource, orders::Orders, web::download};

/// Files of Hugging Face repositories, from the hub or from a mirror that answers to the same paths.
#[derive(Debug)]
pub(super) struct HubSource {
    fetcher: Fetcher,
    hub: String,
    orders: Orders,
}

impl HubSource {
    pub(super) fn new(fetcher: Fetcher, hub: &str, orders: Orders) -> Self {
        Self {
            fetcher,
            hub: hub.to_owned(),
            orders,
        }
    }
}

#[async_trait]
impl WeightSource for HubSource {
    fn scheme(&self) -> &'static str {
        "hf"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        let Source::Hub {
            repo,
            path,
            revision,
        } = request.source
        else {
            return Err(SourceError::scheme(request.source));
        };
        let token = self.orders.get().hub_token;
        let hub = Hub::new(self.fetcher.clone(), &self.hub, token);
        let ask = hub.request(repo, path, revision.as_deref());
        match download(&self.fetcher, ask, request).await {
            Err(SourceError::Fetch(
                error @ FetchError::Status {
                    status: 401 | 403, ..
                },
            )) => Err(SourceError::Hub(hub.refusal(repo, error))),
            done => done,
        }
    }
}
