//! What this control plane was told, what is under way, and what was ordered.

use async_trait::async_trait;
use llmgw_core::{
    api::admin::{JobView, SettingsView},
    cluster::audit::{AuditEntry, NewAuditEntry},
    control::{Audit, ControlError, Jobs, Settings, jobs},
    store::Epoch,
};

use super::{ControllerHandle, Shared, roles::from_store, views};

#[async_trait]
impl Settings for ControllerHandle {
    async fn settings(&self) -> Result<SettingsView, ControlError> {
        Ok(self.shared.settings.clone())
    }
}

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
    /// Writes an order down before it is carried out; gives the epoch to carry it out with.
    pub(super) async fn note(&self, action: &str, subject: &str) -> Result<Epoch, ControlError> {
        let epoch = self.epoch()?;
        let entry = NewAuditEntry {
            at: self.clock.now(),
            actor: ACTOR.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
        };
        let noted = self.store.append_audit(epoch, &entry).await;
        noted.map_err(|error| from_store(&error))?;
        Ok(epoch)
    }
}

/// There is one admin token so far, and whoever has it is this.
const ACTOR: &str = "admin";
