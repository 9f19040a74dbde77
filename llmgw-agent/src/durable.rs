//! Small files that are whole at every moment: the old one or the new one, whenever the power fails.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use llmgw_core::units::Bytes;
use rustix::fs::OFlags;
use tokio::task::spawn_blocking;

/// Puts `bytes` in the place of the file at `path`, readable by its owner alone.
///
/// The bytes go to a file beside it, are brought to the disk, and then take its name; the name is brought to
/// the disk too. A leftover of an interrupted write is overwritten by the next.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path
        .parent()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(BESIDE);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(never_waits())
        .open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(dir)?.sync_all()
}

/// Reads the file at `path`, which has at most `most` bytes.
///
/// # Errors
/// When it is no file: a pipe would keep the reader until somebody writes to it. When it is larger: it is none that
/// the agent has written, and is not read.
pub(crate) fn read(path: &Path, most: Bytes) -> io::Result<Vec<u8>> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(never_waits())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is {}, and no file", what(found.file_type())),
        ));
    }
    let too_large = |size: String| {
        let line = format!("it has {size}, and {most} at most are expected");
        io::Error::new(io::ErrorKind::FileTooLarge, line)
    };
    if found.len() > most.0 {
        return Err(too_large(Bytes(found.len()).to_string()));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile, or not have said its size.
    file.take(most.0.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most.0 {
        return Err(too_large(format!("more than {most}")));
    }
    Ok(bytes)
}

/// As [`read`], on a thread that may be kept by a disk.
///
/// # Errors
/// As [`read`].
pub(crate) async fn read_aside(path: PathBuf, most: Bytes) -> io::Result<Vec<u8>> {
    spawn_blocking(move || read(&path, most))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// As [`read`], for a file of text.
///
/// # Errors
/// As [`read`], and when it is no text.
pub(crate) fn read_text(path: &Path, most: Bytes) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Removes the file at `path`, for good; it may be gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// With this flag of open(2), a pipe that nobody holds at its other end is answered at once. Files know no
/// waiting.
pub(crate) fn never_waits() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

fn what(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// More than a number, a record with a path in it, or a script of ours has.
pub(crate) const SMALL: Bytes = Bytes(64 << 10);

/// The end of the name under which a file is written before it gets its own.
pub(crate) const BESIDE: &str = ".new";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_no_file_or_too_large_is_said_and_neither_waited_for_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let pipe = |name: &str| {
            let made = std::process::Command::new("mkfifo")
                .arg(path(name))
                .status();
            assert!(made.unwrap().success());
        };
        pipe("pipe");
        fs::create_dir(path("directory")).unwrap();
        // A gigabyte of nothing, which takes no room.
        let large = fs::File::create(path("large")).unwrap();
        large.set_len(1 << 30).unwrap();
        fs::write(path("small"), "small").unwrap();
        let said = |name: &str| read(&path(name), SMALL).unwrap_err().to_string();
        assert_eq!(said("pipe"), "it is a pipe, and no file");
        assert_eq!(said("directory"), "it is a directory, and no file");
        assert_eq!(
            said("large"),
            "it has 1.0 GiB, and 64.0 KiB at most are expected"
        );
        assert_eq!(
            read(Path::new("/dev/zero"), SMALL).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        // Files of the kernel say that they have nothing.
        assert!(
            !read(Path::new("/proc/self/stat"), SMALL)
                .unwrap()
                .is_empty()
        );
        assert_eq!(read_text(&path("small"), Bytes(5)).unwrap(), "small");
        assert!(read(&path("small"), Bytes(4)).is_err());
        // And none is written to.
        pipe("small.new");
        assert!(write(&path("small"), b"other").is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(dir.path().join("a.json.new"), "half of an interru").unwrap();
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
