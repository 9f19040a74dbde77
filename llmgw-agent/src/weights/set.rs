//! Sets of files, laid beside each other as an engine opens them.
//!
//! Each file is kept by its digest, once, however many sets it belongs to; a set is a directory of links.

use std::{
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use llmgw_bundle::digest::digest;
use llmgw_core::{cluster::weights::Weights, gguf};
use tokio::task::spawn_blocking;

use super::WeightsError;

/// Lays the files of a set, each with its path in it, and gives what an engine opens: the first part of a split GGUF,
/// whose parts have been checked to belong together, or the directory.
pub(super) async fn lay(
    store: &Path,
    weights: &Weights,
    files: Vec<(String, PathBuf)>,
) -> Result<PathBuf, WeightsError> {
    let directory = directory(store, weights)?;
    let opened = weights.opened_by().map(|path| directory.join(path));
    let work = move || {
        for (path, file) in &files {
            let link = directory.join(path);
            place(&link, file).map_err(|source| WeightsError::File {
                doing: "linking",
                path: link.clone(),
                source: Arc::new(source),
            })?;
        }
        let Some(first) = opened else {
            return Ok(directory);
        };
        gguf::open(&first, &gguf::Limits::default()).map_err(|source| WeightsError::Set {
            source: Arc::new(source),
        })?;
        Ok(first)
    };
    spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(WeightsError::File {
            doing: "linking",
            path: store.to_owned(),
            source: Arc::new(io::Error::other(error)),
        })
    })
}

/// The directory of a set: named by a digest of its list, so that two that differ in anything are two.
fn directory(store: &Path, weights: &Weights) -> Result<PathBuf, WeightsError> {
    let mut list = String::new();
    for file in &weights.files {
        list.push_str(&format!("{}  {}\n", file.sha256, file.path));
    }
    let named = digest(list.as_bytes()).map_err(|source| WeightsError::File {
        doing: "naming",
        path: store.to_owned(),
        source: Arc::new(io::Error::other(source)),
    })?;
    Ok(sets(store).join(named.sha256.to_string()))
}

pub(super) fn sets(store: &Path) -> PathBuf {
    store.join("sets")
}

/// Makes `link` lead to `file`; one that leads elsewhere is replaced.
fn place(link: &Path, file: &Path) -> io::Result<()> {
    if std::fs::read_link(link).is_ok_and(|to| to == file) {
        return Ok(());
    }
    if let Some(directory) = link.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    symlink(file, link)
}
