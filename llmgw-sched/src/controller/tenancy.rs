//! Keys and levels: made, told to the gateways of this process, changed, revoked; and read again every second, for
//! another control plane on the same store may have changed them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use llmgw_core::{
    api::tenancy::{CreatedKey, KeyRequest, KeyView, LevelRequest, LevelView},
    cluster::{
        account::ApiKey,
        tenancy::{Level, LevelPath, Limits, Party, quota::Quota},
    },
    control::{
        Actor, ControlError, Tenancy, Uses, check_key, check_level_removal, check_limited_key,
        check_limited_level, check_new_level, key_subject, key_view, level_views, ordered,
        spending_quotas, unknown_level,
    },
    error::{Chain, Code},
    id::KeyId,
    keys::{KeyRing, Secret},
    store::{Store, StoreError, Write},
};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{ControllerHandle, Shared, roles::from_store};

#[async_trait]
impl Tenancy for ControllerHandle {
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError> {
        let shared = &self.shared;
        let keys = shared.store.keys().await;
        let keys = keys.map_err(|error| from_store(&error))?;
        let now = shared.clock.now();
        let quotas = keys
            .iter()
            .flat_map(|key| spending_quotas(&Party::Key(key.id), &key.limits, now));
        let uses = shared.uses(quotas.collect()).await?;
        Ok(keys.iter().map(|key| key_view(key, now, &uses)).collect())
    }

    async fn create_key(&self, request: KeyRequest) -> Result<CreatedKey, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let secret = Secret::generate()
                .map_err(|error| ControlError::new(Code::Internal, Chain(&error).to_string()))?;
            let hash = shared.hashing_key.hash(secret.expose());
            let levels = shared.levels().await?;
            let key = check_key(request, &levels, hash, shared.clock.now())?;
            let writes = [Write::AddKey(Box::new(key.clone()))];
            let subject = key_subject(&key);
            shared
                .commit(&actor, "key.create", &subject, &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))?;
            Ok(CreatedKey {
                key: key_view(&key, key.created_at, &Uses::new()),
                secret: secret.expose().to_owned(),
            })
        })
        .await
    }

    async fn limit_key(&self, id: KeyId, limits: Limits) -> Result<KeyView, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let keys = shared.store.keys().await;
            let keys = keys.map_err(|error| from_store(&error))?;
            let key = check_limited_key(id, limits, keys.iter())?;
            // Both or neither: nobody sees the key gone.
            let writes = [Write::RemoveKey(id), Write::AddKey(Box::new(key.clone()))];
            shared
                .commit(&actor, "key.limit", &key_subject(&key), &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))?;
            let now = shared.clock.now();
            let quotas = spending_quotas(&Party::Key(id), &key.limits, now);
            Ok(key_view(&key, now, &shared.uses(quotas).await?))
        })
        .await
    }

    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let keys = shared.store.keys().await;
            let keys = keys.map_err(|error| from_store(&error))?;
            let key = keys.iter().find(|key| key.id == id);
            let key = key.ok_or_else(|| ControlError::unknown_key(id))?;
            let writes = [Write::RemoveKey(id)];
            shared
                .commit(&actor, "key.revoke", &key_subject(key), &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))
        })
        .await
    }

    async fn levels(&self) -> Result<Vec<LevelView>, ControlError> {
        self.shared.level_views().await
    }

    async fn create_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let levels = shared.levels().await?;
            let level = check_new_level(request, &levels, shared.clock.now())?;
            shared.put_level(&actor, "level.create", level).await
        })
        .await
    }

    async fn limit_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let levels = shared.levels().await?;
            let level = check_limited_level(request, &levels, shared.clock.now())?;
            shared.put_level(&actor, "level.limit", level).await
        })
        .await
    }

    async fn remove_level(&self, path: &LevelPath) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        let path = path.clone();
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let (keys, levels) = access(&*shared.store).await.map_err(|e| from_store(&e))?;
            check_level_removal(&path, &levels, keys.iter().map(|key| &key.level))?;
            let writes = [Write::RemoveLevel(path.clone())];
            shared
                .commit(&actor, "level.remove", &path.to_string(), &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))
        })
        .await
    }
}

