//! The bytes of an entry, from where they are read to where they are wanted.

use std::io::{ErrorKind, Read};

use llmgw_core::units::Bytes;

use super::reading::Reading;
use crate::error::{ArchiveError, Rule};

/// What gets the bytes of an entry, piece by piece.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), ArchiveError>;

/// Shows `sink` all that `stream` holds and says how much that was; more than `declared` is refused before it is
/// shown.
pub(super) fn copy(
    reading: &Reading<'_>,
    entry: &str,
    stream: &mut dyn Read,
    declared: u64,
    sink: Sink<'_>,
) -> Result<u64, ArchiveError> {
    let mut buffer = vec![0; BUFFER];
    let mut total = 0_u64;
    loop {
        reading.go_on()?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(source) => return Err(reading.damaged(entry, source)),
        };
        total = total.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if total > declared {
            return Err(reading.refused(entry, Rule::Longer(Bytes(declared))));
        }
        sink(buffer.get(..count).unwrap_or_default())?;
    }
}

/// As large as deflate's window twice over; larger buffers were not faster.
pub(super) const BUFFER: usize = 64 << 10;
