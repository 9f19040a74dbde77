//! Where the agent may make control groups.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::Access, io::Errno};

use super::{
    CgroupError, Cgroups,
    files::{absent, group_processes, is, make, put, words},
};
use crate::{
    durable,
    facts::{
        Root,
        mounts::{Mount, mounts},
    },
};

impl Cgroups {
    /// Makes the place for the groups of the replicas of one agent, beneath the group that this process is in.
    /// When the kernel wants no processes beside limited groups, and this process is alone in its group, it
    /// moves to one beneath, named [`AGENT_GROUP`].
    ///
    /// # Errors
    /// When the machine has no such groups, or this process may not make them.
    pub fn detect(data_dir: &Path) -> Result<Self, CgroupError> {
        let root = Root::system();
        let groups = root.text("proc/self/cgroup").unwrap_or_default();
        let own = own_group(&groups, &mounts(&root))?;
        Self::beneath(&own, data_dir)
    }

    /// Whether the kernel would hold replicas to their memory beneath the group that this process is in, as far as
    /// that can be told without making anything there.
    ///
    /// # Errors
    /// When it would not: why.
    pub fn outlook() -> Result<(), CgroupError> {
        let root = Root::system();
        let groups = root.text("proc/self/cgroup").unwrap_or_default();
        let path = own_group(&groups, &mounts(&root))?;
        offers_memory(path)
    }

    /// The same beneath a group that the caller names, and that the agent may write to.
    ///
    /// # Errors
    /// When this process may not make groups there.
    pub fn beneath(own: &Path, data_dir: &Path) -> Result<Self, CgroupError> {
        let own = match own.parent() {
            Some(above) if own.ends_with(AGENT_GROUP) => above,
            _ => own,
        };
        let parent = own.join(format!("llmgw-{:016x}", tag(data_dir)));
        make(&parent).map_err(|source| CgroupError::Refused {
            path: own.to_owned(),
            source,
        })?;
        // A directory that was made where no control groups are would be a heap of files.
        let listed = parent.join("cgroup.procs");
        if let Err(source) = fs::metadata(&listed) {
            drop(fs::remove_dir(&parent));
            return Err(CgroupError::Refused {
                path: listed,
                source,
            });
        }
        enable(own);
        enable(&parent);
        let enabled = words(&parent.join("cgroup.subtree_control"));
        let cgroups = Self {
            memory: enabled.contains("memory"),
            pids: enabled.contains("pids"),
            earlier: remembered(data_dir, &parent),
            parent,
        };
        cgroups.remember(data_dir);
        Ok(cgroups)
    }

