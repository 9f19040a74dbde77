//! Compressed streams: each ends where it says, and is no bomb.

use std::io::{self, BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder, errors::FrameDecoderError};

use super::{
    format::Format,
    reading::{Reading, Stop},
};
use crate::error::{ArchiveError, Rule};

/// Stops when more comes out of a stream than its compressed size allows.
#[derive(Debug)]
pub(super) struct Bounded<R> {
    stream: R,
    left: u64,
    ratio: u64,
}

/// One zstd frame, with its checksum and its size held against what came out.
pub(super) struct Zstd<R: Read> {
    frame: StreamingDecoder<R, FrameDecoder>,
    bytes: u64,
}

/// A deflate stream that is not over before it says so, as the decoders of files take it.
#[derive(Debug)]
pub(super) struct Inflate<R> {
    packed: R,
    state: Decompress,
    is_over: bool,
}

// === impl Bounded ===

impl<R> Bounded<R> {
    /// At most `most` bytes, which is as many as `ratio` allows.
    pub(super) fn new(stream: R, most: u64, ratio: u64) -> Self {
        Self {
            stream,
            left: most,
            ratio,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        let left = self
            .left
            .checked_sub(u64::try_from(count).unwrap_or(u64::MAX));
        self.left = left.ok_or_else(|| io::Error::other(Stop(Rule::TooDense(self.ratio))))?;
        Ok(count)
    }
}

// === impl Zstd ===

impl<R: Read> Zstd<R> {
    /// Reads the frame's header.
    pub(super) fn new(
        packed: R,
        reading: &Reading<'_>,
        format: Format,
    ) -> Result<Self, ArchiveError> {
        let window = reading.limits.window;
        let frame = StreamingDecoder::new_with_max_window_size(packed, window.0);
        let frame = frame.map_err(|error| match error {
            FrameDecoderError::WindowSizeTooBig { .. } => {
                reading.refused_whole(Rule::WideWindow(window))
            }
            error => reading.not_whole(format, error),
        })?;
        Ok(Self { frame, bytes: 0 })
    }

    /// Holds the whole frame against what it says of itself; the decoder leaves that to us.
    fn check(&self) -> io::Result<()> {
        let decoder = &self.frame.decoder;
        let wrong = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        let declared = decoder.content_size();
        // A frame that doesn't say its size says none.
        if declared != 0 && declared != self.bytes {
            return wrong("the zstd frame is not as long as it says");
        }
        match decoder.get_checksum_from_data() {
            Some(said) if Some(said) != decoder.get_calculated_checksum() => {
                wrong("the zstd frame is not what its checksum is of")
            }
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.frame.read(buffer)?;
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if count == 0 && !buffer.is_empty() {
            self.check()?;
        }
        Ok(count)
    }
}

// === impl Inflate ===

impl<R: BufRead> Inflate<R> {
    pub(super) fn new(packed: R) -> Self {
        Self {
            packed,
            state: Decompress::new(false),
            is_over: false,
        }
    }

    /// What was not read of the compressed bytes.
    pub(super) fn into_rest(self) -> R {
        self.packed
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && !buffer.is_empty() {
            let input = self.packed.fill_buf()?;
            let (before, made_before) = (self.state.total_in(), self.state.total_out());
            let status = self
                .state
                .decompress(input, buffer, FlushDecompress::None)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let used = self.state.total_in().saturating_sub(before);
            let made = self.state.total_out().saturating_sub(made_before);
            self.packed
                .consume(usize::try_from(used).unwrap_or(usize::MAX));
            self.is_over = status == Status::StreamEnd;
            if made > 0 {
                return Ok(usize::try_from(made).unwrap_or(usize::MAX));
            }
            if used == 0 && !self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
    }
}
