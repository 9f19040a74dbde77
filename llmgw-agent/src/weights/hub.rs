use async_trait::async_trait;
use llmgw_core::{cluster::weights::Source, fetch::Fetcher};

use super::{Obtained, SourceError, SourceRequest, WeightSource, web::download};

/// Files of Hugging Face repositories, from the hub or from a mirror that answers to the same paths.
#[derive(Debug)]
pub(super) struct HubSource {
    fetcher: Fetcher,
    hub: String,
}

impl HubSource {
    pub(super) fn new(fetcher: Fetcher, hub: &str) -> Self {
        Self {
            fetcher,
            hub: hub.trim_end_matches('/').to_owned(),
        }
    }

    fn address(&self, repo: &str, path: &str, revision: Option<&str>) -> String {
        let hub = &self.hub;
        // A revision is one segment, whatever is in its name.
        let revision = encode(revision.unwrap_or("main"), "");
        let (repo, path) = (encode(repo, "/"), encode(path, "/"));
        format!("{hub}/{repo}/resolve/{revision}/{path}")
    }
}

#[async_trait]
impl WeightSource for HubSource {
    fn scheme(&self) -> &'static str {
        "hf"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        match request.source {
            Source::Hub {
                repo,
                path,
                revision,
            } => {
                let address = self.address(repo, path, revision.as_deref());
                download(&self.fetcher, &address, request).await
            }
            other => Err(SourceError::scheme(other)),
        }
    }
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

#[cfg(test)]
mod tests {
    use llmgw_core::fetch::FetchTimes;

    use super::*;

    #[test]
    fn addresses_are_those_of_the_hub_whatever_names_contain() {
        let fetcher = Fetcher::new(FetchTimes::default()).unwrap();
        let hub = HubSource::new(fetcher, "https://hub.example/");
        assert_eq!(
            hub.address("owner/repo", "dir/a.gguf", None),
            "https://hub.example/owner/repo/resolve/main/dir/a.gguf"
        );
        assert_eq!(
            hub.address("o/r", "50%?#é/x", Some("refs/pr/1")),
            "https://hub.example/o/r/resolve/refs%2Fpr%2F1/50%25%3F%23%C3%A9/x"
        );
    }
}