    /// Writes down where the groups are, for lives of the agent that begin elsewhere.
    fn remember(&self, data_dir: &Path) {
        let mut text = Vec::new();
        for parent in std::iter::once(&self.parent).chain(&self.earlier) {
            text.extend_from_slice(parent.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let path = data_dir.join(REMEMBERED);
        if durable::read(&path, durable::SMALL).is_ok_and(|before| before == text) {
            return;
        }
        if let Err(error) = durable::write(&path, &text) {
            // Processes that keep their environment are still found by it.
            tracing::warn!(%error, "where the control groups are could not be written down");
        }
    }
}

/// The places of earlier lives that are still there.
fn remembered(data_dir: &Path, current: &Path) -> Vec<PathBuf> {
    let text = durable::read_text(&data_dir.join(REMEMBERED), durable::SMALL).unwrap_or_default();
    let places: BTreeSet<PathBuf> = text
        .lines()
        .map(PathBuf::from)
        .filter(|place| place != current && place.join("cgroup.procs").is_file())
        .collect();
    places.into_iter().take(PLACES).collect()
}

/// The directory of the group that this process is in.
fn own_group(groups: &str, mounts: &[Mount]) -> Result<PathBuf, CgroupError> {
    // The line of version 2 is the one without a number and without controllers.
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let mount = mounts.iter().rfind(|mount| mount.kind == "cgroup2");
    let (Some(own), Some(mount)) = (own, mount) else {
        return Err(CgroupError::Absent);
    };
    let elsewhere = || CgroupError::Elsewhere {
        own: own.to_owned(),
    };
    // A container may see a part of the tree alone.
    let inside = Path::new(own)
        .strip_prefix(&mount.root)
        .map_err(|_| elsewhere())?;
    if inside.components().any(|part| part.as_os_str() == "..") {
        return Err(elsewhere());
    }
    Ok(mount.point.join(inside))
}

/// Whether groups with limits of memory can be made beneath `path`.
fn offers_memory(path: PathBuf) -> Result<(), CgroupError> {
    if !words(&path.join("cgroup.controllers")).contains("memory") {
        return Err(CgroupError::Uncounted { path });
    }
    match rustix::fs::access(&path, Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(error) => Err(CgroupError::Refused {
            path,
            source: error.into(),
        }),
    }
}

/// Asks the kernel to count and limit in the groups beneath `group`. What it refuses is not limited.
pub(super) fn enable(group: &Path) {
    let offered = words(&group.join("cgroup.controllers"));
    let control = group.join("cgroup.subtree_control");
    for controller in CONTROLLERS {
        if !offered.contains(controller) || words(&control).contains(controller) {
            continue;
        }
        let enable = || put(&control, &format!("+{controller}"));
        let enabled = match enable() {
            Err(error) if is(&error, Errno::BUSY) && step_aside(group) => enable(),
            enabled => enabled,
        };
        if let Err(error) = enabled {
            tracing::info!(group = %group.display(), controller, %error, "not limited");
        }
    }
}

/// Moves this process out of a group that is to have none of its own. Says whether it did.
fn step_aside(group: &Path) -> bool {
    let us = std::process::id();
    if group_processes(group).ok() != Some(BTreeSet::from([us])) {
        return false;
    }
    let aside = group.join(AGENT_GROUP);
    make(&aside)
        .and_then(|()| put(&aside.join("cgroup.procs"), &us.to_string()))
        .inspect_err(|error| {
            if !absent(error) {
                tracing::info!(group = %aside.display(), %error, "can't move there");
            }
        })
        .is_ok()
}

/// A number for a data directory, the same in every life of its agent: FNV-1a, 64 bits
/// (draft-eastlake-fnv, section 2), of the path.
fn tag(data_dir: &Path) -> u64 {
    let bytes = data_dir.as_os_str().as_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Where the agent goes when its own group is to have no processes; the name to give to `DelegateSubgroup=`.
pub const AGENT_GROUP: &str = "llmgw-agent";

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// In the data directory: where this and earlier lives of the agent have made groups, a line each.
const REMEMBERED: &str = "cgroups";

/// More places than these were never in use at the same time.
const PLACES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str) -> Vec<Mount> {
        vec![Mount {
            root: root.into(),
            point: "/sys/fs/cgroup".into(),
            kind: "cgroup2".into(),
            source: "cgroup2".into(),
            options: Vec::new(),
        }]
    }

    #[test]
    fn the_own_group_is_found_in_hybrid_trees_and_in_containers() {
        let unit = "4:memory:/x\n0::/system.slice/llmgw.service\n";
        let found = own_group(unit, &mount("/")).unwrap();
        assert_eq!(
            found,
            Path::new("/sys/fs/cgroup/system.slice/llmgw.service")
        );
        let found = own_group("0::/docker/a/b\n", &mount("/docker/a")).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/b"));
        for (groups, mounts, problem) in [
            ("4:memory:/x\n", mount("/"), "version 2"),
            ("0::/\n", Vec::new(), "version 2"),
            ("0::/other\n", mount("/docker/a"), "/other"),
            ("0::/../other\n", mount("/"), "/../other"),
        ] {
            let error = own_group(groups, &mounts).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn a_group_without_the_memory_controller_or_the_right_to_write_is_told_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let error = offers_memory(path.clone()).unwrap_err();
        assert!(matches!(error, CgroupError::Uncounted { .. }), "{error}");
        fs::write(path.join("cgroup.controllers"), "cpu pids\n").unwrap();
        assert!(offers_memory(path.clone()).is_err());
        fs::write(path.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        offers_memory(path).unwrap();
    }

    #[test]
    fn a_directory_without_control_groups_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Cgroups::beneath(dir.path(), dir.path()).unwrap_err();
        assert!(error.to_string().contains("cgroup.procs"), "{error}");
    }
}
