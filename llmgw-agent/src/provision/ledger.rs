//! What was chosen for a wish, so that a restart does not choose, ask and fetch anew.
//!
//! `<directory>/<engine>.json` holds the wish, the build that was installed for it, and what was passed over on
//! the way: the reasons stay visible for as long as the choice stands. Which release the control plane found is
//! no part of the wish. Lost or unreadable, it is chosen again.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use llmgw_core::{
    cluster::{
        engine::{PassedOver, WantedEngine},
        node::Warning,
    },
    id::EngineName,
    units::Bytes,
};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::{ProvisionError, Shop, failed, plan::Build};
use crate::durable;

/// A choice that was carried out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Chosen {
    pub wish: WantedEngine,
    pub build: Build,
    pub line: String,
    #[serde(default)]
    pub passed_over: Vec<PassedOver>,
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl Chosen {
    /// What was chosen for this wish; `None` when nothing was, or for another.
    pub(super) async fn read(wanted: &WantedEngine, shop: &Shop) -> Option<Self> {
        let json = durable::read_aside(path(&wanted.name, shop), MAX_LEDGER).await;
        let chosen: Self = serde_json::from_slice(&json.ok()?).ok()?;
        chosen.wish.asks_the_same(wanted).then_some(chosen)
    }

    /// Keeps it.
    pub(super) async fn write(&self, shop: &Shop) -> Result<(), ProvisionError> {
        let path = path(&self.wish.name, shop);
        let json = serde_json::to_vec(self)
            .map_err(|error| failed("writing", &path)(io::Error::from(error)))?;
        let (target, one_at_a_time) = (path.clone(), Arc::clone(&shop.ledger));
        let write = move || {
            let _held = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            durable::write(&target, &json)
        };
        spawn_blocking(write)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(failed("writing", &path))
    }

    /// Forgets what was chosen, so that it is chosen anew.
    pub(super) async fn forget(name: &EngineName, shop: &Shop) {
        let path = path(name, shop);
        let removed = spawn_blocking(move || durable::remove(&path)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "an earlier choice of an engine can't be forgotten");
        }
    }
}

fn path(name: &EngineName, shop: &Shop) -> PathBuf {
    shop.config.directory.join(format!("{name}.json"))
}

const MAX_LEDGER: Bytes = Bytes::mib(4);
