//! What is under way, and what was ordered.

use async_trait::async_trait;
use llmgw_core::{
    api::admin::JobView,
    cluster::audit::{AuditEntry, NewAuditEntry},
    control::{Actor, Audit, ControlError, Jobs, jobs},
    error::Code,
    store::Write,
};

use super::{ControllerHandle, Shared, roles::from_store, views};

#[async_trait]
impl Jobs for ControllerHandle {
    async fn jobs(&self) -> Result<Vec<JobView>, ControlError> {
        let shared = &self.shared;
        let (snapshot, now) = (shared.snapshot(), shared.clock.monotonic());
        let replicas = views::replicas(&snapshot, None, None, now);
        Ok(jobs(&views::nodes(&snapshot, now), &replicas))
    }
}

#[async_trait]
impl Audit for ControllerHandle {
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, ControlError> {
        let entries = self.shared.store.audit(after, limit).await;
        entries.map_err(|error| from_store(&error))
    }
}

impl Shared {
    /// Writes an order down, with all that it changes in the store: the whole, or nothing.
    pub(super) async fn commit(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        writes: &[Write],
    ) -> Result<(), ControlError> {
        if !writes.is_empty() && !self.store.is_lasting() {
            let store = self.store.describe();
            let message = format!("the store ({store}) keeps nothing over a restart");
            return Err(ControlError::new(Code::NoStore, message).with_hint(
                "start the control plane with a store that lasts, such as its default",
            ));
        }
        let epoch = self.epoch()?;
        let entry = NewAuditEntry {
            at: self.clock.now(),
            actor: actor.to_string(),
            action: action.to_owned(),
            subject: subject.to_owned(),
        };
        let committed = self.store.commit(epoch, writes, &entry).await;
        committed.map_err(|error| from_store(&error))?;
        Ok(())
    }
}
