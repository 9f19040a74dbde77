//! Main memory: what the kernel has, and what a control group leaves of it.

use std::path::PathBuf;

use llmgw_core::{
    cluster::node::{Memory, NodeFacts},
    units::Bytes,
};

use super::{
    Probe, Root, Scene,
    mounts::{Mount, mounts},
    warn,
};

/// Looks at main memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryProbe;

/// One control group with a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Bound {
    limit: Bytes,
    free: Bytes,
}

/// The files of one version of the memory controller.
struct Dialect {
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` that count the page cache.
    cache: [&'static str; 2],
}

impl Probe for MemoryProbe {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let Some(info) = scene.root.text("proc/meminfo") else {
            return;
        };
        let (Some(mut total), Some(mut free)) =
            (field(&info, "MemTotal"), field(&info, "MemAvailable"))
        else {
            return;
        };
        for bound in bounds(&scene.root) {
            total = total.min(bound.limit);
            free = free.min(bound.free);
        }
        let reserve = Bytes::mib(256).max(Bytes(total.0 / 50));
        facts.memory = Some(Memory {
            total,
            allocatable: (free + scene.held).min(total) - reserve,
        });
        if let Some(text) = swap_warning(&info) {
            warn(facts, "swap_in_use", text);
        }
    }
}

/// A line of `/proc/meminfo`: `MemTotal:       24683652 kB`.
fn field(info: &str, name: &str) -> Option<Bytes> {
    info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        (key == name).then_some(Bytes(kib.saturating_mul(1024)))
    })
}

fn swap_warning(info: &str) -> Option<String> {
    let total = field(info, "SwapTotal")?;
    let used = total - field(info, "SwapFree")?;
    // Less than a tenth is what any machine that is up for long has put aside.
    (used.0 > total.0 / 10).then(|| {
        format!("{used} of {total} swap are in use, so that engines may be slow to answer")
    })
}

/// The limits of the control group that we are in and of all above it, in either version.
fn bounds(root: &Root) -> Vec<Bound> {
    let Some(groups) = root.text("proc/self/cgroup") else {
        return Vec::new();
    };
    let mounts = mounts(root);
    let mut found = Vec::new();
    for line in groups.lines() {
        // `0::/path` in version 2, `9:memory:/path` in version 1.
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mount, dialect) = if controllers.is_empty() {
            (
                mounts.iter().find(|mount| mount.kind == "cgroup2"),
                VERSION_2,
            )
        } else if controllers.split(',').any(|name| name == "memory") {
            let memory = |mount: &&Mount| {
                mount.kind == "cgroup" && mount.options.iter().any(|option| option == "memory")
            };
            (mounts.iter().find(memory), VERSION_1)
        } else {
            continue;
        };
        if let Some(mount) = mount {
            let chain = chain(mount, group);
            found.extend(chain.iter().filter_map(|dir| bound(root, dir, &dialect)));
        }
    }
    found
}

/// The directories of a group and of all above it that can be seen from here.
fn chain(mount: &Mount, group: &str) -> Vec<PathBuf> {
    // In a container the group's name may be the host's, of which only the part beneath the mount's root is
    // visible; or it may lie outside altogether, and then the mount point is the container's own group.
    let group = PathBuf::from(group);
    let inside = group
        .strip_prefix(&mount.root)
        .map(PathBuf::from)
        .unwrap_or_default();
    mount
        .point
        .join(inside)
        .ancestors()
        .take_while(|dir| dir.starts_with(&mount.point))
        .map(PathBuf::from)
        .collect()
}

fn bound(root: &Root, dir: &std::path::Path, dialect: &Dialect) -> Option<Bound> {
    // "max" is no number, and says that there is no limit.
    let number = |name: &str| -> Option<u64> { root.text(dir.join(name))?.trim().parse().ok() };
    let limit = number(dialect.limit)?;
    let used = number(dialect.usage).unwrap_or(0);
    let stat = root.text(dir.join("memory.stat")).unwrap_or_default();
    // The page cache gives way when memory is asked for, as it does in the kernel's MemAvailable.
    let cache: u64 = stat
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            dialect
                .cache
                .contains(&name)
                .then(|| value.trim().parse::<u64>().ok())?
        })
        .sum();
    Some(Bound {
        limit: Bytes(limit),
        free: Bytes(limit) - (Bytes(used) - Bytes(cache)),
    })
}

const VERSION_2: Dialect = Dialect {
    limit: "memory.max",
    usage: "memory.current",
    cache: ["active_file", "inactive_file"],
};

const VERSION_1: Dialect = Dialect {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_active_file", "total_inactive_file"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_reported_from_a_tenth_on() {
        let info = |free: u64| format!("SwapTotal: 1000 kB\nSwapFree: {free} kB\n");
        assert_eq!(swap_warning(&info(900)), None);
        assert!(swap_warning(&info(899)).is_some());
        assert_eq!(swap_warning("SwapTotal: 0 kB\nSwapFree: 0 kB\n"), None);
        assert_eq!(swap_warning(""), None);
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_is_the_mount_itself() {
        let mount = Mount {
            root: "/docker/abc".into(),
            point: "/sys/fs/cgroup/memory".into(),
            kind: "cgroup".into(),
            options: vec!["memory".into()],
        };
        let dirs = |group| chain(&mount, group);
        assert_eq!(dirs("/docker/abc"), vec![mount.point.clone()]);
        assert_eq!(dirs("/elsewhere"), vec![mount.point.clone()]);
        assert_eq!(
            dirs("/docker/abc/job"),
            [mount.point.join("job"), mount.point.clone()]
        );
    }
}
