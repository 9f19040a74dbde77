//! The work of getting one file: source by source, onto its shelf.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use llmgw_core::{
    clock::Clock,
    cluster::weights::{FetchProgress, Sha256Digest, Source, Weights},
    units::Bytes,
};
use tokio::task::spawn_blocking;

use super::{
    Attempt, Key, Obtained, SourceError, SourceRequest, WeightSource, WeightsError, disk::Disk,
    error::shown, in_place::InPlace, meter::Teller, orders::Orders, set, shelf::Shelf,
    stock::Stock,
};
use crate::flight::Progress;

/// What the work needs; shared with the work that is under way.
#[derive(Debug)]
pub(super) struct Shop {
    directory: PathBuf,
    disk: Disk,
    sources: Vec<Box<dyn WeightSource>>,
    orders: Orders,
    clock: Arc<dyn Clock>,
    stock: Arc<Stock>,
    notes: Mutex<BTreeMap<Key, Vec<String>>>,
    in_use: Mutex<BTreeSet<Sha256Digest>>,
    /// Weights that are being fetched, or were found and are about to be used.
    wanted: Mutex<BTreeMap<Sha256Digest, usize>>,
}

/// Keeps weights from being removed while somebody waits for them.
#[derive(Debug)]
struct Wanted<'s> {
    shop: &'s Shop,
    digest: Sha256Digest,
}

