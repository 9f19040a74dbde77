//! How the chain is made, and how it is checked.

use sha2::{Digest, Sha256};

use super::{AuditEntry, ChainBreak, ChainHead, ChainProblem, NewAuditEntry};
use crate::cluster::weights::Sha256Digest;

/// Checks that `entries`, in the order of the log, follow from `head`: [`ChainHead::EMPTY`] for a log from its
/// beginning, the last entry's [head](AuditEntry::head) for the next page.
///
/// # Errors
/// The first place at which the chain is broken.
pub fn verify_chain(head: ChainHead, entries: &[AuditEntry]) -> Result<(), ChainBreak> {
    let mut head = head;
    for entry in entries {
        let seq = head.next();
        let problem = if entry.seq != seq {
            Some(ChainProblem::Displaced { by: entry.seq })
        } else if entry.previous != head.hash {
            Some(ChainProblem::Detached)
        } else if entry.hash != entry.digest() {
            Some(ChainProblem::Changed)
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(ChainBreak { seq, problem });
        }
        head = entry.head();
    }
    Ok(())
}

impl ChainHead {
    fn next(self) -> u64 {
        // No log comes near the end of the numbers; one that claims to be there gets no further.
        self.seq.saturating_add(1)
    }
}

impl AuditEntry {
    /// Gives an entry its place after `head`.
    #[must_use]
    pub fn chained(head: ChainHead, new: &NewAuditEntry) -> Self {
        let NewAuditEntry {
            at,
            actor,
            action,
            subject,
        } = new.clone();
        let mut entry = Self {
            seq: head.next(),
            at,
            actor,
            action,
            subject,
            previous: head.hash,
            hash: Sha256Digest([0; 32]),
        };
        entry.hash = entry.digest();
        entry
    }

    /// What its hash must be.
    fn digest(&self) -> Sha256Digest {
        // A field that were left out here could be changed unseen.
        let Self {
            seq,
            at,
            actor,
            action,
            subject,
            previous,
            hash: _,
        } = self;
        let mut hasher = Sha256::new();
        hasher.update(previous.0);
        for field in [
            seq.to_be_bytes().as_slice(),
            at.0.to_be_bytes().as_slice(),
            actor.as_bytes(),
            action.as_bytes(),
            subject.as_bytes(),
        ] {
            // Lossless: no length is beyond 64 bits.
            let length = u64::try_from(field.len()).unwrap_or(u64::MAX);
            hasher.update(length.to_be_bytes());
            hasher.update(field);
        }
        Sha256Digest(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests;
