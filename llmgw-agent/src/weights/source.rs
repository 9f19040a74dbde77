use std::{fmt::Debug, path::Path};

use async_trait::async_trait;
use llmgw_bundle::digest::Digested;
use llmgw_core::{
    cluster::weights::{Sha256Digest, Source},
    units::Bytes,
};

use super::{DiskShort, SourceError};

/// A kind of place that weights can be had from.
///
/// # Contract
/// * `obtain` is called for sources of its [`scheme`](Self::scheme) alone, by one caller at a time for the same
///   weights and by several for different ones.
/// * It writes to `partial`, where an earlier attempt with the same source may have left something, and to nothing
///   else but `scratch`, a directory that does not exist yet and that the caller removes, whatever comes of it. What it
///   leaves in `partial` it MUST be able to continue; names that begin with that of `partial` are its own too.
/// * When it returns [`Obtained::Written`], the bytes of `partial` MUST be on the disk, and the digest MUST be
///   that of the bytes written. The caller compares it with what is expected; a source does not.
/// * It MUST ask `room` before it writes, as soon as it knows how much, and again from time to time.
/// * It MUST NOT trust what it reads: bodies and archives are bounded, waits have an end.
/// * Dropping the future ends what was started for it; what it has written is left as it is.
#[async_trait]
pub trait WeightSource: Debug + Send + Sync + 'static {
    /// The scheme of the sources that it reads, as [`Source::scheme`] says it.
    fn scheme(&self) -> &'static str;

    /// Gets the file that a source names.
    ///
    /// # Errors
    /// When it can't be had; the error says from where.
    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError>;
}

/// What a source is asked for.
#[derive(Clone, Copy)]
pub struct SourceRequest<'a> {
    /// What to get.
    pub source: &'a Source,
    /// Its size, where it is known beforehand.
    pub size: Option<Bytes>,
    /// What its bytes must be, where that is known.
    pub sha256: Option<Sha256Digest>,
    /// The file to write: the same for the same source each time, so that what an earlier attempt has left there can
    /// be continued. What can't be is the source's to remove.
    pub partial: &'a Path,
    /// A directory for what is needed on the way.
    pub scratch: &'a Path,
    /// Whether the disk has room for so much.
    pub room: &'a (dyn Fn(Bytes) -> Result<(), DiskShort> + Send + Sync),
    /// Is told how many bytes are on the disk, and how many there will be if that is known.
    pub progress: &'a (dyn Fn(Bytes, Option<Bytes>) + Send + Sync),
}

/// How a source has got a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Obtained {
    /// Written to `partial`, with these bytes.
    Written(Digested),
    /// It lies on the node and is used there.
    InPlace(std::path::PathBuf),
}

impl Debug for SourceRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceRequest")
            .field("source", &self.source)
            .field("size", &self.size)
            .field("sha256", &self.sha256)
            .field("partial", &self.partial)
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}
