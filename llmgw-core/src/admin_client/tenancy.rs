//! Keys and levels over HTTP.

use async_trait::async_trait;
use reqwest::Method;

use super::{AdminClient, body};
use crate::{
    api::tenancy::{
        CreatedKey, KeyLimits, KeyRequest, KeyView, LevelRemoved, LevelRequest, LevelView, Revoked,
    },
    cluster::tenancy::{LevelPath, Limits},
    control::{ControlError, Tenancy},
    id::KeyId,
};

#[async_trait]
impl Tenancy for AdminClient {
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError> {
        self.read("keys", None).await
    }

    async fn create_key(&self, request: KeyRequest) -> Result<CreatedKey, ControlError> {
        let json = body("the key", &request)?;
        self.ask(Method::POST, self.route(&["keys"]), Some(json))
            .await
    }

    async fn limit_key(&self, id: KeyId, limits: Limits) -> Result<KeyView, ControlError> {
        let json = body("the limits", &KeyLimits { limits })?;
        let url = self.route(&["keys", &id.to_string()]);
        self.ask(Method::PUT, url, Some(json)).await
    }

    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError> {
        let url = self.route(&["keys", &id.to_string()]);
        let _: Revoked = self.ask(Method::DELETE, url, None).await?;
        Ok(())
    }

    async fn levels(&self) -> Result<Vec<LevelView>, ControlError> {
        self.read("tenants", None).await
    }

    async fn create_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let json = body("the level", &request)?;
        self.ask(Method::POST, self.route(&["tenants"]), Some(json))
            .await
    }

    async fn limit_level(&self, request: LevelRequest) -> Result<LevelView, ControlError> {
        let json = body("the level", &request)?;
        self.ask(Method::PUT, self.route(&["tenants"]), Some(json))
            .await
    }

    async fn remove_level(&self, path: &LevelPath) -> Result<(), ControlError> {
        let url = self.route(&["tenants", &path.to_string()]);
        let _: LevelRemoved = self.ask(Method::DELETE, url, None).await?;
        Ok(())
    }
}
