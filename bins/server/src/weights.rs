//! What weights are before a node has them: asked of hubs and web servers, and remembered.
//!
//! What was found is kept in the data directory, a file for each definition of weights, so that a restart neither asks
//! again nor finds another commit beneath the same branch. No secret is in it.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use llmgw_core::{
    cluster::weights::{HubToken, Weights},
    error::{Chain, Coded as _},
    fetch::{
        FetchTimes, Fetcher,
        hub::{HUGGING_FACE, Hub, WeightsHeader},
    },
    fingerprint::Fingerprint,
};
use llmgw_sched::{
    conductor::findings::{Findings, NotFound},
    controller::findings::WeightsReader,
    fit::{Shape, ShapeError},
};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// What a server is told of weights.
#[derive(Clone, Debug, Default)]
pub struct WeightsSettings {
    /// Whether those that were used longest ago may be removed when there is no room for others.
    pub evict: bool,
    /// The address that `mirror:` sources are fetched beneath.
    pub mirror: Option<String>,
    /// The hub's address; Hugging Face when absent.
    pub hub: Option<String>,
    /// What gated repositories are asked with.
    pub hub_token: Option<HubToken>,
}

/// Asks hubs and web servers.
#[derive(Debug)]
pub(crate) struct RemoteReader {
    fetcher: Fetcher,
    /// Held for a look only, never across a wait.
    ways: Mutex<Arc<Ways>>,
    directory: PathBuf,
}

/// The ways to weights, as the settings have them.
#[derive(Debug)]
struct Ways {
    hub: Hub,
    mirror: Option<String>,
}

/// What is kept of one answer.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    of: Weights,
    findings: Findings,
}

// === impl RemoteReader ===

impl RemoteReader {
    /// A reader that keeps what it finds in `directory`, which is made when it is missing.
    pub(crate) fn new(settings: &WeightsSettings, directory: PathBuf) -> Result<Self, Fault> {
        let fetcher = Fetcher::new(FetchTimes::default()).map_err(Fault::Fetcher)?;
        fs::create_dir_all(&directory).map_err(|source| Fault::DataDir {
            path: directory.clone(),
            source,
        })?;
        let ways = Ways::of(settings, &fetcher);
        Ok(Self {
            fetcher,
            ways: Mutex::new(Arc::new(ways)),
            directory,
        })
    }

    /// Goes these ways from now on.
    pub(crate) fn go(&self, settings: &WeightsSettings) {
        let ways = Arc::new(Ways::of(settings, &self.fetcher));
        *self.ways.lock().unwrap_or_else(PoisonError::into_inner) = ways;
    }

    fn ways(&self) -> Arc<Ways> {
        Arc::clone(&self.ways.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn place(&self, weights: &Weights) -> Option<PathBuf> {
        let name = Fingerprint::of(weights)?;
        Some(self.directory.join(format!("{name}.json")))
    }
}

impl Ways {
    fn of(settings: &WeightsSettings, fetcher: &Fetcher) -> Self {
        let hub = settings.hub.as_deref().unwrap_or(HUGGING_FACE);
        Self {
            hub: Hub::new(fetcher.clone(), hub, settings.hub_token.clone()),
            mirror: settings.mirror.clone(),
        }
    }
}

#[async_trait]
impl WeightsReader for RemoteReader {
    async fn find_out(&self, weights: &Weights) -> Result<Findings, NotFound> {
        let place = self.place(weights);
        if let Some(place) = place.clone() {
            let of = weights.clone();
            let read = tokio::task::spawn_blocking(move || read(&place, &of)).await;
            if let Ok(Some(known)) = read {
                // Which commit it is stays; what could not be read of it may be readable now.
                if known.shape.is_ok() {
                    return Ok(known);
                }
                return Ok(self
                    .with_shape(known.weights, self.place(weights), weights)
                    .await);
            }
        }
        let pinned = self.ways().hub.pin(weights).await.map_err(|error| {
            NotFound::with_code(Chain(&error).to_string(), error.hint(), error.code())
        })?;
        let pinned = pinned.unwrap_or_else(|| weights.clone());
        Ok(self.with_shape(pinned, place, weights).await)
    }
}

impl RemoteReader {
    /// Reads the header of pinned weights, and keeps all that is known.
    async fn with_shape(&self, pinned: Weights, place: Option<PathBuf>, of: &Weights) -> Findings {
        let ways = self.ways();
        let shape = match ways.hub.header_of(&pinned, ways.mirror.as_deref()).await {
            Ok(header) => shape(&header),
            Err(error) => Err(NotFound::with_code(
                error.to_string(),
                error.hint(),
                error.code(),
            )),
        };
        let findings = Findings {
            weights: pinned,
            shape,
        };
        if let Some(place) = place {
            let kept = Kept {
                of: of.clone(),
                findings: findings.clone(),
            };
            let written = tokio::task::spawn_blocking(move || write(&place, &kept)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(%error, "what was found out of weights can't be kept");
            }
        }
        findings
    }
}

/// The shape that a header tells.
fn shape(header: &WeightsHeader) -> Result<Shape, NotFound> {
    let shape = match header {
        WeightsHeader::Gguf(header) => Shape::from_gguf(header, None),
        WeightsHeader::Safetensors { config, header } => Shape::from_config(config, header, None),
        _ => {
            return Err(NotFound::for_good(
                "a header of a kind that is not known",
                None,
            ));
        }
    };
    shape.map_err(|error| {
        let hint = match &error {
            ShapeError::CannotBound { .. } => {
                Some("measure it once and declare it: profiles: [{memory: 12GiB}]".to_owned())
            }
            error => error.hint(),
        };
        NotFound::for_good(error.to_string(), hint)
    })
}

/// What was kept of these very weights; a file that is damaged, or of another release, is none.
fn read(place: &Path, of: &Weights) -> Option<Findings> {
    let mut json = Vec::new();
    fs::File::open(place)
        .ok()?
        .take(MAX_KEPT)
        .read_to_end(&mut json)
        .ok()?;
    let kept: Kept = serde_json::from_slice(&json).ok()?;
    (kept.of == *of).then_some(kept.findings)
}

fn write(place: &Path, kept: &Kept) -> io::Result<()> {
    let beside = place.with_extension("new");
    // An address may carry a secret.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(kept)?)?;
    file.sync_all()?;
    fs::rename(beside, place)
}

/// A thousand layers, and two thousand files.
const MAX_KEPT: u64 = 8 << 20;

#[cfg(test)]
mod tests;
