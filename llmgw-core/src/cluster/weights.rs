//! Where a model's weights come from, how far a node is with fetching them, and what lies on its disk.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{clock::Timestamp, fingerprint::Fingerprint, units::Bytes};

mod digest;
mod set;
mod source;
mod told;

pub use self::{
    digest::{DigestError, Sha256Digest},
    set::{companions, gguf_parts, is_index},
    source::{Source, SourceError, is_relative, shown, split_digest, without_secrets},
    told::{MAX_ASKED, ToldHeader},
};

/// How to get a model's weights: sources in the order of preference, and what the bytes must be.
///
/// Weights are one file, or a set of files that lie beside each other: the parts of a split GGUF, or what a
/// repository of safetensors holds. Of a set, `sources` name one file, and the others lie beside it wherever it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Weights {
    /// Tried in this order.
    pub sources: Vec<Source>,
    /// The digest of the file; of a set each file has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
    /// The size of the file, where it is known before it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The files of a set, by path; empty for a single file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WeightsFile>,
}

/// One file of a set.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsFile {
    /// Where it lies: beneath the directory of the file that the source names.
    pub path: String,
    /// Its digest.
    pub sha256: Sha256Digest,
    /// Its size, where it is known before it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// How far a fetch is. What is not known is absent: nothing is guessed from what is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FetchProgress {
    /// The source being read.
    pub source: Source,
    /// Bytes that are on the disk.
    pub bytes_done: Bytes,
    /// Bytes in all; absent when the source did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<Bytes>,
    /// Bytes in a second, over the last ten or so; absent until there is something to tell it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<Bytes>,
    /// Seconds until all is there, at that rate; absent when the size or the rate is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    /// When the last byte came, by the agent's clock, if that is long ago; absent while bytes come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// Why the source before this one was given up, in one line; absent when this is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

/// Weights that lie on a node, whole and checked.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WeightsOnDisk {
    /// What they are.
    pub sha256: Sha256Digest,
    /// How much they take.
    pub size: Bytes,
    /// What the file is called, or its whole path when the operator has put it there.
    pub name: String,
    /// Whether the operator has put them there: they are used where they lie, and never removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Whether a replica of this node runs on them or is about to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// When a replica was last started on them, by the agent's clock; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// Tells the same weights at two paths, from their size and some of their bytes; absent when they could not be
    /// read. No proof: that is the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

/// What a node is to do about weights, besides fetching those of its replicas.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct WeightsOrders {
    /// Weights to remove, unless something on the node uses them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub collect: BTreeSet<Sha256Digest>,
    /// Whether those that were used longest ago may be removed when there is no room for others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evict: bool,
    /// The address that `mirror:` sources are fetched beneath; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// Weights whose headers are to be told by a node that holds them; at most [`MAX_ASKED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Weights>,
    /// What gated repositories are asked with: kept in memory, and sent to the hub alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_token: Option<HubToken>,
}

/// A secret that a hub knows its user by. Never shown, never written to a disk.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct HubToken(String);

// === impl Weights ===

impl Weights {
    /// All digests: one for each file, or none for a file that the operator vouches for.
    pub fn digests(&self) -> impl Iterator<Item = Sha256Digest> + '_ {
        let single = self.sha256.filter(|_| self.files.is_empty());
        single
            .into_iter()
            .chain(self.files.iter().map(|file| file.sha256))
    }

    /// The size of all files together; absent when that of one is not known.
    #[must_use]
    pub fn total(&self) -> Option<Bytes> {
        if self.files.is_empty() {
            return self.size;
        }
        let mut sizes = self.files.iter().map(|file| file.size);
        sizes.try_fold(Bytes::ZERO, |sum, size| Some(sum + size?))
    }

    /// Each file of a set as weights of its own, with its path; empty for a single file.
    #[must_use]
    pub fn parts(&self) -> Vec<(&str, Self)> {
        let part = |file: &WeightsFile| Self {
            sources: self
                .sources
                .iter()
                .map(|source| source.beside(&file.path))
                .collect(),
            sha256: Some(file.sha256),
            size: file.size,
            files: Vec::new(),
        };
        let files = self.files.iter();
        files.map(|file| (file.path.as_str(), part(file))).collect()
    }

    /// The file of a set that an engine opens; `None` when it opens the directory, or when this is no set.
    #[must_use]
    pub fn opened_by(&self) -> Option<&str> {
        let mut paths = self.files.iter().map(|file| file.path.as_str());
        paths.find(|path| {
            gguf_parts(path).is_some_and(|parts| parts.first().is_some_and(|first| first == path))
        })
    }

    /// Whether it is known which bytes these are, or whose word that is.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        let on_the_node = |source: &Source| matches!(source, Source::File { .. });
        self.sha256.is_some() || !self.files.is_empty() || self.sources.iter().all(on_the_node)
    }
}

