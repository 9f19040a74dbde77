//! The marker of a finished installation: what it was made from, and which files it has.
//!
//! It is written last, so that a directory without one is no installation, whatever is in it. Files are
//! remembered by size and time of their last change: a directory may be moved, and an unrelated hand that
//! replaces or removes a file is noticed without reading gigabytes.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use llmgw_core::{clock::Timestamp, units::Bytes};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::{ProvisionError, failed, plan::ArchiveBuild, problem::BuildProblem};
use crate::durable;

/// What is known of an installation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Marker {
    /// What it was made from.
    pub build: ArchiveBuild,
    /// The build number that the program says.
    pub number: Option<u64>,
    pub installed_at: Timestamp,
    /// Each file, by its path within the directory.
    files: BTreeMap<PathBuf, Mark>,
}

/// What a file is recognised by.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Mark {
    size: u64,
    /// Seconds and nanoseconds of the last change of its content.
    changed: (i64, i64),
}

impl Marker {
    /// Marks the directory as it is.
    pub(super) async fn of(
        build: ArchiveBuild,
        number: Option<u64>,
        now: Timestamp,
        directory: &Path,
    ) -> io::Result<Self> {
        let files = files(directory.to_owned()).await?;
        Ok(Self {
            build,
            number,
            installed_at: now,
            files,
        })
    }

    /// The marker of a directory; `None` when there is none that can be read.
    pub(super) async fn read(directory: &Path) -> Option<Self> {
        let json = durable::read_aside(directory.join(NAME), MAX_MARKER).await;
        serde_json::from_slice(&json.ok()?).ok()
    }

    /// Brings the directory to the disk, and then this.
    pub(super) async fn write(&self, directory: &Path) -> Result<(), ProvisionError> {
        let path = directory.join(NAME);
        let json = serde_json::to_vec(self)
            .map_err(|error| failed("writing", &path)(io::Error::from(error)))?;
        let (target, within) = (path.clone(), directory.to_owned());
        // A marker must not be on the disk before what it speaks of.
        spawn_blocking(move || -> io::Result<()> {
            rustix::fs::syncfs(fs::File::open(within)?)?;
            durable::write(&target, &json)
        })
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed("writing", &path))
    }

    /// What has become of the files since, at most the first few.
    pub(super) async fn compare(&self, directory: &Path) -> Vec<BuildProblem> {
        let now = files(directory.to_owned()).await.unwrap_or_default();
        let problem = |file: &Path, problem| BuildProblem::File {
            file: file.display().to_string(),
            problem,
        };
        self.files
            .iter()
            .filter_map(|(file, mark)| match now.get(file) {
                Some(found) if found == mark => None,
                Some(_) => Some(problem(file, "has changed")),
                None => Some(problem(file, "is gone")),
            })
            .take(MOST_SAID)
            .collect()
    }
}

async fn files(directory: PathBuf) -> io::Result<BTreeMap<PathBuf, Mark>> {
    let list = move || {
        let mut waiting = vec![directory.clone()];
        let mut files = BTreeMap::new();
        while let Some(next) = waiting.pop() {
            for entry in fs::read_dir(next)? {
                let entry = entry?;
                let found = entry.metadata()?;
                if found.is_dir() {
                    waiting.push(entry.path());
                    continue;
                }
                let path = entry.path();
                let Ok(name) = path.strip_prefix(&directory) else {
                    continue;
                };
                // Beside it stand what was proven and what is being written: those come and go.
                if name.components().count() == 1
                    && NOT_OURS
                        .iter()
                        .any(|end| name.to_string_lossy().ends_with(end))
                {
                    continue;
                }
                let mark = Mark {
                    size: found.len(),
                    changed: (found.mtime(), found.mtime_nsec()),
                };
                files.insert(name.to_owned(), mark);
            }
        }
        Ok(files)
    };
    spawn_blocking(list)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The name of a marker.
pub(super) const NAME: &str = "installed.json";
/// Files of the agent at the top of an installation: archives of engines have none of these.
const NOT_OURS: &[&str] = &[".json", durable::BESIDE];
/// A marker of a thousand files has about 100 KiB.
pub(super) const MAX_MARKER: Bytes = Bytes::mib(64);
const MOST_SAID: usize = 5;

#[cfg(test)]
mod tests {
    use llmgw_core::cluster::variant::Variant;

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_gone_or_has_changed_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("lib")).unwrap();
        for name in ["llama-server", "lib/a.so", "lib/b.so", "lib/c.json"] {
            fs::write(path(name), name).unwrap();
        }
        let build = ArchiveBuild {
            tag: "b1".to_owned(),
            variant: Variant::Cpu,
            assets: Vec::new(),
        };
        let marker = Marker::of(build, Some(1), Timestamp(5), directory.path())
            .await
            .unwrap();
        marker.write(directory.path()).await.unwrap();
        let marker = Marker::read(directory.path()).await.unwrap();
        assert!(marker.compare(directory.path()).await.is_empty());
        fs::remove_file(path("lib/a.so")).unwrap();
        fs::write(path("lib/b.so"), "other").unwrap();
        // What the agent keeps beside it is at the top alone.
        fs::write(path("lib/c.json"), "other").unwrap();
        fs::write(path("proven.json"), "{}").unwrap();
        let said: Vec<String> = marker
            .compare(directory.path())
            .await
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "lib/a.so is gone",
                "lib/b.so has changed",
                "lib/c.json has changed"
            ]
        );
        fs::write(path(NAME), "{").unwrap();
        assert_eq!(Marker::read(directory.path()).await, None);
    }
}
