//! Why a start failed: one line for people, a hint, an exit code.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use llmgw_core::{
    error::{Chain, Coded},
    fetch::FetchError,
    gateway::SpoolError,
    keys::EntropyError,
    store::StoreError,
};
use llmgw_sched::controller::ControllerError;

/// Why a server could not be started, or ended with a failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The data directory can't be used.
    #[error("the data directory {} can't be used", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process uses the data directory.
    #[error("another llmgw runs in {}", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// A file in the data directory is not what it should be.
    #[error("{} {problem}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The address can't be listened on.
    #[error("can't listen on {address} for {what}")]
    Listen {
        /// What was to listen.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The address can be reached from other machines, and what listens there is not protected.
    #[error("{what} may not listen on {address}: {why}")]
    NotLoopback {
        /// What was to listen.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        why: &'static str,
    },
    /// The downloader can't be set up.
    #[error("the downloader can't be set up")]
    Fetcher(#[source] FetchError),
    /// The store can't be opened.
    #[error("the store can't be opened")]
    Store(#[source] StoreError),
    /// Usage can't be kept on the disk.
    #[error("usage can't be kept on the disk")]
    Usage(#[source] SpoolError),
    /// The controller could not be built.
    #[error("the control plane can't start")]
    Controller(#[source] ControllerError),
    /// The settings can't be right.
    #[error("{origin}: {problem}")]
    Settings {
        /// The file or the flag.
        origin: String,
        /// What is wrong, and where.
        problem: String,
        /// What would help.
        hint: Option<String>,
    },
    /// The control loop has ended by itself.
    #[error("the control loop has failed; what it said last stands above")]
    Broken,
    /// The operating system gave no random bytes.
    #[error("a secret can't be made")]
    Entropy(#[source] EntropyError),
    /// Signals can't be listened for.
    #[error("listening for signals")]
    Signals(#[source] io::Error),
    /// A file could not be written.
    #[error("writing {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Fault {
    /// What would help.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::DataDir { .. } => {
                Some("choose a directory that you may write to: --data-dir DIR".to_owned())
            }
            Self::InUse { .. } => {
                Some("stop it first, or choose another directory: --data-dir DIR".to_owned())
            }
            Self::Damaged { path, .. } => Some(format!(
                "restore it from a backup; or remove {} and what was made with it is void",
                path.display()
            )),
            Self::Listen { what, source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Some(format!(
                    "another program has that port; choose one with {}, or port 0 for any",
                    listen_flag(what)
                )),
                _ => Some(format!(
                    "choose an address of this machine with {}",
                    listen_flag(what)
                )),
            },
            Self::NotLoopback { what, .. } => Some(format!(
                "listen on 127.0.0.1 or [::1]: {}",
                listen_flag(what)
            )),
            Self::Settings { hint, .. } => hint.clone(),
            Self::Write { path, source } => unwritable(path, source),
            Self::Controller(ControllerError::AnotherLeads(_)) => {
                Some("several control planes on one store are not part of this release".to_owned())
            }
            Self::Store(error) | Self::Controller(ControllerError::Store(error)) => {
                store_hint(error)
            }
            Self::Usage(error) => error.hint(),
            Self::Broken => Some("start again; what was stored is kept".to_owned()),
            Self::Fetcher(_) | Self::Controller(_) | Self::Entropy(_) | Self::Signals(_) => None,
        }
    }

    /// Whether the caller wrote something that can't be right.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NotLoopback { .. } | Self::Settings { .. })
    }

    /// The same, when it is of what the cluster's document of this version says, or of what it stands over: with what helps
    /// when it can't be mended.
    #[must_use]
    pub(crate) fn with_document(self, version: u64) -> Self {
        match self {
            Self::Settings {
                origin,
                problem,
                hint,
            } if version > 0 => Self::Settings {
                origin: origin.replacen(
                    "document",
                    &format!("the settings in the store (version {version})"),
                    1,
                ),
                problem,
                hint: Some(format!(
                    "{}; or start with --without-stored-settings, and mend them",
                    hint.as_deref()
                        .unwrap_or("put back what was changed in the file or the flags")
                )),
            },
            other => other,
        }
    }

    /// 2 for what the caller wrote wrongly, 1 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        if self.is_usage() {
            ExitCode::from(2)
        } else {
            ExitCode::FAILURE
        }
    }

    /// The lines for people: what happened, with all causes, and the hint.
    #[must_use]
    pub fn render(&self) -> String {
        let error = format!("error: {}", Chain(self));
        match self.hint() {
            Some(hint) => format!("{error}\nhint: {hint}"),
            None => error,
        }
    }
}

fn store_hint(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Unreadable { .. } => Some(
            "restore the store from a backup; or start with an empty one (move the database file away, with those \
             beside it that end in -wal and -shm), without the models that were added, the API keys, the usage and \
             the audit log that are in it"
                .to_owned(),
        ),
        error if is_full(error) => {
            Some("make room on the disk of the store, and start again".to_owned())
        }
        error => error.hint(),
    }
}

/// Whether SQLite says that the disk is full, in one of its ways: SQLITE_FULL, or SQLITE_IOERR_SHMSIZE when not
/// even the index of its log can grow.
fn is_full(error: &StoreError) -> bool {
    let text = Chain(error).to_string();
    text.contains("(13)") || text.contains("(4874)")
}

/// What would help when `path` can't be written; `None` when nobody knows.
fn unwritable(path: &Path, error: &io::Error) -> Option<String> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."))
        .display();
    match error.kind() {
        io::ErrorKind::NotFound => Some(format!(
            "make the directory {directory} first, or name a file elsewhere"
        )),
        io::ErrorKind::NotADirectory => Some(format!("{directory} is no directory")),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(format!(
            "you may not write in {directory}: change that, or name a file elsewhere"
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some(format!("make room on the disk of {directory}"))
        }
        _ => None,
    }
}

fn listen_flag(what: &str) -> &'static str {
    match what {
        CLIENTS => "--listen ADDRESS:PORT",
        ADMIN => "--admin-listen ADDRESS:PORT",
        _ => "--cluster-listen ADDRESS:PORT",
    }
}

/// The gateway's listener.
pub const CLIENTS: &str = "clients";
/// The admin API's listener.
pub const ADMIN: &str = "the admin API";
/// The agents' listener.
pub const AGENTS: &str = "agents";
