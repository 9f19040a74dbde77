//! Archives, extracted confined; two that belong together, merged.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use llmgw_bundle::{
    archive::{ExtractOptions, extract},
    error::ArchiveError,
    limits::Limits,
};
use llmgw_core::{cluster::release::Asset, units::Bytes};
use tokio::task::spawn_blocking;

use super::{ProvisionError, failed, full};

/// Extracts an archive into a directory that is not there yet, without its one top folder.
///
/// Dropping the future stops the work at the next file, and what was written is removed by it.
pub(super) async fn unpack(
    asset: &Asset,
    archive: &Path,
    destination: &Path,
) -> Result<(), ProvisionError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(Arc::clone(&cancelled));
    let (from, to) = (archive.to_owned(), destination.to_owned());
    let work = spawn_blocking(move || {
        let options = ExtractOptions {
            limits: Limits::default().with_member(MAX_MEMBER),
            collapse_top: true,
            cancelled: &|| cancelled.load(Ordering::Relaxed),
            progress: &|_| (),
        };
        extract(&from, &to, &options).map(drop)
    });
    let error = match work.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(error) => return Err(failed("extracting", archive)(io::Error::other(error))),
    };
    Err(refused(asset, destination, error))
}

fn refused(asset: &Asset, destination: &Path, error: ArchiveError) -> ProvisionError {
    if full(&error) {
        return ProvisionError::DiskFull {
            doing: format!("extracting {}", asset.name),
            path: destination.parent().unwrap_or(destination).to_owned(),
        };
    }
    ProvisionError::Archive {
        asset: asset.name.clone(),
        source: Arc::new(error),
    }
}

/// Moves the files of `from` into `into` and removes `from`. A file of the same name is left when it is the same.
pub(super) async fn merge(asset: &Asset, from: &Path, into: &Path) -> Result<(), ProvisionError> {
    let (source, target, name) = (from.to_owned(), into.to_owned(), asset.name.clone());
    spawn_blocking(move || merge_now(&name, &source, &target))
        .await
        .unwrap_or_else(|error| Err(failed("merging", into)(io::Error::other(error))))
}

fn merge_now(asset: &str, from: &Path, into: &Path) -> Result<(), ProvisionError> {
    let entries = std::fs::read_dir(from).map_err(failed("reading", from))?;
    for entry in entries {
        let entry = entry.map_err(failed("reading", from))?;
        let (path, target) = (entry.path(), into.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed("reading", &path))?;
        if kind.is_dir() {
            std::fs::create_dir_all(&target).map_err(failed("making", &target))?;
            merge_now(asset, &path, &target)?;
        } else if target.symlink_metadata().is_err() {
            std::fs::rename(&path, &target).map_err(failed("moving", &path))?;
        } else if !same(&path, &target) {
            return Err(ProvisionError::Overlap {
                asset: asset.to_owned(),
                file: entry.file_name().to_string_lossy().into_owned(),
            });
        }
    }
    std::fs::remove_dir_all(from).map_err(failed("removing", from))
}

/// Licences and the like come in both.
fn same(one: &Path, other: &Path) -> bool {
    let digest = |path: &Path| {
        let file = std::fs::File::open(path).ok()?;
        Some(llmgw_bundle::digest::digest(file).ok()?.sha256)
    };
    let kind = |path: &Path| path.symlink_metadata().map(|found| found.file_type()).ok();
    kind(one) == kind(other) && digest(one).is_some() && digest(one) == digest(other)
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The largest library of a CUDA build has about two gigabytes.
const MAX_MEMBER: Bytes = Bytes::gib(16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_together_is_merged_and_what_differs_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, text) in [
            ("engine/llama-server", "program"),
            ("engine/LICENSE", "free"),
            ("runtime/libcudart.so.13", "library"),
            ("runtime/LICENSE", "free"),
            ("runtime/deep/x", "x"),
            ("other/LICENSE", "not free"),
        ] {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), text).unwrap();
        }
        merge_now("runtime.tar.gz", &path("runtime"), &path("engine")).unwrap();
        assert!(path("engine/libcudart.so.13").exists() && path("engine/deep/x").exists());
        assert!(!path("runtime").exists());
        let error = merge_now("other.tar.gz", &path("other"), &path("engine")).unwrap_err();
        assert!(matches!(error, ProvisionError::Overlap { .. }), "{error:?}");
    }
}
