//! Installations that nobody uses any more, removed.
//!
//! The current one stays, and the one before it, so that going back costs nothing. One that a process runs from
//! stays too, whoever started that process.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::{Shop, marker, wipe};
use crate::durable;

#[derive(Deserialize)]
struct Dated {
    installed_at: i64,
}

/// Removes installations beside `current` but the newest other and those in use.
pub(super) async fn prune(current: &Path, shop: &Shop) {
    let Some(parent) = current.parent().map(Path::to_owned) else {
        return;
    };
    let (looked_at, kept) = (parent.clone(), current.to_owned());
    let unused = spawn_blocking(move || unused(&looked_at, &kept)).await;
    let Ok(Ok(unused)) = unused else {
        return;
    };
    for directory in unused {
        match wipe(&directory, shop).await {
            Ok(()) => tracing::info!(path = %directory.display(), "an unused engine is removed"),
            Err(error) => tracing::warn!(%error, "an unused engine is left"),
        }
    }
}

fn unused(parent: &Path, current: &Path) -> io::Result<Vec<PathBuf>> {
    let mut others = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && path != current && entry.file_type()?.is_dir() {
            others.push((installed_at(&path), path));
        }
    }
    others.sort();
    let previous = others
        .last()
        .filter(|(at, _)| at.is_some())
        .map(|(_, path)| path.clone());
    let used = in_use(&others.iter().map(|(_, path)| path.as_path()).collect());
    Ok(others
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| Some(path) != previous.as_ref() && !used.contains(path))
        .collect())
}

fn installed_at(directory: &Path) -> Option<i64> {
    let json = durable::read(&directory.join(marker::NAME), marker::MAX_MARKER).ok()?;
    serde_json::from_slice::<Dated>(&json)
        .ok()
        .map(|dated| dated.installed_at)
}

/// The directories that a running process has its program in, or names in its command line.
fn in_use(directories: &BTreeSet<&Path>) -> BTreeSet<PathBuf> {
    let mut used = BTreeSet::new();
    let Ok(processes) = fs::read_dir("/proc") else {
        // Not knowing is no reason to remove anything.
        return directories.iter().map(|path| (*path).to_owned()).collect();
    };
    for process in processes.flatten() {
        let path = process.path();
        let program = fs::read_link(path.join("exe")).unwrap_or_default();
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        for directory in directories {
            let named = command.split(|byte| *byte == 0).any(|word| {
                word.strip_prefix(directory.as_os_str().as_bytes())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            });
            if named || program.starts_with(directory) {
                used.insert((*directory).to_owned());
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Child, Command, Stdio},
    };

    use super::*;

    #[test]
    fn the_current_the_previous_and_the_used_stay() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        for (name, at) in [("b1", 1), ("b2", 2), ("b3", 3), ("b4", 4), (".trash-1", 5)] {
            fs::create_dir(path(name)).unwrap();
            let text = format!(r#"{{"installed_at":{at},"other":[]}}"#);
            fs::write(path(name).join(marker::NAME), text).unwrap();
        }
        fs::create_dir(path("half")).unwrap();
        let mut running = Command::new("/bin/sleep")
            .arg("1000")
            .arg0(path("b1").join("llama-server"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_name(&running);
        let gone = unused(parent.path(), &path("b4")).unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(gone, [path("half"), path("b2")]);
    }

    /// A process that was just started has no command line for a moment.
    fn wait_for_name(running: &Child) {
        let line = format!("/proc/{}/cmdline", running.id());
        while fs::read(&line).unwrap().is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_goes_by_another_name_keeps_its_directory_and_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path().canonicalize().unwrap();
        let path = |name: &str| parent.join(name);
        for name in ["b1", "b10", "b100", "b2", "b9"] {
            fs::create_dir(path(name)).unwrap();
        }
        // Written by a child: a descriptor of ours, inherited by another test's child, would keep it busy.
        let program = path("b10").join("llama-server");
        let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
        assert!(copied.unwrap().success());
        let mut by_program = Command::new(&program)
            .arg("1000")
            .arg0("sleep")
            .spawn()
            .unwrap();
        let mut by_name = Command::new("/bin/sleep")
            .arg("1000")
            .arg0(path("b100").join("llama-server"))
            .spawn()
            .unwrap();
        wait_for_name(&by_program);
        wait_for_name(&by_name);
        // None of the others was ever finished, so that none of them is the one before.
        let gone = unused(&parent, &path("b2")).unwrap();
        for running in [&mut by_program, &mut by_name] {
            running.kill().unwrap();
            running.wait().unwrap();
        }
        assert_eq!(gone, [path("b1"), path("b9")]);
    }
}
