//! Readers and writers that hash what passes through them.

use std::io::{self, Read, Write};

use llmgw_core::{cluster::weights::Sha256Digest, units::Bytes};
use sha2::{Digest, Sha256};

/// Counts and hashes what is read from `inner`.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    state: State,
}

/// Counts and hashes what is written to `inner`.
#[derive(Debug)]
pub struct HashingWriter<W> {
    inner: W,
    state: State,
}

/// How many bytes, and what they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Digested {
    /// How many.
    pub bytes: Bytes,
    /// Their digest.
    pub sha256: Sha256Digest,
}

#[derive(Debug, Default)]
struct State {
    hasher: Sha256,
    bytes: u64,
}

/// Reads `reader` to its end and says what it held.
///
/// # Errors
/// When `reader` fails.
pub fn digest(reader: impl Read) -> io::Result<Digested> {
    let mut reader = HashingReader::new(reader);
    // The hasher is the only buffer that is worth filling: 64 KiB at a time.
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(reader.finish()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

// === impl HashingReader ===

impl<R> HashingReader<R> {
    /// Hashes what is read from `inner` from now on.
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            state: State::default(),
        }
    }

    /// How many bytes were read.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.state.bytes)
    }

    /// What was read.
    pub fn finish(self) -> Digested {
        self.state.finish()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.state.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

// === impl HashingWriter ===

impl<W> HashingWriter<W> {
    /// Hashes what is written to `inner` from now on.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            state: State::default(),
        }
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.state.bytes)
    }

    /// What was written.
    pub fn finish(self) -> Digested {
        self.state.finish()
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.state.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

// === impl State ===

impl State {
    fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    fn finish(self) -> Digested {
        Digested {
            bytes: Bytes(self.bytes),
            sha256: Sha256Digest(self.hasher.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// FIPS 180-2, appendix B.1.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_published_test_value_holds() {
        let digested = digest(&b"abc"[..]).unwrap();
        assert_eq!(digested.sha256.to_string(), ABC);
        assert_eq!(digested.bytes, Bytes(3));
    }

    #[test]
    fn a_short_write_counts_what_was_written() {
        let mut room = [0; 2];
        let mut writer = HashingWriter::new(&mut room[..]);
        assert_eq!(writer.write(b"abc").unwrap(), 2);
        assert_eq!(writer.finish(), digest(&b"ab"[..]).unwrap());
    }

    proptest! {
        #[test]
        fn reading_and_writing_agree_whatever_the_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
        ) {
            let whole = pieces.concat();
            let mut writer = HashingWriter::new(Vec::new());
            for piece in &pieces {
                writer.write_all(piece).unwrap();
            }
            prop_assert_eq!(writer.finish(), digest(&whole[..]).unwrap());
        }
    }
}
