//! Where an archive is written: a folder that nobody sees before it is whole.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use cap_fs_ext::DirExt as _;
use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt as _, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use rustix::fs::{Mode, OFlags};

use crate::error::ArchiveError;

/// The folder beside the destination in which it grows.
#[derive(Debug)]
pub(super) struct Place {
    destination: PathBuf,
    /// The folder above.
    parent: Dir,
    name: OsString,
    partial_name: OsString,
    partial: Dir,
    /// Held until the end; the system lets go of it when the process dies.
    _lock: File,
}

/// Writes beneath a folder and nowhere else. Every folder on the way is opened by its own name, and must be one.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    root: &'a Dir,
    /// The folders from the root to where the last entry went, which is where the next goes most often.
    open: Vec<(String, Dir)>,
    file: Option<File>,
}

impl Place {
    /// Whether something could be written to `destination`, so that one need not read an archive to learn that it
    /// can't.
    pub(super) fn check(destination: &Path) -> Result<(), ArchiveError> {
        let there = match fs::symlink_metadata(destination) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            there => there.map_err(|source| failed(destination, source))?,
        };
        let is_empty = there.is_dir()
            && fs::read_dir(destination)
                .map_err(|source| failed(destination, source))?
                .next()
                .is_none();
        if is_empty {
            return Ok(());
        }
        Err(taken(destination))
    }

    /// Makes the folder in which the destination grows, empty and for nobody else.
    pub(super) fn make(destination: &Path) -> Result<Self, ArchiveError> {
        let failed = |source| failed(destination, source);
        let Some(name) = destination.file_name() else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it has no name of its own");
            return Err(failed(source));
        };
        let above = match destination.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let parent = Dir::open_ambient_dir(above, ambient_authority()).map_err(failed)?;
        let partial_name = partial_name(name);
        match parent.create_dir_with(&partial_name, DirBuilder::new().mode(PRIVATE)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        }
        let partial = parent.open_dir_nofollow(&partial_name).map_err(failed)?;
        let lock = readable(&partial).map_err(failed)?;
        let busy = || ArchiveError::Busy {
            destination: destination.to_owned(),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let place = Self {
            destination: destination.to_owned(),
            parent,
            name: name.to_owned(),
            partial_name,
            partial,
            _lock: lock,
        };
        // Whoever had the lock before may have put the folder in its place, or removed it.
        if !place.is_ours().map_err(failed)? {
            return Err(busy());
        }
        place.clear().map_err(failed)?;
        Ok(place)
    }

    pub(super) fn writing(&self) -> Writing<'_> {
        Writing {
            root: &self.partial,
            open: Vec::new(),
            file: None,
        }
    }

    /// Puts the folder where it belongs, once it is on the disk.
    pub(super) fn settle(self) -> Result<(), ArchiveError> {
        let settled = self.sync_and_rename();
        settled.map_err(|source| {
            let error = match source.kind() {
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
                    taken(&self.destination)
                }
                _ => failed(&self.destination, source),
            };
            self.abandon(error)
        })
    }

    /// Removes what was written, and says why.
    pub(super) fn abandon(self, error: ArchiveError) -> ArchiveError {
        let removed = match self.is_ours() {
            Ok(true) => self.parent.remove_dir_all(&self.partial_name),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => error,
            Err(_) => ArchiveError::Left {
                partial: self.destination.with_file_name(&self.partial_name),
                source: Box::new(error),
            },
        }
    }

    fn sync_and_rename(&self) -> io::Result<()> {
        let partial = readable(&self.partial)?;
        partial.set_permissions(Permissions::from_mode(FOLDER))?;
        // One order for thousands of files: on most file systems each of its own would write the journal.
        rustix::fs::syncfs(&partial)?;
        // Takes the place of an empty folder, and of nothing else.
        self.parent
            .rename(&self.partial_name, &self.parent, &self.name)?;
        readable(&self.parent)?.sync_all()
    }

    /// Whether the folder that is open is the one that stands there under its name.
    fn is_ours(&self) -> io::Result<bool> {
        let open = self.partial.dir_metadata()?;
        let there = match self.parent.open_dir_nofollow(&self.partial_name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?.dir_metadata()?,
        };
        Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
    }

    /// Removes what a process that was killed has left.
    fn clear(&self) -> io::Result<()> {
        for entry in self.partial.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                self.partial.remove_dir_all(&name)?;
            } else {
                self.partial.remove_file(&name)?;
            }
        }
        Ok(())
    }
}

impl Writing<'_> {
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.enter(Some(path)).map(drop)
    }

    /// Makes a file, which [`append`](Self::append) then writes to.
    pub(super) fn file(&mut self, path: &str, executable: bool) -> io::Result<()> {
        let (above, name) = split(path);
        let folder = self.enter(above)?;
        let options = OpenOptions::new()
            .write(true)
            // Fails when anything stands there, a link too.
            .create_new(true)
            .mode(PRIVATE)
            .clone();
        let file = folder.open_with(name, &options)?.into_std();
        let mode = if executable { PROGRAM } else { FILE };
        // Not as the mode of opening: the process may mask that.
        file.set_permissions(Permissions::from_mode(mode))?;
        self.file = Some(file);
        Ok(())
    }

    pub(super) fn append(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(chunk),
            None => Err(io::Error::other("no file is open")),
        }
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let (above, name) = split(path);
        // The target was resolved against the whole archive; it is written as it stands there.
        self.enter(above)?.symlink_contents(target, name)
    }

    /// The folder `path`, made when there is none, and each one above it.
    fn enter(&mut self, path: Option<&str>) -> io::Result<&Dir> {
        let parts: Vec<&str> = path.into_iter().flat_map(|path| path.split('/')).collect();
        let same = self
            .open
            .iter()
            .zip(&parts)
            .take_while(|((open, _), part)| open == *part)
            .count();
        self.open.truncate(same);
        for part in parts.into_iter().skip(same) {
            let above = self.open.last().map_or(self.root, |(_, folder)| folder);
            let made = above.create_dir_with(part, DirBuilder::new().mode(PRIVATE));
            let is_new = match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                made => made.map(|()| true)?,
            };
            let folder = above.open_dir_nofollow(part)?;
            if is_new {
                readable(&folder)?.set_permissions(Permissions::from_mode(FOLDER))?;
            }
            self.open.push((part.to_owned(), folder));
        }
        Ok(self.open.last().map_or(self.root, |(_, folder)| folder))
    }
}

/// The folder that is renamed to `name` when it is whole.
fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(".partial");
    partial
}

/// A directory handle in which one can do more than look up names.
fn readable(folder: &Dir) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, ".", flags, Mode::empty())?;
    Ok(File::from(folder))
}

fn split(path: &str) -> (Option<&str>, &str) {
    match path.rsplit_once('/') {
        Some((above, name)) => (Some(above), name),
        None => (None, path),
    }
}

fn failed(destination: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Destination {
        destination: destination.to_owned(),
        source,
    }
}

fn taken(destination: &Path) -> ArchiveError {
    ArchiveError::Taken {
        destination: destination.to_owned(),
    }
}

/// Modes: while it grows, and in the end.
const PRIVATE: u32 = 0o700;
const FOLDER: u32 = 0o755;
const FILE: u32 = 0o644;
const PROGRAM: u32 = 0o755;
