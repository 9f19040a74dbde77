//! A place in the beginning of a file: every read is checked against what is there and against the limit.

use super::error::GgufError;

/// Why a read did not succeed.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file has to be given up to this byte.
    More(u64),
    /// The file can't be used.
    Broken(GgufError),
}

/// A place in the bytes that are there so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: u64,
    limit: u64,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], limit: u64) -> Self {
        Self {
            bytes,
            at: 0,
            limit,
        }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next `count` bytes; `field` is named when they can't be.
    pub(super) fn take(
        &mut self,
        count: u64,
        field: impl FnOnce() -> String,
    ) -> Result<&'a [u8], Stop> {
        let end = self.at.saturating_add(count);
        if end > self.limit {
            return Err(Stop::Broken(GgufError::new(
                field(),
                format!("the header would be longer than {} bytes", self.limit),
                self.at,
            )));
        }
        let more = Stop::More(end);
        let (Ok(from), Ok(to)) = (usize::try_from(self.at), usize::try_from(end)) else {
            return Err(more);
        };
        let Some(taken) = self.bytes.get(from..to) else {
            return Err(more);
        };
        self.at = end;
        Ok(taken)
    }

    /// A fixed number of bytes.
    pub(super) fn array<const N: usize>(
        &mut self,
        field: impl FnOnce() -> String,
    ) -> Result<[u8; N], Stop> {
        let taken = self.take(u64::try_from(N).unwrap_or(u64::MAX), field)?;
        // `take` returns as many as were asked for.
        Ok(taken.try_into().unwrap_or([0; N]))
    }

    pub(super) fn u32(&mut self, field: impl FnOnce() -> String) -> Result<u32, Stop> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: impl FnOnce() -> String) -> Result<u64, Stop> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A string with its length before it, which may be at most `limit` bytes.
    pub(super) fn string(
        &mut self,
        limit: u64,
        field: impl Fn() -> String,
    ) -> Result<&'a [u8], Stop> {
        let start = self.at;
        let length = self.u64(&field)?;
        if length > limit {
            return Err(Stop::Broken(GgufError::new(
                field(),
                format!("a string of {length} bytes; at most {limit} are allowed"),
                start,
            )));
        }
        self.take(length, field)
    }
}

// === impl Stop ===

impl From<GgufError> for Stop {
    fn from(error: GgufError) -> Self {
        Self::Broken(error)
    }
}
