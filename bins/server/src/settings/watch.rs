//! Settings that change while a server runs: what follows them, and who looks for changes.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmgw_core::{control::Settings as _, gateway::WaitingBounds};
use llmgw_sched::controller::{ControllerHandle, Terms};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::weights::{RemoteReader, WeightsSettings};

/// Has the gateway and the reader of weights follow the terms, until `stop`.
pub(crate) async fn follow(
    handle: ControllerHandle,
    waiting: WaitingBounds,
    reader: Arc<RemoteReader>,
    stop: CancellationToken,
) {
    let mut terms = handle.terms();
    terms.mark_unchanged();
    while let Some(Ok(())) = stop.run_until_cancelled(terms.changed()).await {
        let terms: Arc<Terms> = terms.borrow_and_update().clone();
        if let Some(queue) = terms.queue {
            waiting.set(
                queue.max_per_model,
                queue.max_total,
                queue.activation_timeout.into(),
            );
        }
        reader.go(&WeightsSettings {
            evict: terms.weights.evict,
            mirror: terms.weights.mirror.clone(),
            hub: terms.hub.clone(),
            hub_token: terms.weights.hub_token.clone(),
        });
    }
}

/// Looks for another file than the one that was read, and for a document that another control plane has written, until
/// `stop`.
///
/// A file is read again when it is another and stands still: who writes it has finished then.
pub(crate) async fn look(handle: ControllerHandle, file: Option<PathBuf>, stop: CancellationToken) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = File::at(file.as_deref()).await;
    let mut read = seen.clone();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = File::at(file.as_deref()).await;
        let stands_still = now == seen;
        seen = now;
        let is_another = stands_still && seen != read;
        if is_another || is_written_elsewhere(&handle).await {
            read = seen.clone();
            match handle.reread_terms().await {
                Ok(()) => tracing::info!("the settings have changed, and are in force"),
                Err(error) => {
                    let hint = error.hint.clone().unwrap_or_default();
                    tracing::warn!(%error, hint, "the settings have changed, and those before stay in force");
                }
            }
        }
    }
}

/// Whether the store has a newer document than the one in force. While it does not answer, nothing is newer.
async fn is_written_elsewhere(handle: &ControllerHandle) -> bool {
    let Ok(view) = handle.settings().await else {
        return false;
    };
    let Ok(newest) = handle.history(None, 1).await else {
        return false;
    };
    newest.first().is_some_and(|one| one.version > view.version)
}

/// What tells one file from another without reading it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum File {
    None,
    There {
        device: u64,
        inode: u64,
        length: u64,
        modified: (i64, i64),
    },
    Failed(io::ErrorKind),
}

impl File {
    async fn at(path: Option<&Path>) -> Self {
        let Some(path) = path.map(Path::to_owned) else {
            return Self::None;
        };
        let looked = tokio::task::spawn_blocking(move || fs::metadata(path)).await;
        match looked {
            Ok(Ok(found)) => Self::There {
                device: found.dev(),
                inode: found.ino(),
                length: found.len(),
                modified: (found.mtime(), found.mtime_nsec()),
            },
            Ok(Err(error)) => Self::Failed(error.kind()),
            Err(_) => Self::Failed(io::ErrorKind::Other),
        }
    }
}

/// How often the file and the store are looked at.
const LOOK: Duration = Duration::from_secs(2);
