//! Keys: made, told to the gateways of this process, revoked.

use std::sync::Arc;

use async_trait::async_trait;
use llmgw_core::{
    api::admin::{CreatedKey, KeyView},
    cluster::account::ApiKey,
    control::{ControlError, Tenancy, check_key_name},
    error::{Chain, Code},
    id::KeyId,
    keys::{KeyRing, Secret},
    store::{StoreError, Write},
};

use super::{ControllerHandle, Shared, roles::from_store};

#[async_trait]
impl Tenancy for ControllerHandle {
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError> {
        let keys = self.shared.store.keys().await;
        let keys = keys.map_err(|error| from_store(&error))?;
        Ok(keys.into_iter().map(view).collect())
    }

    async fn create_key(&self, name: &str) -> Result<CreatedKey, ControlError> {
        let name = check_key_name(name)?.to_owned();
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let secret = Secret::generate()
                .map_err(|error| ControlError::new(Code::Internal, Chain(&error).to_string()))?;
            let key = ApiKey {
                id: KeyId::generate(),
                name,
                hash: shared.hashing_key.hash(secret.expose()),
                created_at: shared.clock.now(),
            };
            let writes = [Write::AddKey(key.clone())];
            let subject = key.id.to_string();
            shared
                .commit(&actor, "key.create", &subject, &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))?;
            Ok(CreatedKey {
                key: view(key),
                secret: secret.expose().to_owned(),
            })
        })
        .await
    }

    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError> {
        let (shared, actor) = (Arc::clone(&self.shared), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let keys = shared.store.keys().await;
            let keys = keys.map_err(|error| from_store(&error))?;
            if !keys.iter().any(|key| key.id == id) {
                return Err(ControlError::unknown_key(id));
            }
            let writes = [Write::RemoveKey(id)];
            shared
                .commit(&actor, "key.revoke", &id.to_string(), &writes)
                .await?;
            let told = shared.reload_keys().await;
            told.map_err(|error| from_store(&error))
        })
        .await
    }
}

impl Shared {
    /// Tells the gateways which keys are good.
    pub(super) async fn reload_keys(&self) -> Result<(), StoreError> {
        let keys = self.store.keys().await?;
        self.keys.send_replace(Arc::new(KeyRing::new(keys)));
        Ok(())
    }
}

fn view(key: ApiKey) -> KeyView {
    KeyView {
        id: key.id,
        name: key.name,
        created_at: key.created_at,
    }
}
