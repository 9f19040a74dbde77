//! What people get wrong in a log.

use llmgw_core::{
    cluster::audit::{AuditEntry, ChainHead, NewAuditEntry},
    store::{AUDIT_PAGE, Epoch, StoreError},
};
use tokio::time::sleep;

use super::{BrokenStore, Bug, Data, STEP};

impl BrokenStore {
    pub(super) async fn append_entry(
        &self,
        epoch: Epoch,
        entry: &NewAuditEntry,
    ) -> Result<AuditEntry, StoreError> {
        if self.has(Bug::FencedEntryUsesANumber) && self.check(epoch).is_err() {
            self.data().skipped += 1;
        }
        if !self.has(Bug::AuditIsNotFenced) {
            self.check(epoch)?;
        }
        self.begin().await?;
        if self.has(Bug::AuditFenceIsCheckedAndLeft) {
            sleep(STEP).await;
        }
        if self.has(Bug::DroppedEntryUsesANumber) {
            self.data().skipped += 1;
            sleep(STEP).await;
            self.data().skipped -= 1;
        }
        let mut head = self.head(&self.data());
        if self.has(Bug::EntryIsChainedBeforeItIsWritten) {
            sleep(STEP).await;
        } else {
            // `begin` has waited: that the epoch leads must be looked up with the head, in one go.
            if !self.has(Bug::AuditIsNotFenced) && !self.has(Bug::AuditFenceIsCheckedAndLeft) {
                self.check(epoch)?;
            }
            head = self.head(&self.data());
        }
        let mut entry = entry.clone();
        if self.has(Bug::TextsAreTrimmed) {
            entry.subject = entry.subject.trim().to_owned();
        }
        let mut data = self.data();
        if self.has(Bug::LogBeginsAnewWithEachEpoch) && data.log_epoch != epoch.0 {
            data.log_epoch = epoch.0;
            data.audit.clear();
            head = ChainHead::EMPTY;
        }
        let entry = AuditEntry::chained(head, &entry);
        if self.has(Bug::SameEntryIsLeftOut)
            && let Some(same) = data.audit.iter().find(|there| is_same(there, &entry))
        {
            return Ok(same.clone());
        }
        data.audit.push(entry.clone());
        Ok(entry)
    }

    pub(super) fn entries(&self, after: u64, limit: u32) -> Vec<AuditEntry> {
        let inclusive = self.has(Bug::AfterIsInclusive) && after > 0;
        let limit = match limit {
            _ if self.has(Bug::LimitIsIgnored) => AUDIT_PAGE,
            limit if self.has(Bug::PagesAreUnbounded) => limit,
            limit => limit.min(AUDIT_PAGE),
        };
        let mut entries: Vec<AuditEntry> = self
            .data()
            .audit
            .iter()
            .filter(|entry| entry.seq > after || (inclusive && entry.seq == after))
            .take(usize::try_from(limit).expect("32 bits fit"))
            .cloned()
            .collect();
        if self.has(Bug::EntriesAreInOrderOfTime) {
            entries.sort_by_key(|entry| entry.at);
        }
        if self.has(Bug::EntriesAreReversed) {
            entries.reverse();
        }
        entries
    }

    fn head(&self, data: &Data) -> ChainHead {
        let mut head = data.audit.last().map_or(ChainHead::EMPTY, AuditEntry::head);
        if self.has(Bug::EntriesAreNotChained) {
            head.hash = ChainHead::EMPTY.hash;
        }
        if self.has(Bug::FirstNumberIsTwo) && data.audit.is_empty() {
            head.seq = 1;
        }
        head.seq += data.skipped;
        head
    }
}

fn is_same(one: &AuditEntry, other: &AuditEntry) -> bool {
    (one.at, &one.actor, &one.action, &one.subject)
        == (other.at, &other.actor, &other.action, &other.subject)
}