// === impl FetchProgress ===

impl FetchProgress {
    /// The progress of a fetch of which no more than this is known.
    #[must_use]
    pub fn new(source: Source, bytes_done: Bytes, bytes_total: Option<Bytes>) -> Self {
        Self {
            source,
            bytes_done,
            bytes_total,
            bytes_per_second: None,
            eta_seconds: None,
            stalled_since: None,
            passed_over: None,
        }
    }

    /// How much is done; absent when it is not known how much there is.
    #[must_use]
    pub fn percent(&self) -> Option<u8> {
        let total = self.bytes_total.filter(|total| *total > Bytes::ZERO)?;
        let percent = u128::from(self.bytes_done.0) * 100 / u128::from(total.0);
        Some(u8::try_from(percent.min(100)).unwrap_or(100))
    }
}

impl fmt::Display for FetchProgress {
    /// A few words: `2.0 GiB of 8.0 GiB (25 %), 12.0 MiB/s, ~8 min left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source: _,
            bytes_done,
            bytes_total,
            bytes_per_second,
            eta_seconds,
            stalled_since,
            passed_over: _,
        } = self;
        match (bytes_total, self.percent()) {
            (Some(total), Some(percent)) => write!(f, "{bytes_done} of {total} ({percent} %)")?,
            _ => write!(f, "{bytes_done}")?,
        }
        if stalled_since.is_some() {
            return f.write_str(", stalled");
        }
        if let Some(rate) = bytes_per_second {
            write!(f, ", {rate}/s")?;
        }
        match eta_seconds {
            Some(seconds) => write!(f, ", ~{} left", crate::reason::remedy::span(*seconds)),
            None => Ok(()),
        }
    }
}

// === impl WeightsOrders ===

impl WeightsOrders {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl HubToken ===

impl HubToken {
    /// A token as a person or a file gives it; space around it is none of it. `None` when it can't be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let printable = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        (printable && text.len() <= MAX_TOKEN).then(|| Self(text.to_owned()))
    }

    /// The secret itself, to be sent.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What stays free on the disk that holds weights: for logs, the journal, an upgrade. Neither placed on nor written to.
pub const DISK_RESERVE: Bytes = Bytes::gib(1);
/// Real ones have some 40 characters.
const MAX_TOKEN: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> Weights {
        let file = |path: &&str| WeightsFile {
            path: (*path).to_owned(),
            sha256: Sha256Digest([1; 32]),
            size: Some(Bytes(5)),
        };
        Weights {
            sources: vec!["hf:o/r/dir/x@c".parse().unwrap()],
            sha256: None,
            size: None,
            files: paths.iter().map(file).collect(),
        }
    }

    #[test]
    fn a_set_is_opened_by_its_first_part_or_by_its_directory() {
        let split = set(&["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"]);
        assert_eq!(split.opened_by(), Some("m-00001-of-00002.gguf"));
        assert_eq!(set(&["config.json", "model.safetensors"]).opened_by(), None);
        assert_eq!(split.total(), Some(Bytes(10)));
        let (path, part) = &split.parts()[0];
        assert_eq!(*path, "m-00002-of-00002.gguf");
        assert_eq!(
            part.sources[0].to_string(),
            "hf:o/r/dir/m-00002-of-00002.gguf@c"
        );
    }

    #[test]
    fn progress_says_no_more_than_is_known() {
        let mut progress = FetchProgress::new(
            "file:/m".parse().unwrap(),
            Bytes::gib(2),
            Some(Bytes::gib(8)),
        );
        assert_eq!(progress.to_string(), "2.0 GiB of 8.0 GiB (25 %)");
        progress.bytes_per_second = Some(Bytes::mib(12));
        progress.eta_seconds = Some(512);
        assert_eq!(
            progress.to_string(),
            "2.0 GiB of 8.0 GiB (25 %), 12.0 MiB/s, ~8 min left"
        );
        progress.stalled_since = Some(Timestamp(1));
        assert_eq!(progress.to_string(), "2.0 GiB of 8.0 GiB (25 %), stalled");
        progress.bytes_total = Some(Bytes::ZERO);
        assert_eq!(progress.percent(), None);
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = HubToken::parse(" hf_secret\n").unwrap();
        assert_eq!(token.secret(), "hf_secret");
        let orders = WeightsOrders {
            hub_token: Some(token),
            ..WeightsOrders::default()
        };
        assert!(!format!("{orders:?}").contains("secret"));
        for wrong in ["", " \n", "a b", "a\u{e9}"] {
            assert_eq!(HubToken::parse(wrong), None, "{wrong:?}");
        }
    }
}
