//! The role that looks after what lies on the nodes' disks.

use std::sync::Arc;

use async_trait::async_trait;
use llmgw_core::{
    api::admin::OrphanView,
    cluster::weights::Sha256Digest,
    control::{ControlError, Storage, chosen_orphans, collected},
};

use super::ControllerHandle;
use crate::conductor::{Event, weights::orphans};

#[async_trait]
impl Storage for ControllerHandle {
    async fn orphans(&self) -> Result<Vec<OrphanView>, ControlError> {
        let now = self.shared.clock.monotonic();
        Ok(orphans(&self.shared.snapshot(), now))
    }

    async fn collect(&self, digests: &[Sha256Digest]) -> Result<Vec<OrphanView>, ControlError> {
        let shared = Arc::clone(&self.shared);
        let (digests, actor) = (digests.to_vec(), self.actor.clone());
        self.write(async move {
            let _one_at_a_time = shared.writes.lock().await;
            let now = shared.clock.monotonic();
            let mut chosen = chosen_orphans(orphans(&shared.snapshot(), now), &digests)?;
            shared
                .commit(&actor, "weights.collect", &collected(&digests), &[])
                .await?;
            for one in &mut chosen {
                one.collecting = one.kept.is_none();
            }
            let orders = chosen.iter().filter(|one| one.collecting);
            let orders = orders.map(|one| (one.node, one.sha256)).collect();
            shared.tell(Event::Collect { orders }).await?;
            Ok(chosen)
        })
        .await
    }
}
