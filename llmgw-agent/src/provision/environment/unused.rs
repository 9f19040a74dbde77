//! Environments of earlier locks, which have gigabytes each.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Removes the environments beside `kept` that no process is run from.
///
/// An engine of an earlier lock may still serve: its interpreter, and those that it starts, carry the path of their
/// environment in their command lines. What can't be removed is told in the log, and tried again after the next one.
pub(super) fn remove(kept: &Path) {
    let Some(parent) = kept.parent() else {
        return;
    };
    let commands = commands();
    for path in others(parent, kept) {
        if is_used(&path, &commands) {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "an old environment is removed"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "an old environment can't be removed");
            }
        }
    }
}

fn others(parent: &Path, kept: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path != kept)
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(super::ENVIRONMENT))
        })
        .collect()
}

/// The command lines of all processes that may be looked at.
fn commands() -> Vec<Vec<u8>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| command(&process.path()))
        .collect()
}

/// The command line of a process. For a moment after it became another program it has none, and then is looked at again:
/// it may be an engine that starts.
fn command(process: &Path) -> Option<Vec<u8>> {
    let read = || fs::read(process.join("cmdline")).ok();
    let mut command = read()?;
    for _ in 0..LOOKS {
        // The kernel's own threads, and what has ended, have no program either.
        if !command.is_empty() || fs::read_link(process.join("exe")).is_err() {
            break;
        }
        std::thread::yield_now();
        command = read()?;
    }
    Some(command)
}

/// Some processes have no command line on purpose.
const LOOKS: u32 = 1_000;

fn is_used(environment: &Path, commands: &[Vec<u8>]) -> bool {
    // With what follows it, so that no other's name begins with it.
    let mut path = environment.as_os_str().as_encoded_bytes().to_vec();
    path.push(b'/');
    commands
        .iter()
        .any(|command| command.windows(path.len()).any(|part| part == path))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_what_no_process_is_run_from_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = home.path().join(name);
            fs::create_dir_all(path.join("venv")).unwrap();
            path
        };
        let kept = made("environment-2-b");
        let (old, used) = (made("environment-1-a"), made("environment-1-c"));
        let other = made(".uv-cache");
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read line"])
            .arg(used.join("venv/bin/python"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        remove(&kept);
        let left = [&kept, &used, &other].map(|path| path.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((left, old.exists()), ([true; 3], false));
    }
}
