//! What a control plane keeps on disk, and who may use it.
//!
//! | file | holds | why it is kept |
//! |---|---|---|
//! | `server.lock` | nothing; locked while a process uses the directory | two would fight over the engines |
//! | `server.id` | who this control plane is | it takes its own lease back after a crash, at once |
//! | `hashing.key` | the key that secrets are hashed with | without it, no API key would be known any more |
//! | `admin.token` | the admin API's token | `llmgw ctl` on this machine finds it here |
//! | `admin.url` | where the admin API listens | `llmgw ctl` on this machine finds it here |
//! | `weights-found/` | what hubs said of weights: commits, digests, headers | asked again; a branch may be another commit by then |
//! | `agent.token` | the secret that admits agents | agents on this machine read it here |
//! | `first-key` | the first API key, until it was shown | a crash before that must not lose it |
//! | `usage/` | usage that the store has not got yet | a kill, or a store that is away, must not lose it |
//! | `llmgw.db` | the store, unless it is elsewhere | |
//!
//! The directory is 0700 and every file 0600.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use llmgw_core::keys::{HashingKey, Secret};

use crate::fault::Fault;

/// A data directory that this process holds alone.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Held for as long as the directory is used; the lock ends with the process.
    _lock: File,
}

impl DataDir {
    /// Makes the directory if need be, and takes it for this process alone.
    ///
    /// # Errors
    /// When it can't be made or written, or another process has it.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let unusable = |source| Fault::DataDir {
            path: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(unusable)?;
        // Paths that are told to others must mean the same from everywhere.
        let path = path.canonicalize().map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("server.lock"))
            .map_err(|source| Fault::DataDir {
                path: path.clone(),
                source,
            })?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Fault::InUse { path }),
            Err(TryLockError::Error(source)) => Err(Fault::DataDir { path, source }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lasting name of this control plane.
    ///
    /// # Errors
    /// When the file can't be read or made.
    pub fn server_id(&self) -> Result<String, Fault> {
        self.text_or("server.id", || Ok(format!("server-{}", random_hex()?)))
    }

    /// The key that secrets are hashed with.
    ///
    /// # Errors
    /// When the file can't be read or made, or does not hold a key.
    pub fn hashing_key(&self) -> Result<HashingKey, Fault> {
        let text = self.text_or("hashing.key", random_hex)?;
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(HashingKey::from_bytes)
            .ok_or_else(|| Fault::Damaged {
                path: self.path.join("hashing.key"),
                problem: "does not hold 64 hexadecimal digits".to_owned(),
            })
    }

    /// The admin API's token.
    ///
    /// # Errors
    /// When the file can't be read or made.
    pub fn admin_token(&self) -> Result<String, Fault> {
        self.text_or("admin.token", random_hex)
    }

    /// Writes down where the admin API listens, for `llmgw ctl` on this machine.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn note_admin_url(&self, url: &str) -> Result<(), Fault> {
        write_private(&self.path.join(ADMIN_URL_FILE), url)
    }

    /// The secret that admits agents.
    ///
    /// # Errors
    /// When the file can't be read or made.
    pub fn agent_token(&self) -> Result<String, Fault> {
        self.text_or("agent.token", random_hex)
    }

    /// The first API key, while it has not been shown.
    ///
    /// # Errors
    /// When the file is there and can't be read.
    pub fn first_key(&self) -> Result<Option<String>, Fault> {
        self.read("first-key")
    }

    /// Keeps the first API key until it was shown.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep_first_key(&self, secret: &Secret) -> Result<(), Fault> {
        write_private(&self.path.join("first-key"), secret.expose())
    }

    /// Forgets the first API key: it was shown.
    ///
    /// # Errors
    /// When it can't be removed.
    pub fn forget_first_key(&self) -> Result<(), Fault> {
        let path = self.path.join("first-key");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::Write {
                path,
                source: error,
            }),
            _ => Ok(()),
        }
    }

    fn text_or(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<String, Fault>,
    ) -> Result<String, Fault> {
        if let Some(text) = self.read(name)? {
            return Ok(text);
        }
        let text = make()?;
        write_private(&self.path.join(name), &text)?;
        Ok(text)
    }

    fn read(&self, name: &str) -> Result<Option<String>, Fault> {
        let path = self.path.join(name);
        match read_small(&path) {
            Ok(text) if text.is_empty() => Err(Fault::Damaged {
                path,
                problem: "is empty".to_owned(),
            }),
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Fault::Damaged {
                path,
                problem: format!("can't be read: {error}"),
            }),
        }
    }
}

/// Reads a file of one short line.
pub(crate) fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SMALL).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// Writes a file that only its owner may read, whole or not at all.
///
/// # Errors
/// When it can't be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), Fault> {
    let failed = |source| Fault::Write {
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let write = || {
        // A leftover of a crash may have any mode; the new file must have ours from its first byte on.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().map_err(failed)
}

/// 256 random bits as text.
fn random_hex() -> Result<String, Fault> {
    let random = HashingKey::generate().map_err(Fault::Entropy)?;
    Ok(data_encoding::HEXLOWER.encode(random.expose()))
}

/// Where a running control plane's admin API is, in its data directory.
pub const ADMIN_URL_FILE: &str = "admin.url";
/// No file that is read here is larger.
const SMALL: u64 = 4_096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_kept_is_private_and_lasting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let (id, token) = {
            let data = DataDir::open(&path).unwrap();
            data.hashing_key().unwrap();
            (data.server_id().unwrap(), data.admin_token().unwrap())
        };
        let data = DataDir::open(&path).unwrap();
        assert_eq!(data.server_id().unwrap(), id);
        assert_eq!(data.admin_token().unwrap(), token);
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        }
    }

    #[test]
    fn a_directory_is_used_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = DataDir::open(directory.path()).unwrap();
        let second = DataDir::open(directory.path()).unwrap_err();
        assert!(matches!(second, Fault::InUse { .. }), "{second}");
        drop(held);
        DataDir::open(directory.path()).unwrap();
    }

    #[test]
    fn a_damaged_key_is_named_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        fs::write(directory.path().join("hashing.key"), "short").unwrap();
        let error = data.hashing_key().unwrap_err().render();
        assert!(error.contains("hashing.key does not hold 64"), "{error}");
        assert_eq!(
            fs::read_to_string(directory.path().join("hashing.key")).unwrap(),
            "short"
        );
    }
}
