use std::path::{Path, PathBuf};

use llmgw_core::{cluster::weights::Sha256Digest, fingerprint::Fingerprint};
use tokio::fs;

use super::{
    SourceError,
    verified::{Look, Verified, read_whole},
};

/// Files that are used where they lie, and what is remembered of them.
#[derive(Debug)]
pub(super) struct InPlace<'a> {
    store: &'a Path,
}

impl<'a> InPlace<'a> {
    pub(super) fn new(store: &'a Path) -> Self {
        Self { store }
    }

    /// Checks that there is a file at `path`, with this digest if one is given. It is read once, and again only
    /// when it looks different.
    pub(super) async fn check(
        &self,
        path: &Path,
        expected: Option<Sha256Digest>,
    ) -> Result<PathBuf, SourceError> {
        let found = fs::metadata(path).await.map_err(|_| SourceError::Missing {
            path: path.to_owned(),
        })?;
        // What engines for safetensors open is a directory, which says so by its configuration.
        if found.is_dir() && expected.is_none() {
            let config = path.join("config.json");
            if fs::metadata(&config)
                .await
                .is_ok_and(|config| config.is_file())
            {
                return Ok(path.to_owned());
            }
        }
        if !found.is_file() || found.len() == 0 {
            return Err(SourceError::NotAFile {
                path: path.to_owned(),
            });
        }
        let Some(expected) = expected else {
            return Ok(path.to_owned());
        };
        let record = self.record(path);
        let known = Verified::read(&record)
            .await
            .filter(|known| known.file == path && known.look == Look::of(&found));
        let actual = match known {
            Some(known) => known.sha256,
            None => self.read(path, record).await?,
        };
        if actual == expected {
            return Ok(path.to_owned());
        }
        Err(SourceError::Digest {
            source_text: format!("file:{}", path.display()),
            expected,
            actual,
        })
    }

    async fn read(&self, path: &Path, record: PathBuf) -> Result<Sha256Digest, SourceError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| SourceError::File {
                doing,
                path,
                source,
            }
        };
        let (digested, look) = read_whole(path.to_owned())
            .await
            .map_err(failed("reading", path))?;
        let verified = Verified {
            file: path.to_owned(),
            sha256: digested.sha256,
            look,
        };
        let directory = self.directory();
        fs::create_dir_all(&directory)
            .await
            .map_err(failed("making", &directory))?;
        verified
            .write(record.clone())
            .await
            .map_err(failed("writing", &record))?;
        Ok(digested.sha256)
    }

    /// The record of a path. Its name is short; the record says which path it is of.
    fn record(&self, path: &Path) -> PathBuf {
        let name = Fingerprint::of_bytes(path.as_os_str().as_encoded_bytes());
        self.directory().join(format!("{name}.json"))
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.store.join("in-place")
    }
}
