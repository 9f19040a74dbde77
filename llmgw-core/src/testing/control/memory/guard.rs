//! The guard in memory: the baseline stands, and nothing was done.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryControl;
use crate::{
    api::guard::{GuardTrial, GuardTry, GuardView},
    cluster::{guard::GuardedCall, tenancy::LevelPath},
    control::{ControlError, Guarding, guard_trial, guard_view},
    guard::Rules,
};

#[async_trait]
impl Guarding for MemoryControl {
    async fn rules(&self, level: &LevelPath) -> Result<GuardView, ControlError> {
        drop(self.answering()?);
        Ok(guard_view(&Rules::default(), level))
    }

    async fn try_text(&self, request: GuardTry) -> Result<GuardTrial, ControlError> {
        drop(self.answering()?);
        guard_trial(&Rules::default(), &request)
    }

    async fn guarded(&self, _: Duration, limit: u32) -> Result<Vec<GuardedCall>, ControlError> {
        let state = self.answering()?;
        let limit = usize::try_from(limit.min(1_000)).unwrap_or(usize::MAX);
        Ok(state.guarded.iter().take(limit).cloned().collect())
    }
}
