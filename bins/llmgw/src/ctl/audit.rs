//! The audit log, read and checked.

use clap::Subcommand;
use llmgw_core::{
    cluster::audit::{AuditEntry, ChainHead, verify_chain},
    control::Control,
};
use serde::Serialize;

use super::tables::{self, Messages};
use crate::{
    failure::{Cause, Failure},
    output::{Format, Shown},
};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum AuditOrder {
    /// Walk the whole log and check that no entry was changed, removed or moved
    Verify,
}

/// What a walk over the whole log found.
#[derive(Debug, Serialize)]
struct Verified {
    entries: u64,
    head: ChainHead,
}

pub(super) async fn read(
    control: &Control,
    format: Format,
    (after, limit): (u64, u32),
    messages: Messages,
) -> Result<Shown, Failure> {
    let entries = control.audit.audit(after, limit).await?;
    let table = |entries: &[_]| tables::audit(entries, messages);
    format.list(&entries, table, "nothing was ordered")
}

pub(super) async fn verify(control: &Control, format: Format) -> Result<Shown, Failure> {
    let mut head = ChainHead::EMPTY;
    loop {
        let page: Vec<AuditEntry> = control.audit.audit(head.seq, PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        verify_chain(head, &page).map_err(|broken| {
            Failure::new(Cause::Refused, format!("the audit log is broken: {broken}"))
                .with_hint("somebody has changed the store by hand, or it is damaged; a backup has the entry as it was")
        })?;
        head = last.head();
    }
    let verified = Verified {
        entries: head.seq,
        head,
    };
    format.show(&verified, |verified| {
        format!(
            "{} entries, unbroken; the last has the hash {}\n",
            verified.entries, verified.head.hash
        )
    })
}

const PAGE: u32 = 1_000;