impl Shared {
    /// Tells the gateways which keys are good, and what holds for each.
    pub(super) async fn reload_keys(&self) -> Result<(), StoreError> {
        let ring = Arc::new(ring(&*self.store).await?);
        self.keys.send_if_modified(|known| {
            let changed = *known != ring;
            *known = ring;
            changed
        });
        Ok(())
    }

    /// All that another control plane may have changed.
    async fn reload(&self) -> Result<(), StoreError> {
        self.reload_keys().await?;
        self.reload_prices().await
    }

    async fn levels(&self) -> Result<Vec<Level>, ControlError> {
        let levels = self.store.levels().await;
        levels.map_err(|error| from_store(&error))
    }

    async fn level_views(&self) -> Result<Vec<LevelView>, ControlError> {
        let read = access(&*self.store).await;
        let (keys, levels) = read.map_err(|error| from_store(&error))?;
        let now = self.clock.now();
        let quotas = levels.iter().flat_map(|level| {
            spending_quotas(&Party::Level(level.path.clone()), &level.limits, now)
        });
        let uses = self.uses(quotas.collect()).await?;
        let keys = keys.iter().map(|key| &key.level);
        Ok(level_views(&levels, keys, now, &uses))
    }

    /// What is spent and held of these quotas.
    async fn uses(&self, quotas: Vec<Quota>) -> Result<Uses, ControlError> {
        if quotas.is_empty() {
            return Ok(Uses::new());
        }
        let uses = self.store.quota_uses(&quotas).await;
        let uses = uses.map_err(|error| from_store(&error))?;
        Ok(quotas.into_iter().zip(uses).collect())
    }

    async fn put_level(
        &self,
        actor: &Actor,
        action: &str,
        level: Level,
    ) -> Result<LevelView, ControlError> {
        let path = level.path.clone();
        let subject = ordered(&path.to_string(), &level.limits);
        let writes = [Write::PutLevel(Box::new(level))];
        self.commit(actor, action, &subject, &writes).await?;
        let told = self.reload_keys().await;
        told.map_err(|error| from_store(&error))?;
        let views = self.level_views().await?;
        let view = views.into_iter().find(|view| view.path == path);
        view.ok_or_else(|| unknown_level(&path))
    }
}

/// Which keys are good, by the store.
pub(super) async fn ring(store: &dyn Store) -> Result<KeyRing, StoreError> {
    let (keys, levels) = access(store).await?;
    Ok(KeyRing::with_levels(keys, levels))
}

/// The keys first: a level is made before its keys, and goes after them.
async fn access(store: &dyn Store) -> Result<(Vec<ApiKey>, Vec<Level>), StoreError> {
    let keys = store.keys().await?;
    Ok((keys, store.levels().await?))
}

/// Reads the keys again and again: another control plane may have made or revoked some. While the store is away, those
/// that were known last stay good.
pub(super) async fn keep_reading(shared: Arc<Shared>, stop: CancellationToken) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        // Writes of this control plane are told when they are done; what was read before one must not come after.
        let reading = async {
            let _one_at_a_time = shared.writes.lock().await;
            timeout(PATIENCE, shared.reload()).await
        };
        let Some(read) = stop.run_until_cancelled(reading).await else {
            break;
        };
        match read {
            Ok(Ok(())) => failed = false,
            Ok(Err(_)) | Err(_) if failed => {}
            Ok(Err(error)) => {
                failed = true;
                tracing::warn!(error = %Chain(&error), "reading the keys; those known last stay good");
            }
            Err(_) => {
                failed = true;
                tracing::warn!("reading the keys took too long; those known last stay good");
            }
        }
    }
}

/// A revocation is known to all within two seconds: half of that, and half for the reading.
const PERIOD: Duration = Duration::from_millis(750);
const PATIENCE: Duration = Duration::from_secs(1);
