//! One pass over an archive, whatever its format.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use super::{
    content::BUFFER,
    format::{Format, GZIP, ZSTD},
    input::Input,
    listing::Entry,
    packed::{Bounded, Zstd},
    tar, zip,
};
use crate::{
    digest::Digested,
    error::{ArchiveError, Rule},
};

/// Is shown the entries of an archive, in their order.
///
/// Names, targets and sizes of what it is shown have been checked each for itself. For a file, [`bytes`](Self::bytes)
/// follows until all were shown, then [`end`](Self::end). An error ends the pass.
pub(super) trait Visitor {
    /// An entry begins.
    fn entry(&mut self, entry: Entry) -> Result<(), ArchiveError>;
    /// The next bytes of the file that was shown last.
    fn bytes(&mut self, chunk: &[u8]) -> Result<(), ArchiveError>;
    /// All bytes of the file were shown, and they are those that its checksum is of.
    fn end(&mut self) -> Result<(), ArchiveError>;
}

/// Shows `visitor` what is in the archive, and says what the archive's own bytes were: all of them were read.
pub(super) fn walk(input: &Input<'_>, visitor: &mut dyn Visitor) -> Result<Digested, ArchiveError> {
    let mut file = BufReader::with_capacity(BUFFER, input.stream()?);
    match input.format {
        Format::Tar => tar::walk(input, &mut file, visitor)?,
        Format::TarGz => {
            let mut stream = unpacked(input, GzDecoder::new(&mut file));
            tar::walk(input, &mut stream, visitor)?;
            nothing_follows(input, &mut file, GZIP)?;
        }
        Format::TarZst => {
            let frame = Zstd::new(&mut file, &input.reading, input.format)?;
            let mut stream = unpacked(input, frame);
            tar::walk(input, &mut stream, visitor)?;
            nothing_follows(input, &mut file, ZSTD)?;
        }
        Format::Zip => zip::walk(input, &mut file, visitor)?,
    }
    Ok(file.into_inner().finish())
}

/// The bytes that come out of `decoder`, as long as they are not too many. Headers are short: they are read from a
/// buffer.
fn unpacked<R: Read>(input: &Input<'_>, decoder: R) -> BufReader<Bounded<R>> {
    let limits = input.reading.limits;
    let stream = Bounded::new(decoder, limits.densest(input.length), limits.ratio);
    BufReader::with_capacity(BUFFER, stream)
}

fn nothing_follows(
    input: &Input<'_>,
    file: &mut impl BufRead,
    magic: &[u8],
) -> Result<(), ArchiveError> {
    let rest = file
        .fill_buf()
        .map_err(|source| input.reading.read(source))?;
    if rest.is_empty() {
        return Ok(());
    }
    let another = rest.starts_with(magic);
    Err(input.reading.refused_whole(if another {
        Rule::Concatenated
    } else {
        Rule::AfterEnd
    }))
}
