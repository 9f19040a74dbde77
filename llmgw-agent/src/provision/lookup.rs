//! Looking up a release where no control plane has done it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use llmgw_core::{
    clock::{Clock, Timestamp},
    cluster::release::{Release, Resolution},
    error::{Chain, Coded as _, Retry},
    releases::{Answer, ReleaseClient},
};

/// The answers of a release list, kept for a while: who installs again a minute later does not ask again.
#[derive(Debug)]
pub(super) struct Lookup {
    client: ReleaseClient,
    kept: Mutex<BTreeMap<String, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    until: Timestamp,
    resolution: Resolution,
}

impl Lookup {
    pub(super) fn new(client: ReleaseClient) -> Self {
        Self {
            client,
            kept: Mutex::default(),
        }
    }

    /// What is known of a version, or what is found out now.
    pub(super) async fn resolve(&self, version: &str, clock: &dyn Clock) -> Resolution {
        let now = clock.now();
        if let Some(kept) = self.kept(version).filter(|kept| kept.until > now) {
            return kept.resolution;
        }
        let (resolution, pause) = resolve(&self.client, version, now).await;
        let kept = Kept {
            until: now.plus(pause),
            resolution: resolution.clone(),
        };
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(version.to_owned(), kept);
        resolution
    }

    fn kept(&self, version: &str) -> Option<Kept> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(version).cloned()
    }
}

/// Asks once, and says for how long the answer holds.
async fn resolve(client: &ReleaseClient, version: &str, now: Timestamp) -> (Resolution, Duration) {
    let found: Result<Release, _> = if version == LATEST {
        client.newest(now).await
    } else {
        match client.by_tag(version, None, now).await {
            Ok(Answer::Release { release, .. }) => Ok(release),
            // Nothing was sent along that it could be unchanged from.
            Ok(Answer::Unchanged) => client.newest(now).await,
            Err(error) => Err(error),
        }
    };
    match found {
        Ok(release) => (Resolution::Found { release }, HOLDS),
        Err(error) => {
            let pause = match error.retry() {
                Retry::After(pause) => pause.max(PAUSE),
                Retry::Now | Retry::Never => PAUSE,
            };
            let failed = Resolution::Failed {
                error: Chain(&error).to_string(),
                hint: error.hint(),
            };
            (failed, pause)
        }
    }
}

/// The version that stands for the newest one with builds.
const LATEST: &str = "latest";
/// A young release gains files.
const HOLDS: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_secs(60);