impl Shop {
    pub(super) fn new(
        directory: PathBuf,
        disk_reserve: Bytes,
        sources: Vec<Box<dyn WeightSource>>,
        orders: Orders,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            disk: Disk::new(directory.clone(), disk_reserve),
            stock: Arc::new(Stock::new(directory.clone())),
            directory,
            sources,
            orders,
            clock,
            notes: Mutex::default(),
            in_use: Mutex::default(),
            wanted: Mutex::default(),
        }
    }

    pub(super) fn orders(&self) -> &Orders {
        &self.orders
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn stock(&self) -> &Stock {
        &self.stock
    }

    pub(super) fn set_in_use(&self, digests: BTreeSet<Sha256Digest>) {
        *lock(&self.in_use) = digests;
    }

    pub(super) fn notes(&self, key: &Key) -> Vec<String> {
        lock(&self.notes).get(key).cloned().unwrap_or_default()
    }

    /// Gets one file, and tells how far it is.
    pub(super) async fn get(
        &self,
        key: Key,
        weights: &Weights,
        told: Progress<FetchProgress>,
    ) -> Result<PathBuf, WeightsError> {
        let teller = Teller::new(told, Arc::clone(&self.clock));
        let _wanted = weights.sha256.map(|digest| self.want(digest));
        let done = tokio::select! {
            biased;
            done = self.get_file(key, weights, &teller) => done,
            () = teller.keep_looking() => unreachable!("it never ends"),
        };
        // Of what is used elsewhere, or was not got, no empty directory stays.
        if let Some(digest) = weights.sha256 {
            Shelf::new(&self.directory, digest).leave_if_empty().await;
        }
        done
    }

    /// Whether there is room for all files of a set that are not here yet: said before the first is fetched.
    pub(super) fn room_for_all(&self, parts: &[(&str, Weights)]) -> Result<(), WeightsError> {
        let missing = parts.iter().filter(|(_, part)| {
            let on_the_node = matches!(part.sources.first(), Some(Source::File { .. }));
            let shelf = part
                .sha256
                .map(|digest| Shelf::new(&self.directory, digest));
            !on_the_node && !shelf.is_some_and(|shelf| shelf.has_something())
        });
        let need = missing.filter_map(|(_, part)| part.size).sum();
        match self.disk.room_for(need) {
            // What can be removed is removed when it comes to it.
            Err(short) if !self.orders.get().evict => Err(WeightsError::Short(short)),
            Err(_) | Ok(()) => Ok(()),
        }
    }

    pub(super) async fn lay(
        &self,
        weights: &Weights,
        files: Vec<(String, PathBuf)>,
    ) -> Result<PathBuf, WeightsError> {
        set::lay(&self.directory, weights, files).await
    }

    /// Notes that a replica is started on these weights.
    pub(super) async fn note_use(&self, weights: &Weights) {
        for digest in weights.digests() {
            let shelf = Shelf::new(&self.directory, digest);
            if shelf.has_something() {
                shelf.note_use(self.clock.now()).await;
            }
        }
    }

    /// Removes weights, unless somebody uses or waits for them. Says how much that was.
    pub(super) async fn remove(&self, digest: Sha256Digest, why: &'static str) -> Bytes {
        if self.is_needed(digest) {
            tracing::info!(%digest, "weights are in use, and stay");
            return Bytes::ZERO;
        }
        let stock = Arc::clone(&self.stock);
        match spawn_blocking(move || stock.remove(digest)).await {
            // The runtime goes down, or there was nothing.
            Err(_) | Ok(Ok(Bytes::ZERO)) => Bytes::ZERO,
            Ok(Ok(size)) => {
                tracing::info!(%digest, %size, why, "weights were removed");
                size
            }
            Ok(Err(error)) => {
                tracing::warn!(%digest, %error, "weights can't be removed");
                Bytes::ZERO
            }
        }
    }

    async fn get_file(
        &self,
        key: Key,
        weights: &Weights,
        teller: &Teller,
    ) -> Result<PathBuf, WeightsError> {
        lock(&self.notes).remove(&key);
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
            let mut tried = self
                .try_source(source, weights, shelf.as_ref(), teller)
                .await;
            while let Err(SourceError::Short(error)) = &tried {
                if !self.orders.get().evict || !self.evict(error.short).await {
                    break;
                }
                tried = self
                    .try_source(source, weights, shelf.as_ref(), teller)
                    .await;
            }
            match tried {
                Ok(path) => return Ok(path),
                Err(error) => {
                    let attempt = Attempt::new(source, &error);
                    teller.passed_over(&attempt.line);
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
        teller: &Teller,
    ) -> Result<PathBuf, SourceError> {
        let reader = self
            .sources
            .iter()
            .find(|reader| reader.scheme() == source.scheme())
            .ok_or_else(|| SourceError::scheme(source))?;
        let tell = |done, total| teller.tell(source, done, total);
        // Who waits sees which source is tried, also before the first byte; a file that is used where it lies is not
        // fetched.
        if !matches!(source, Source::File { .. }) {
            tell(Bytes::ZERO, weights.size);
        }
        match shelf {
            Some(shelf) => {
                let place = shelf.place(source).await?;
                let obtained = reader
                    .obtain(&SourceRequest {
                        source,
                        size: weights.size,
                        sha256: Some(shelf.digest()),
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

    /// Makes room by removing those that were used longest ago, until so much is free. Says whether anything went.
    async fn evict(&self, short: Bytes) -> bool {
        let in_use = lock(&self.in_use).clone();
        let store = Arc::clone(&self.stock);
        let looked = spawn_blocking(move || store.look(&in_use)).await;
        let Ok(Ok(mut stock)) = looked else {
            return false;
        };
        stock.retain(|one| !one.in_place && !one.in_use && !self.is_needed(one.sha256));
        stock.sort_by_key(|one| (one.last_used, one.sha256));
        let mut freed = Bytes::ZERO;
        for one in stock {
            if freed >= short {
                break;
            }
            freed = freed + self.remove(one.sha256, "others need the room").await;
        }
        freed > Bytes::ZERO
    }

    fn want(&self, digest: Sha256Digest) -> Wanted<'_> {
        *lock(&self.wanted).entry(digest).or_insert(0) += 1;
        Wanted { shop: self, digest }
    }

    fn is_needed(&self, digest: Sha256Digest) -> bool {
        lock(&self.in_use).contains(&digest) || lock(&self.wanted).contains_key(&digest)
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
        lock(&self.notes).entry(key.clone()).or_default().push(note);
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        let mut wanted = lock(&self.shop.wanted);
        if let Some(count) = wanted.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                wanted.remove(&self.digest);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists and sets: whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
