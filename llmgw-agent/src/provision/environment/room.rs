//! Whether the disk has room for an environment, before and while it is made.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::{cluster::weights::DISK_RESERVE, units::Bytes};

use super::problem::EnvironmentProblem;

/// A disk, what an environment takes of it, and what is there of it already.
#[derive(Clone, Debug)]
pub(super) struct Room {
    directory: PathBuf,
    /// Unpacked; absent when the lock does not say.
    need: Option<Bytes>,
    /// Of it, what an earlier attempt has left in the cache.
    there: Bytes,
}

// === impl Room ===

impl Room {
    /// Looks at the disk of `directory`. A cache that holds more than twice what is needed is of other locks, and
    /// is emptied first: so it is bounded whatever was tried before.
    pub(super) async fn look(directory: &Path, cache: &Path, need: Option<Bytes>) -> Self {
        let mut there = size_of(cache.to_owned()).await;
        let most = need.map_or(UNKNOWN_MOST, |need| Bytes(need.0.saturating_mul(2)));
        if there > most {
            tracing::info!(path = %cache.display(), size = %there, "emptying what was downloaded for other engines");
            match tokio::fs::remove_dir_all(cache).await {
                Ok(()) => there = Bytes::ZERO,
                Err(error) => {
                    tracing::warn!(path = %cache.display(), %error, "a cache can't be emptied");
                }
            }
        }
        Self {
            directory: directory.to_owned(),
            need,
            there,
        }
    }

    /// Why there is none, before anything is written.
    pub(super) fn problem(&self) -> Option<EnvironmentProblem> {
        let need = self.need.unwrap_or(Bytes::ZERO).saturating_sub(self.there);
        self.short(need)
    }

    /// Returns when what is reserved is being used up.
    pub(super) async fn runs_out(&self) -> EnvironmentProblem {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(problem) = self.short(Bytes::ZERO) {
                return problem;
            }
        }
    }

    /// How much of the environment is there when the cache has `bytes`; `None` when that is not known.
    pub(super) fn percent(&self, bytes: Bytes) -> Option<u8> {
        let Bytes(need) = self.need.filter(|need| *need > Bytes::ZERO)?;
        let percent = u128::from(bytes.0) * 100 / u128::from(need);
        // What is left to do then is not download: a hundred would be a promise.
        Some(u8::try_from(percent).unwrap_or(u8::MAX).min(99))
    }

    fn short(&self, need: Bytes) -> Option<EnvironmentProblem> {
        // A disk that does not say how full it is is tried.
        let found =
            existing(&self.directory).and_then(|directory| rustix::fs::statvfs(directory).ok())?;
        let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
        if free >= need + DISK_RESERVE {
            return None;
        }
        Some(EnvironmentProblem::Room {
            need,
            have: free.saturating_sub(DISK_RESERVE),
            reserve: DISK_RESERVE,
        })
    }
}

/// The nearest directory above that is there.
fn existing(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|path| path.is_dir())
}

/// How many bytes the files under a directory have together; what can't be read counts as nothing.
async fn size_of(directory: PathBuf) -> Bytes {
    tokio::task::spawn_blocking(move || {
        let mut waiting = vec![directory];
        let mut total = 0_u64;
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(found) if found.is_dir() => waiting.push(entry.path()),
                    Ok(found) => total = total.saturating_add(found.len()),
                    Err(_) => {}
                }
            }
        }
        Bytes(total)
    })
    .await
    .unwrap_or(Bytes::ZERO)
}

/// Twice the largest environment that is known.
const UNKNOWN_MOST: Bytes = Bytes::gib(20);
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_environment_that_has_no_room_is_told_with_need_and_have() {
        let home = tempfile::tempdir().unwrap();
        let cache = home.path().join("cache");
        let room = |need| Room::look(home.path(), &cache, need);
        assert_eq!(room(Some(Bytes(1))).await.problem(), None);
        assert_eq!(room(None).await.problem(), None);
        let problem = room(Some(Bytes::gib(1 << 30))).await.problem().unwrap();
        let EnvironmentProblem::Room { need, reserve, .. } = problem else {
            panic!("{problem}");
        };
        assert_eq!((need, reserve), (Bytes::gib(1 << 30), DISK_RESERVE));
    }

    #[tokio::test]
    async fn what_was_downloaded_counts_and_what_is_too_much_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let cache = home.path().join("cache");
        std::fs::create_dir_all(cache.join("a/b")).unwrap();
        std::fs::write(cache.join("a/b/wheel"), [0; 1_000]).unwrap();
        let room = Room::look(home.path(), &cache, Some(Bytes(800))).await;
        assert_eq!(room.there, Bytes(1_000));
        assert_eq!(room.percent(Bytes(400)), Some(50));
        assert_eq!(room.percent(Bytes(4_000)), Some(99));
        let room = Room::look(home.path(), &cache, Some(Bytes(400))).await;
        assert_eq!((room.there, cache.exists()), (Bytes::ZERO, false));
    }
}
