//! From a source far away to the shape of a model: its header is read, and no more.

use std::path::PathBuf;

use clap::Args;
use llmgw_agent::weights::package_file;
use llmgw_core::{
    cluster::weights::{HubToken, Source, Weights, split_digest},
    error::{Chain, Code, Coded},
    fetch::{
        FetchTimes, Fetcher,
        hub::{HUGGING_FACE, Hub, WeightsHeader},
    },
    units::Bytes,
};
use llmgw_sched::fit::Shape;

use super::source::{refused, shape};
use crate::failure::{Cause, Failure};

/// Where sources are asked for.
#[derive(Args, Clone, Debug)]
pub(super) struct Remote {
    /// The model hub's address
    #[arg(long, value_name = "URL", env = "LLMGW_HUB", default_value = HUGGING_FACE)]
    hub: String,
    /// A file with the token that gated repositories are asked with
    #[arg(long, value_name = "FILE", env = "LLMGW_HUB_TOKEN_FILE")]
    hub_token_file: Option<PathBuf>,
}

/// The source that a text names, unless it is a path.
pub(super) fn source(text: &str) -> Option<Source> {
    let (source, _) = split_digest(text).ok()?;
    source.parse().ok()
}

impl Remote {
    /// The shape of the model that a source names.
    pub(super) fn shape(&self, source: &Source, like: Option<&str>) -> Result<Shape, Failure> {
        match source {
            Source::Pip { .. } => {
                let directory = tempfile::tempdir().map_err(|error| {
                    Failure::new(Cause::Refused, format!("making a directory: {error}"))
                })?;
                let file = wait_for(package_file(source, directory.path()))?;
                let file = file.map_err(|error| failed(&error, Chain(&error).to_string()))?;
                shape(&file, like)
            }
            _ => wait_for(self.header(source))?.and_then(|header| {
                let place = PathBuf::from(source.to_string());
                let shape = match &header {
                    WeightsHeader::Gguf(header) => Shape::from_gguf(header, like),
                    WeightsHeader::Safetensors { config, header } => {
                        Shape::from_config(config, header, like)
                    }
                    _ => {
                        let text = format!("{source}: a header of a kind that is not known");
                        return Err(Failure::new(Cause::Usage, text));
                    }
                };
                let shape = shape.map_err(|error| refused(&place, &error))?;
                if shape.weights() == Bytes::ZERO {
                    let text = format!("{source} holds no weights");
                    return Err(Failure::new(Cause::Usage, text));
                }
                Ok(shape)
            }),
        }
    }

    async fn header(&self, source: &Source) -> Result<WeightsHeader, Failure> {
        let fetcher = Fetcher::new(FetchTimes::default())
            .map_err(|error| failed(&error, Chain(&error).to_string()))?;
        let hub = Hub::new(fetcher, &self.hub, self.token()?);
        let named = Weights {
            sources: vec![source.clone()],
            sha256: None,
            size: None,
            files: Vec::new(),
        };
        let pinned = hub
            .pin(&named)
            .await
            .map_err(|error| failed(&error, Chain(&error).to_string()))?;
        let read = hub.header_of(&pinned.unwrap_or(named), None).await;
        read.map_err(|error| failed(&error, error.to_string()))
    }

    fn token(&self) -> Result<Option<HubToken>, Failure> {
        let Some(path) = &self.hub_token_file else {
            return Ok(None);
        };
        let wrong = |problem: String| {
            Failure::new(Cause::Usage, format!("{}: {problem}", path.display()))
                .with_hint("name a file that holds the token and nothing else")
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let token = HubToken::parse(&text).ok_or_else(|| wrong("it holds no token".to_owned()))?;
        Ok(Some(token))
    }
}

/// Waits for work on a thread and a runtime of its own: the caller may be on one already.
fn wait_for<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Failure> {
    let failed = |problem: String| Failure::new(Cause::Refused, format!("starting: {problem}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    std::thread::scope(|scope| {
        // It ends there too: a runtime may not be dropped on another.
        let waiting = scope.spawn(move || runtime.block_on(work));
        waiting
            .join()
            .map_err(|_| failed("the work has failed".to_owned()))
    })
}

fn failed(error: &dyn Coded, text: String) -> Failure {
    let cause = match error.code() {
        Code::NotFound => Cause::NotFound,
        Code::InvalidRequest | Code::VerificationFailed => Cause::Usage,
        _ => Cause::Unavailable,
    };
    let failure = Failure::new(cause, text);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
