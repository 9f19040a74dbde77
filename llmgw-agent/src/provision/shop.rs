//! What installations work with: the machine, its disk, the downloader, and what is removed.

use std::{
    collections::BTreeMap,
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use llmgw_core::{
    cluster::{engine::ProvisionState, node::MajorMinor},
    fetch::{FetchTimes, Fetcher},
    fingerprint::Fingerprint,
    id::EngineName,
    units::Bytes,
};
use tokio::{fs, task::spawn_blocking};

use super::{
    Prover, ProvisionConfig, ProvisionError, ProvisionTimes, SystemPackages,
    archive::{Archive, Surroundings},
    described::check_described,
    driver,
    environment::Environment,
    lookup::Lookup,
    plan::{ArchiveBuild, Build, Gpus},
    program::check_program,
    wheel::Wheel,
};
use crate::{
    engine::InstalledEngine,
    facts::{self, Root, Scene},
    flight::Progress,
};

/// What the work needs; shared with the work that is under way.
#[derive(Debug)]
pub(super) struct Shop {
    pub(super) config: ProvisionConfig,
    pub(super) times: ProvisionTimes,
    pub(super) lookup: Option<Lookup>,
    pub(super) packages: SystemPackages,
    pub(super) prover: Option<Arc<dyn Prover>>,
    pub(super) root: Root,
    pub(super) reserve: Bytes,
    pub(super) fetcher: OnceLock<Fetcher>,
    /// Held by the thread that writes what was chosen.
    pub(super) ledger: Arc<Mutex<()>>,
    /// What environments looked like when all of them was checked and right, by their interpreters.
    pub(super) whole: Mutex<BTreeMap<PathBuf, Fingerprint>>,
}

/// What was found on this machine.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    pub(super) surroundings: Surroundings,
    pub(super) gpus: Gpus,
}

impl Shop {
    /// What an environment looked like when all of it was found to be right.
    pub(super) fn checked_whole(&self, python: &Path) -> Option<Fingerprint> {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.get(python).copied()
    }

    /// Remembers that, or forgets it.
    pub(super) fn keep_checked(&self, python: PathBuf, looks: Option<Fingerprint>) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        match looks {
            Some(looks) => drop(whole.insert(python, looks)),
            None => drop(whole.remove(&python)),
        }
    }

    pub(super) async fn install(
        &self,
        name: EngineName,
        build: Build,
        surroundings: Surroundings,
        told: Progress<ProvisionState>,
    ) -> Result<InstalledEngine, ProvisionError> {
        match build {
            Build::Program(program) => {
                step(
                    &told,
                    format!("asking {} for its version", program.display()),
                );
                check_program(name, &program, self).await
            }
            Build::Wheel => Wheel::new(name, self).ensure(&told).await,
            Build::Archive(build) => {
                let build: ArchiveBuild = build;
                Archive::new(name, &build, surroundings, self)
                    .ensure(&told)
                    .await
            }
            Build::Environment(origin) => Environment::new(name, origin, self).ensure(&told).await,
            Build::Custom(engine) => check_described(name, *engine).await,
        }
    }

    /// Looks at the machine, as far as a build's choice depends on it.
    pub(super) async fn look(&self) -> Situation {
        let scene = Scene {
            root: self.root.clone(),
            ..Scene::here(&self.config.directory)
        };
        let root = self.root.clone();
        let looked = spawn_blocking(move || {
            let facts = facts::look(&facts::probes(&root), &scene);
            let cards = facts.gpus.unwrap_or_default();
            Situation {
                surroundings: Surroundings {
                    glibc: facts.glibc.as_deref().and_then(MajorMinor::leading),
                },
                gpus: Gpus {
                    nvidia: driver::is_loaded(&root),
                    cuda: cards
                        .iter()
                        .filter_map(|card| card.cuda)
                        .min()
                        .or_else(|| driver::cuda_of_driver(&root)),
                    others: cards.iter().any(|card| card.vendor != "nvidia"),
                },
            }
        });
        looked.await.unwrap_or_else(|_| Situation {
            surroundings: Surroundings::default(),
            gpus: Gpus::default(),
        })
    }

    /// Whether `need` more bytes leave the reserve untouched. A disk that does not say how full it is, is tried.
    pub(super) fn room(&self, doing: &str, need: u64) -> Result<(), ProvisionError> {
        let path = &self.config.directory;
        // Before the first installation the directory may not be there: what it will be on is.
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
        let Ok(found) = rustix::fs::statvfs(there) else {
            return Ok(());
        };
        let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
        let have = free.saturating_sub(self.reserve);
        if need <= have.0 {
            return Ok(());
        }
        Err(ProvisionError::NoSpace {
            doing: doing.to_owned(),
            path: path.clone(),
            need: Bytes(need),
            have,
        })
    }

    pub(super) fn fetcher(&self) -> Result<&Fetcher, ProvisionError> {
        if self.fetcher.get().is_none() {
            let fetcher =
                Fetcher::new(FetchTimes::default()).map_err(|source| ProvisionError::Fetch {
                    asset: "anything".to_owned(),
                    source: Arc::new(source),
                })?;
            drop(self.fetcher.set(fetcher));
        }
        self.fetcher.get().ok_or_else(|| {
            failed("setting up", Path::new("the downloader"))(io::ErrorKind::Other.into())
        })
    }
}

/// Takes what is there out of the way at once, then removes it: a helper of an earlier life that still writes
/// there does not find it.
pub(super) async fn wipe(directory: &Path, shop: &Shop) -> Result<(), ProvisionError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parent = directory.parent().unwrap_or(&shop.config.directory);
    fs::create_dir_all(parent)
        .await
        .map_err(failed("making", parent))?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = shop.config.clock.now().0;
    let trash = parent.join(format!("{TRASH}{now}-{number}"));
    match fs::rename(directory, &trash).await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("removing", directory)(error)),
    }
    let mut entries = fs::read_dir(parent)
        .await
        .map_err(failed("reading", parent))?;
    while let Ok(Some(entry)) = entries.next_entry().await {
        if entry.file_name().to_string_lossy().starts_with(TRASH)
            && let Err(error) = fs::remove_dir_all(entry.path()).await
        {
            // The next installation tries again; this one does not depend on it.
            tracing::warn!(path = %entry.path().display(), %error, "a part of an old installation is left");
        }
    }
    Ok(())
}

pub(super) fn step(told: &Progress<ProvisionState>, step: String) {
    told.tell(ProvisionState::step(step));
}

pub(super) fn failed<'p>(
    doing: &'static str,
    path: &'p Path,
) -> impl FnOnce(io::Error) -> ProvisionError + use<'p> {
    move |source| ProvisionError::File {
        doing,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

/// Whether a full disk is what it comes down to.
pub(super) fn full(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            )
        {
            return true;
        }
        next = error.source();
    }
    false
}

const TRASH: &str = ".trash-";
