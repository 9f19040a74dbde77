//! Archives made byte by byte, so that they can say of themselves what no program would.

pub(crate) mod tar;
pub(crate) mod zip;

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// One gzip member.
pub(crate) fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One zstd frame.
pub(crate) fn zst(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}
