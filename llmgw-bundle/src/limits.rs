//! How large, how many and how dense the contents of an archive may be.

use llmgw_core::units::Bytes;

/// What an archive may be, at most.
///
/// The defaults let every published wheel and release archive pass and stop what could fill a disk, the memory
/// or an afternoon.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Entries in the directory. The largest Python wheels hold about 20,000 files.
    pub entries: usize,
    /// Characters of an entry's name. `PATH_MAX` of Linux.
    pub name: usize,
    /// Bytes of the member that is extracted.
    pub member: Bytes,
    /// Times that a member may be larger than its compressed form. Weights shrink by a twentieth, programs to a
    /// third; deflate itself ends at 1032.
    pub ratio: u64,
    /// Members up to this size may have any ratio: a file of zeros compresses well and does no harm.
    pub ratio_from: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            name: 4_096,
            member: Bytes::gib(1_024),
            ratio: 200,
            ratio_from: Bytes::mib(1),
        }
    }
}

impl Limits {
    /// The same limits with members of at most `member`.
    #[must_use]
    pub fn with_member(self, member: Bytes) -> Self {
        Self { member, ..self }
    }
}
