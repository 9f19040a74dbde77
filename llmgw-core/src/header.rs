//! Reading the header of a file of weights from bytes that arrive piece by piece.
//!
//! A parser is given the beginning of a file, and either is done, or says how many bytes it needs, or refuses
//! what it was given. So the same parser serves a file on disk and a download by ranges.

use std::io::{self, Read};

/// How far a parser came with the bytes that it was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Progress<T> {
    /// The header is complete.
    Done(T),
    /// Nothing is wrong so far; the header needs at least this many bytes from the start of the file.
    NeedMore {
        /// Counted from the start of the file; always more than were given.
        bytes: u64,
    },
}

/// Why a header could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// The bytes could not be had.
    #[error("reading the file")]
    Io(#[source] io::Error),
    /// The file ends inside of its header.
    #[error("the file ends after {have} bytes, and its header needs at least {need}")]
    Truncated {
        /// Bytes that the file has.
        have: u64,
        /// Bytes that the header needs.
        need: u64,
    },
    /// What was read can't be a header.
    #[error(transparent)]
    Broken(E),
}

/// Reads from `source` until `parse` is done; `parse` bounds how much that can be.
///
/// The buffer at least doubles each time, so that all parsing together costs no more than about twice the last.
///
/// # Errors
///
/// [`ReadError`] when the bytes can't be had, end too early, or are refused by `parse`.
pub fn read_growing<T, E>(
    source: &mut impl Read,
    mut parse: impl FnMut(&[u8]) -> Result<Progress<T>, E>,
) -> Result<T, ReadError<E>> {
    let mut bytes = Vec::new();
    let mut wanted = FIRST_READ;
    loop {
        let have = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        source
            .by_ref()
            .take(wanted.saturating_sub(have))
            .read_to_end(&mut bytes)
            .map_err(ReadError::Io)?;
        let have = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match parse(&bytes).map_err(ReadError::Broken)? {
            Progress::Done(done) => return Ok(done),
            Progress::NeedMore { bytes: need } if have < wanted => {
                return Err(ReadError::Truncated { have, need });
            }
            Progress::NeedMore { bytes: need } => wanted = need.max(have.saturating_mul(2)),
        }
    }
}

/// Enough for most headers without a large vocabulary.
const FIRST_READ: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of `length` zeros.
    fn zeros(length: u64) -> impl FnMut(&[u8]) -> Result<Progress<usize>, &'static str> {
        move |bytes| {
            if bytes.iter().any(|byte| *byte != 0) {
                return Err("not zero");
            }
            if u64::try_from(bytes.len()).unwrap() < length {
                return Ok(Progress::NeedMore { bytes: length });
            }
            Ok(Progress::Done(bytes.len()))
        }
    }

    #[test]
    fn reading_goes_on_until_the_parser_has_enough() {
        let mut file = io::repeat(0);
        assert_eq!(read_growing(&mut file, zeros(5 << 20)).unwrap(), 5 << 20);
    }

    #[test]
    fn a_file_that_ends_in_its_header_is_told_from_a_broken_one() {
        let short = read_growing(&mut [0u8; 10].as_slice(), zeros(20)).unwrap_err();
        assert_eq!(
            short.to_string(),
            "the file ends after 10 bytes, and its header needs at least 20"
        );
        let broken = read_growing(&mut [1u8; 10].as_slice(), zeros(20)).unwrap_err();
        assert_eq!(broken.to_string(), "not zero");
    }
}
