//! The kernel's files of a control group.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// Writes to a file of the kernel, which exists or does not: none is made.
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Makes a group; it may be there.
pub(super) fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The number that a file holds alone; `None` for `max`, and for a file that is not there.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name, in a file of lines of names and numbers.
pub(super) fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// The words of a file such as `cgroup.controllers`.
pub(super) fn words(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The processes of one group, without those beneath.
pub(super) fn group_processes(group: &Path) -> io::Result<BTreeSet<u32>> {
    match fs::read_to_string(group.join("cgroup.procs")) {
        // Zero stands for a process of a namespace that is not seen from here.
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| line.parse().ok())
            .filter(|pid| *pid != 0)
            .collect()),
        // A group of threads lists its processes in the group above.
        Err(error) if absent(&error) || is(&error, Errno::OPNOTSUPP) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// A group and all beneath it, from the top down.
pub(super) fn groups_beneath(group: &Path) -> io::Result<Vec<PathBuf>> {
    let mut groups = vec![group.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next).cloned() {
        next += 1;
        let entries = match fs::read_dir(&group) {
            Err(error) if absent(&error) => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() && groups.len() < GROUPS {
                groups.push(entry.path());
            }
        }
    }
    Ok(groups)
}

/// Whether an error says that the file or the group is not there (any more).
pub(super) fn absent(error: &io::Error) -> bool {
    is(error, Errno::NOENT) || is(error, Errno::NODEV)
}

pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Far more than an engine makes; the kernel kills deeper ones with the rest.
const GROUPS: usize = 1_000;
