//! A published version of an engine, and what the control plane found out about it for the whole fleet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    variant::{BuildName, Role, Variant},
    weights::Sha256Digest,
};
use crate::{clock::Timestamp, units::Bytes};

/// A published version: its name, and the files that come with it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Release {
    /// Such as `b10991`.
    pub tag: String,
    /// When it was published; absent where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// The builds for Linux, in the publisher's order.
    pub assets: Vec<Asset>,
}

/// A published file.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Asset {
    /// Its name, which says what it is: see [`BuildName`].
    pub name: String,
    /// Where it is fetched.
    pub url: String,
    /// How large it is; absent where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// What its bytes must be; absent where the publisher lists no digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
}

/// What came of looking up a release.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Resolution {
    /// The control plane asks; nodes wait for its answer.
    Asking,
    /// It is this one.
    Found {
        /// Which.
        release: Release,
    },
    /// It could not be looked up; it is tried again.
    Failed {
        /// What went wrong, to what.
        error: String,
        /// What would help.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// An answer of a newer control plane.
    #[serde(other)]
    Unknown,
}

impl Release {
    /// A release as a mirror holds it: each file that a digest is trusted for, below one address.
    ///
    /// The digests come from the control plane, never from the mirror.
    #[must_use]
    pub fn of_mirror(tag: &str, mirror: &str, trusted: &BTreeMap<String, Sha256Digest>) -> Self {
        let base = mirror.trim_end_matches('/');
        let assets = trusted
            .iter()
            .filter(|(name, _)| BuildName::parse(name).is_some())
            .map(|(name, sha256)| Asset {
                name: name.clone(),
                url: format!("{base}/_llmgw/engines/llamacpp/{tag}/{name}"),
                size: None,
                sha256: Some(*sha256),
            })
            .collect();
        Self {
            tag: tag.to_owned(),
            published_at: None,
            assets,
        }
    }

    /// The variants that it has for a processor, in the publisher's order.
    #[must_use]
    pub fn variants(&self, arch: &str) -> Vec<Variant> {
        let mut variants = Vec::new();
        for asset in &self.assets {
            if let Some(name) = BuildName::parse(&asset.name)
                && name.role == Role::Engine
                && name.arch == arch
                && !variants.contains(&name.variant)
            {
                variants.push(name.variant);
            }
        }
        variants
    }

    /// The archive of a variant in the preferred packing: of its engine, or of the runtime that belongs to it.
    ///
    /// Runtime archives are listed before the engine of the same variant, so that the first file of a variant
    /// is not its engine: the role is asked for.
    #[must_use]
    pub fn asset(&self, variant: &Variant, arch: &str, role: Role) -> Option<&Asset> {
        self.assets
            .iter()
            .filter_map(|asset| Some((BuildName::parse(&asset.name)?, asset)))
            .filter(|(name, _)| name.role == role && name.arch == arch && name.variant == *variant)
            .min_by_key(|(name, _)| name.packing)
            .map(|(_, asset)| asset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(names: &[&str]) -> Release {
        Release {
            tag: "b10991".to_owned(),
            published_at: None,
            assets: names
                .iter()
                .map(|name| Asset {
                    name: (*name).to_owned(),
                    url: format!("https://example.com/{name}"),
                    size: None,
                    sha256: None,
                })
                .collect(),
        }
    }

    #[test]
    fn the_runtime_that_is_listed_first_is_not_taken_for_the_engine() {
        let release = release(&[
            "cudart-llama-bin-ubuntu-cuda-13.3-x64.tar.gz",
            "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz",
            "llama-b10991-bin-ubuntu-x64.zip",
            "llama-b10991-bin-ubuntu-x64.tar.gz",
            "llama-b10991-bin-win-cpu-x64.zip",
        ]);
        let variants = release.variants("x86_64");
        let names: Vec<String> = variants.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["cuda-13.3", "cpu"]);
        let name = |variant, role| {
            let asset = release.asset(variant, "x86_64", role)?;
            Some(asset.name.as_str())
        };
        assert_eq!(
            name(&variants[0], Role::Engine),
            Some("llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz")
        );
        assert_eq!(
            name(&variants[0], Role::Runtime),
            Some("cudart-llama-bin-ubuntu-cuda-13.3-x64.tar.gz")
        );
        assert_eq!(
            name(&Variant::Cpu, Role::Engine),
            Some("llama-b10991-bin-ubuntu-x64.tar.gz")
        );
        assert!(release.variants("aarch64").is_empty());
    }

    #[test]
    fn a_mirror_has_what_digests_are_trusted_for() {
        let digest = Sha256Digest([7; 32]);
        let name = "llama-b10991-bin-ubuntu-x64.tar.gz";
        let trusted = [(name.to_owned(), digest), ("notes.txt".to_owned(), digest)].into();
        let release = Release::of_mirror("b10991", "http://mirror:8081/", &trusted);
        assert_eq!(release.assets.len(), 1);
        assert_eq!(
            release.assets[0].url,
            format!("http://mirror:8081/_llmgw/engines/llamacpp/b10991/{name}")
        );
        assert_eq!(release.assets[0].sha256, Some(digest));
    }
}
