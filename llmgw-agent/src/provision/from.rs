//! Archives that are at hand, tried as if they had been published.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use llmgw_bundle::{
    archive::{Format, recognise},
    digest::digest,
    error::ArchiveError,
};
use llmgw_core::{
    cluster::{
        engine::{EngineSource, Provision, WantedEngine},
        release::{Asset, Release, Resolution},
        variant::{BuildName, Role, Variant},
    },
    id::EngineName,
    units::Bytes,
};
use tokio::{fs, task::spawn_blocking};

use super::{ProvisionError, Provisioner, download::DOWNLOADS, failed};
use crate::engine::InstalledEngine;

impl Provisioner {
    /// Installs and checks the build that is in `archives`: the engine's, and that of the runtime that belongs to
    /// it. What a file is called says which build it is; a name of another kind is taken for a build for the
    /// processor, of a version that nobody says.
    ///
    /// # Errors
    /// When a file can't be read or is no archive, and as [`Self::converge`].
    pub async fn converge_from(
        &self,
        engine: &EngineName,
        archives: &[PathBuf],
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let mut names = Vec::new();
        for path in archives {
            names.push(published_name(path).await?);
        }
        let engines = names.iter().filter_map(|name| BuildName::parse(name));
        let number = engines.clone().find_map(|name| name.number);
        let variant = engines
            .clone()
            .find(|name| name.role == Role::Engine)
            .map_or(Variant::Cpu, |name| name.variant);
        // The number of a name that was made up is none that the program could contradict.
        let tag = match number {
            Some(number) if number > 0 => format!("b{number}"),
            _ => UNNAMED.to_owned(),
        };
        let directory = self.shop.config.directory.join(DOWNLOADS).join(&tag);
        fs::create_dir_all(&directory)
            .await
            .map_err(failed("making", &directory))?;
        let mut assets = Vec::new();
        for (path, name) in archives.iter().zip(names) {
            let target = directory.join(&name);
            fs::copy(path, &target)
                .await
                .map_err(failed("copying", path))?;
            let digested = spawn_blocking(move || digest(std::fs::File::open(target)?))
                .await
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(failed("reading", path))?;
            assets.push(Asset {
                name,
                url: format!("file:{}", path.display()),
                size: Some(digested.bytes).filter(|bytes| *bytes > Bytes::ZERO),
                sha256: Some(digested.sha256),
            });
        }
        let wanted = WantedEngine {
            version: Some(tag.clone()),
            variant: Some(variant.to_string()),
            release: Some(Resolution::Found {
                release: Release {
                    tag,
                    published_at: None,
                    assets,
                },
            }),
            ..WantedEngine::new(engine.clone(), EngineSource::Github)
        };
        self.converge(&wanted, hears).await
    }
}

/// The name of the file when it is one that releases have, else one that says what it is taken for.
async fn published_name(path: &Path) -> Result<String, ProvisionError> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if BuildName::parse(&name).is_some() {
        return Ok(name);
    }
    let archive = path.to_owned();
    let format = spawn_blocking(move || recognise(&archive))
        .await
        .unwrap_or_else(|error| {
            Err(ArchiveError::Read {
                archive: path.to_owned(),
                source: io::Error::other(error),
            })
        })
        .map_err(|source| ProvisionError::Archive {
            asset: name,
            source: Arc::new(source),
        })?;
    Ok(made_up(format))
}

/// The name that a release would give to a build for this processor.
fn made_up(format: Format) -> String {
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("llama-b0-bin-ubuntu-{arch}.{format}")
}

/// Stands where the version of a release would.
const UNNAMED: &str = "unnamed";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_published_name_is_kept_and_another_is_taken_for_a_build_for_the_processor() {
        let vulkan = "llama-b7-bin-ubuntu-vulkan-x64.tar.gz";
        let kept = published_name(&Path::new("/x").join(vulkan)).await;
        assert_eq!(kept.unwrap(), vulkan);
        let directory = tempfile::tempdir().unwrap();
        for (name, start, end) in [
            ("mine.zip", &b"PK\x03\x04"[..], ".zip"),
            ("mine", b"\x1f\x8b\x08", ".tar.gz"),
            ("mine.txt", b"\x28\xb5\x2f\xfd", ".tar.zst"),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, start).unwrap();
            let name = published_name(&path).await.unwrap();
            let build = BuildName::parse(&name).unwrap();
            assert_eq!((build.variant, build.number), (Variant::Cpu, Some(0)));
            assert!(name.ends_with(end), "{name}");
        }
        let path = directory.path().join("text");
        std::fs::write(&path, "hello").unwrap();
        assert!(published_name(&path).await.is_err());
    }
}
