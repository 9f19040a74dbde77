//! The guard: the rules in force, and what they did by the accounts.

use std::time::Duration;

use async_trait::async_trait;
use llmgw_core::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    clock::Timestamp,
    cluster::{guard::GuardedCall, tenancy::LevelPath},
    control::{ControlError, Guarding, guard_trial, guard_view},
};

use super::{ControllerHandle, roles::from_store};

#[async_trait]
impl Guarding for ControllerHandle {
    async fn rules(&self, level: &LevelPath) -> Result<GuardView, ControlError> {
        Ok(guard_view(&self.shared.guard.rules(), level))
    }

    async fn try_text(&self, request: GuardTry) -> Result<GuardTrial, ControlError> {
        guard_trial(&self.shared.guard.rules(), &request)
    }

    async fn guarded(&self, since: Duration, limit: u32) -> Result<Vec<GuardedCall>, ControlError> {
        let span = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let begin = Timestamp(self.shared.clock.now().0.saturating_sub(span));
        let found = self.shared.store.guarded(begin, limit).await;
        found.map_err(|error| from_store(&error))
    }
}
