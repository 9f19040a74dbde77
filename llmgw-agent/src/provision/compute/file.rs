//! The model as a file, for as long as a check needs it.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Duration,
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
    }
}

/// Removes models that no check can need any more.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let age = entry
            .metadata()
            .and_then(|found| found.modified())
            .ok()
            .and_then(|modified| modified.elapsed().ok());
        if ours && age.is_some_and(|age| age > ABANDONED) {
            // The next check tries again.
            fs::remove_file(entry.path()).ok();
        }
    }
}

const PREFIX: &str = "check-";
/// Longer than any check takes.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
