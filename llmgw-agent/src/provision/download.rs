//! The archives of a release, fetched into files that survive the agent.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use llmgw_bundle::digest::digest;
use llmgw_core::{
    cluster::{
        engine::{ProvisionState, Transfer},
        release::Asset,
        weights::Sha256Digest,
    },
    fetch::{FetchError, FetchRequest, Watch},
    units::Bytes,
};
use tokio::{fs, task::spawn_blocking, time::Instant};

use super::{ProvisionError, Shop, failed, full};
use crate::flight::Progress;

/// The archives of one release.
#[derive(Debug)]
pub(super) struct Downloads<'a> {
    shop: &'a Shop,
    directory: PathBuf,
}

/// Measures how fast a download is, over the last few seconds.
#[derive(Debug, Default)]
struct Meter {
    samples: Mutex<VecDeque<(Instant, Bytes)>>,
    said: Mutex<Option<Instant>>,
}

// === impl Downloads ===

impl<'a> Downloads<'a> {
    pub(super) fn new(shop: &'a Shop, tag: &str) -> Self {
        Self {
            shop,
            directory: shop.config.directory.join(DOWNLOADS).join(tag),
        }
    }

    /// Where an archive is once it is whole.
    pub(super) fn archive(&self, asset: &Asset) -> PathBuf {
        self.directory.join(&asset.name)
    }

    /// How many bytes of the archives are there, whole or not.
    pub(super) async fn there(&self, assets: &[Asset]) -> u64 {
        let mut there = 0_u64;
        for asset in assets {
            for path in [self.archive(asset), self.partial(asset)] {
                if let Ok(found) = fs::metadata(path).await {
                    there = there.saturating_add(found.len());
                }
            }
        }
        there
    }

    /// Fetches an archive unless it is there, and compares its digest. `rest` comes after it.
    pub(super) async fn fetch(
        &self,
        asset: &Asset,
        rest: &[Asset],
        told: &Progress<ProvisionState>,
    ) -> Result<(), ProvisionError> {
        let whole = self.archive(asset);
        if let Some(expected) = asset.sha256
            && matches!(sha256(whole.clone()).await, Ok(got) if got == expected)
        {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)
            .await
            .map_err(failed("making", &self.directory))?;
        let partial = self.partial(asset);
        let name = asset.name.as_str();
        let later: Option<u64> = rest.iter().map(|one| one.size.map(|size| size.0)).sum();
        let meter = Meter::default();
        let begin = format!("downloading {name}");
        super::step(told, begin.clone());
        let progress = |done: Bytes, total: Option<Bytes>| {
            if let Some(state) = meter.state(&begin, done, total, later.map(Bytes)) {
                told.tell(state);
            }
        };
        let room = |more: Bytes| {
            let room = self.shop.room(&format!("downloading {name}"), more.0);
            room.map_err(|error| ReadError::Room(Box::new(error)))
        };
        let request = FetchRequest::new(&asset.url)
            .with_size(asset.size)
            .with_sha256(asset.sha256)
            .with_max(MAX_ARCHIVE);
        let read = self
            .shop
            .read(&request, asset, &partial, &room, &progress)
            .await;
        if matches!(read, Err(ProvisionError::Digest { .. })) {
            // Nothing of it is left, so that the directory is of no use either.
            fs::remove_dir(&self.directory).await.ok();
        }
        read?;
        fs::rename(&partial, &whole)
            .await
            .map_err(failed("renaming", &partial))
    }

    /// Removes the archives and what is left of them.
    pub(super) async fn tidy(&self) {
        match fs::remove_dir_all(&self.directory).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.directory.display(), %error, "archives are left");
            }
            _ => {}
        }
    }

    fn partial(&self, asset: &Asset) -> PathBuf {
        self.directory.join(format!("{}.partial", asset.name))
    }
}

// === impl Meter ===

