//! A door between the server and its store, which can be shut in two ways.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tokio::{
    io::copy_bidirectional,
    net::{UnixListener, UnixStream},
    sync::watch,
};

/// A socket in front of PostgreSQL's.
#[derive(Debug)]
pub(crate) struct Door {
    shut: watch::Sender<Shut>,
    url: String,
}

/// Whether the store is away, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shut {
    /// It is there.
    No,
    /// Connections break, and new ones are closed at once.
    Cut,
    /// Nothing comes through, and nobody is told.
    Silent,
}

impl Door {
    /// Opens it beneath a directory, in front of the store at this URL.
    pub(crate) fn open(home: &Path, store: &str) -> anyhow::Result<Self> {
        let rest = store
            .strip_prefix("postgres://postgres@")
            .context("another URL")?;
        let (socket, database) = rest.split_once(":5432/").context("another URL")?;
        let behind = PathBuf::from(socket.replace("%2F", "/")).join(SOCKET);
        let listener = UnixListener::bind(home.join(SOCKET))?;
        let (shut, watched) = watch::channel(Shut::No);
        tokio::spawn(accept(listener, behind, watched));
        let home = home.display().to_string().replace('/', "%2F");
        Ok(Self {
            shut,
            url: format!("postgres://postgres@{home}:5432/{database}"),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, shut: Shut) {
        self.shut.send_replace(shut);
    }
}

async fn accept(
    listener: UnixListener,
    behind: PathBuf,
    shut: watch::Receiver<Shut>,
) -> io::Result<()> {
    loop {
        let (front, _) = listener.accept().await?;
        tokio::spawn(pass(front, behind.clone(), shut.clone()));
    }
}

/// Passes bytes on as long as the door is open; waits while it is silent, ends when it is cut.
async fn pass(
    mut front: UnixStream,
    behind: PathBuf,
    mut shut: watch::Receiver<Shut>,
) -> io::Result<()> {
    let mut back: Option<UnixStream> = None;
    loop {
        let now = *shut.borrow_and_update();
        match now {
            Shut::Cut => return Ok(()),
            Shut::Silent => {
                if shut.changed().await.is_err() {
                    return Ok(());
                }
            }
            Shut::No => {
                let back = match &mut back {
                    Some(back) => back,
                    None => back.insert(UnixStream::connect(&behind).await?),
                };
                tokio::select! {
                    _ended = copy_bidirectional(&mut front, back) => return Ok(()),
                    changed = shut.changed() => if changed.is_err() {
                        return Ok(());
                    }
                }
                // What was read and not yet written is lost with the copy: such a connection is of no more use.
                if *shut.borrow() == Shut::Silent {
                    let mut waits = shut.clone();
                    drop(waits.wait_for(|shut| *shut != Shut::Silent).await);
                    return Ok(());
                }
            }
        }
    }
}

/// PostgreSQL's name for its socket.
const SOCKET: &str = ".s.PGSQL.5432";
