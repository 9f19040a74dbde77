//! Main memory: what the kernel has, and what a control group leaves of it.

use std::path::Path;

use llmgw_core::{
    cluster::node::{Memory, NodeFacts, Warning},
    units::Bytes,
};

use super::{
    Probe, Root, Scene,
    cgroup::{Version, directories},
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
            warn(facts, Warning::SWAP_IN_USE, text);
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

/// The limits of the control group that we are in and of all above it.
fn bounds(root: &Root) -> Vec<Bound> {
    let groups = directories(root, "memory").into_iter();
    let dialect = |version| match version {
        Version::One => VERSION_1,
        Version::Two => VERSION_2,
    };
    groups
        .filter_map(|(version, dir)| bound(root, &dir, &dialect(version)))
        .collect()
}

fn bound(root: &Root, dir: &Path, dialect: &Dialect) -> Option<Bound> {
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
}