impl Meter {
    /// What is to be said of it now; nothing when it was said just before.
    fn state(
        &self,
        step: &str,
        done: Bytes,
        total: Option<Bytes>,
        later: Option<Bytes>,
    ) -> Option<ProvisionState> {
        let now = Instant::now();
        let per_second = self.rate(now, done);
        let is_end = Some(done) == total;
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_end && said.is_some_and(|said| now.duration_since(said) < SAY_EVERY) {
                return None;
            }
            *said = Some(now);
        }
        let left = total.map(|total| total.0.saturating_sub(done.0));
        let eta_seconds = match (left, later, per_second) {
            (Some(left), Some(later), Some(Bytes(rate @ 1..))) => {
                Some(left.saturating_add(later.0).div_ceil(rate) + AFTERWARDS.as_secs())
            }
            _ => None,
        };
        let percent = total
            .filter(|total| total.0 > 0)
            .map(|total| u128::from(done.0) * 100 / u128::from(total.0))
            .and_then(|percent| u8::try_from(percent.min(100)).ok());
        Some(ProvisionState::Installing {
            step: step.to_owned(),
            percent,
            transfer: Some(Transfer {
                done,
                total,
                per_second,
            }),
            eta_seconds,
        })
    }

    fn rate(&self, now: Instant, done: Bytes) -> Option<Bytes> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        // Enough points for the window, however small the pieces are that come.
        if samples
            .back()
            .is_none_or(|(at, _)| now.duration_since(*at) >= SAMPLE_EVERY)
        {
            samples.push_back((now, done));
        }
        while samples
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
        {
            samples.pop_front();
        }
        let (at, before) = *samples.front()?;
        let millis = u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
        // The first moments say nothing about the rest.
        (millis >= 1_000)
            .then(|| Bytes(done.0.saturating_sub(before.0).saturating_mul(1_000) / millis))
    }
}

// === impl Shop ===

impl Shop {
    /// Reads `request` into the partial file, and compares its digest where there is one.
    async fn read(
        &self,
        request: &FetchRequest,
        asset: &Asset,
        partial: &Path,
        room: &(dyn Fn(Bytes) -> Result<(), ReadError> + Send + Sync),
        progress: &(dyn Fn(Bytes, Option<Bytes>) + Send + Sync),
    ) -> Result<(), ProvisionError> {
        let watch = Watch { room, progress };
        match self.fetcher()?.to_partial(request, partial, &watch).await {
            Ok(_) => Ok(()),
            Err(ReadError::Fetch(FetchError::Digest {
                expected, actual, ..
            })) => Err(ProvisionError::Digest {
                asset: asset.name.clone(),
                expected,
                got: actual,
            }),
            Err(ReadError::Fetch(source)) if full(&source) => Err(ProvisionError::DiskFull {
                doing: format!("downloading {}", asset.name),
                path: self.config.directory.clone(),
            }),
            Err(ReadError::Fetch(source)) => Err(ProvisionError::Fetch {
                asset: asset.name.clone(),
                source: Arc::new(source),
            }),
            Err(ReadError::Room(error)) => Err(*error),
        }
    }
}

/// Why an archive is not read.
enum ReadError {
    Fetch(FetchError),
    Room(Box<ProvisionError>),
}

impl From<FetchError> for ReadError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

async fn sha256(path: PathBuf) -> io::Result<Sha256Digest> {
    spawn_blocking(move || Ok(digest(std::fs::File::open(path)?)?.sha256))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Beside the engines, so that a finished archive and what is made of it are on one disk.
pub(super) const DOWNLOADS: &str = "downloads";
/// The largest runtime archives have about half a gigabyte.
const MAX_ARCHIVE: Bytes = Bytes::gib(16);
/// Often enough for who watches, rarely enough for who is told over a network.
const SAY_EVERY: Duration = Duration::from_millis(500);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
const WINDOW: Duration = Duration::from_secs(5);
/// Unpacking and the checks, the last of which loads a model: seconds on a machine of the usual kind.
const AFTERWARDS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_download_says_how_fast_it_is_and_when_all_will_be_there() {
        let meter = Meter::default();
        let total = Some(Bytes::mib(100));
        let first = meter.state("downloading x", Bytes::ZERO, total, Some(Bytes::mib(60)));
        let Some(ProvisionState::Installing {
            eta_seconds: None,
            percent: Some(0),
            ..
        }) = first
        else {
            panic!("{first:?}");
        };
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(
            meter.state("downloading x", Bytes::mib(1), total, None),
            None
        );
        tokio::time::advance(Duration::from_millis(1_900)).await;
        let state = meter.state("downloading x", Bytes::mib(20), total, Some(Bytes::mib(60)));
        let Some(ProvisionState::Installing {
            eta_seconds,
            percent,
            transfer,
            ..
        }) = state
        else {
            panic!("{state:?}");
        };
        assert_eq!(transfer.unwrap().per_second, Some(Bytes::mib(10)));
        // 80 MiB of this and 60 MiB of the next at 10 MiB a second, and five seconds afterwards.
        assert_eq!((percent, eta_seconds), (Some(20), Some(19)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_that_of_the_last_seconds() {
        let meter = Meter::default();
        for second in 0..20_u64 {
            let rate = meter.rate(Instant::now(), Bytes(second.min(10) * 1_000));
            if second > 16 {
                assert_eq!(rate, Some(Bytes::ZERO), "{second}");
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
}
