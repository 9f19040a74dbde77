//! The file itself: made for its owner alone, and the same at its place all the time.

use std::{io, os::unix::fs::MetadataExt as _, path::Path};

use super::SqliteStore;
use crate::store::{StoreError, rows};

impl SqliteStore {
    /// Refuses to write when the file is not at its place any more: what is written into it is gone with this process.
    pub(super) async fn still_there(&self, doing: &'static str) -> Result<(), StoreError> {
        let gone = match identity(&self.path).await {
            Ok(found) if found == self.file => return Ok(()),
            Ok(_) => "another file is in the place of",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "somebody has removed",
            Err(error) => return Err(rows::unavailable(doing, error)),
        };
        let source = format!(
            "{gone} {}: stop this control plane, put the file back from a copy, and start it again",
            self.path.display()
        );
        Err(StoreError::Unavailable {
            doing,
            source: source.into(),
        })
    }
}

/// Which file is at a place: device and inode.
pub(super) async fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = tokio::fs::metadata(path).await?;
    Ok((found.dev(), found.ino()))
}

/// Makes the file for its owner only, before SQLite would make it for all; leaves one that is there as it is.
pub(super) async fn create_private(path: &Path) -> io::Result<()> {
    let named =
        |source: io::Error| io::Error::new(source.kind(), format!("{}: {source}", path.display()));
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path).await {
        Ok(file) => file.sync_all().await.map_err(named)?,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(source) => return Err(named(source)),
    }
    // The file is as durable as its name: SQLite syncs what is in it, not the directory that lists it.
    if let Some(directory) = path.parent() {
        let directory = tokio::fs::File::open(directory).await.map_err(named)?;
        directory.sync_all().await.map_err(named)?;
    }
    Ok(())
}
