//! The model as a file, for as long as a check needs it.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use llmgw_core::{error::Chain, gguf::check::CheckModel, id::ReplicaId};
use tokio::task::spawn_blocking;

use super::ComputeProblem;

/// A file that is removed with this value.
#[derive(Debug)]
pub(super) struct ModelFile {
    path: PathBuf,
}

impl ModelFile {
    /// Writes the model under a name of its own, and removes those that killed agents have left.
    pub(super) async fn write(
        model: &CheckModel,
        directory: &Path,
        id: ReplicaId,
    ) -> Result<Self, ComputeProblem> {
        let file = Self {
            path: directory.join(format!("{PREFIX}{id}.gguf")),
        };
        in_use().insert(file.path.clone());
        let (model, path, directory) = (model.clone(), file.path.clone(), directory.to_owned());
        let written = spawn_blocking(move || {
            fs::create_dir_all(&directory)?;
            sweep(&directory);
            let mut out = BufWriter::new(fs::File::create(path)?);
            model.write(&mut out).map_err(io::Error::other)?;
            out.flush()
        });
        let written = written
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| {
            let path = file.path.display();
            ComputeProblem::Untried(format!("writing {path}: {}", Chain(&error)))
        })?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(path = %self.path.display(), %error, "a check model is left");
        }
        in_use().remove(&self.path);
    }
}

/// Removes models that no check needs: the directory is this process's alone, so that they are of an earlier one.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && !in_use().contains(&entry.path()) {
            // The next check tries again.
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// The models of the checks that are under way in this process.
fn in_use() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PREFIX: &str = "check-";
