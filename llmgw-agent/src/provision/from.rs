//! Archives that are at hand, tried as if they had been published.

use std::{
    io,
    path::{Path, PathBuf},
};

use llmgw_bundle::digest::digest;
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
    /// processor.
    ///
    /// # Errors
    /// When a file can't be read, and as [`Self::converge`].
    pub async fn converge_from(
        &self,
        engine: &EngineName,
        archives: &[PathBuf],
        hears: &(dyn Fn(Provision) + Send + Sync),
    ) -> Result<InstalledEngine, ProvisionError> {
        let names: Vec<String> = archives.iter().map(|path| published_name(path)).collect();
        let engines = names.iter().filter_map(|name| BuildName::parse(name));
        let number = engines.clone().find_map(|name| name.number).unwrap_or(0);
        let variant = engines
            .clone()
            .find(|name| name.role == Role::Engine)
            .map_or(Variant::Cpu, |name| name.variant);
        let tag = format!("b{number}");
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
fn published_name(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if BuildName::parse(&name).is_some() {
        return name;
    }
    let end = [".tar.gz", ".tgz", ".tar.zst", ".zip"]
        .into_iter()
        .find(|end| name.ends_with(end))
        .unwrap_or(".tar.gz");
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    format!("llama-b0-bin-ubuntu-{arch}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_name_is_kept_and_another_is_taken_for_a_build_for_the_processor() {
        let vulkan = "llama-b7-bin-ubuntu-vulkan-x64.tar.gz";
        assert_eq!(published_name(&Path::new("/x").join(vulkan)), vulkan);
        for (name, end) in [("/x/mine.zip", ".zip"), ("/x/mine", ".tar.gz")] {
            let name = published_name(Path::new(name));
            let build = BuildName::parse(&name).unwrap();
            assert_eq!((build.variant, build.number), (Variant::Cpu, Some(0)));
            assert!(name.ends_with(end), "{name}");
        }
    }
}
