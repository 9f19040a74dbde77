//! How large, how many and how dense the contents of an archive may be.

use llmgw_core::units::Bytes;

/// What an archive may be, at most.
///
/// The defaults let every published wheel and release archive pass and stop what could fill a disk, the memory
/// or an afternoon. Checking an archive takes at most about 400 bytes of memory for each of [`Limits::entries`],
/// four times [`Limits::text`], and the window.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Entries, and the folders that their names imply. The largest Python wheels hold about 20,000 files.
    pub entries: usize,
    /// Bytes of an entry's name, and of a link's target. `PATH_MAX` of Linux.
    pub name: usize,
    /// Bytes of one part of a name. `NAME_MAX` of Linux.
    pub part: usize,
    /// Parts of a name. The deepest trees of Python packages have about 20.
    pub depth: usize,
    /// Bytes of all names and link targets together: they are held in memory.
    pub text: Bytes,
    /// Bytes of one member.
    pub member: Bytes,
    /// Bytes of all members together.
    pub total: Bytes,
    /// Times that a member, or all that comes out of a compressed stream, may be larger than its compressed form.
    /// Weights shrink by a twentieth, programs to a third; deflate itself ends at 1032, zstd has no end.
    pub ratio: u64,
    /// Members and streams up to this size may have any ratio: a file of zeros compresses well and does no harm.
    pub ratio_from: Bytes,
    /// The window that a zstd stream may ask for: it is held in memory. The `zstd` program asks for 128 MiB at its
    /// highest level and refuses to read more unless it is told to.
    pub window: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            name: 4_096,
            part: 255,
            depth: 100,
            text: Bytes::mib(32),
            member: Bytes::gib(1_024),
            total: Bytes::gib(1_024),
            ratio: 200,
            ratio_from: Bytes::mib(1),
            window: Bytes::mib(128),
        }
    }
}

impl Limits {
    /// The same limits with members of at most `member`.
    #[must_use]
    pub fn with_member(self, member: Bytes) -> Self {
        Self { member, ..self }
    }

    /// The same limits with at most `total` in all members together.
    #[must_use]
    pub fn with_total(self, total: Bytes) -> Self {
        Self { total, ..self }
    }

    /// Whether `size` bytes out of `packed` ones are denser than anything but a bomb.
    pub(crate) fn is_too_dense(&self, size: u64, packed: u64) -> bool {
        size > self.densest(packed)
    }

    /// How much may come out of `packed` bytes.
    pub(crate) fn densest(&self, packed: u64) -> u64 {
        packed.saturating_mul(self.ratio).max(self.ratio_from.0)
    }
}
