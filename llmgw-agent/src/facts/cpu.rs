//! The processor.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use llmgw_core::cluster::node::{Cpu, NodeFacts, Warning};

use super::{
    Probe, Root, Scene,
    cgroup::{Version, directories},
    warn,
};

/// Looks at the processor.
#[derive(Debug, Default)]
pub struct CpuProbe {
    /// What was read while these processors were online: on a large machine `/proc/cpuinfo` has a megabyte, and
    /// the kernel makes it anew for every reader.
    known: Mutex<Option<(String, Processors)>>,
}

/// The machine's processors.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Processors {
    /// How many are online.
    logical: u32,
    physical: Option<u32>,
    features: Vec<String>,
}

impl Probe for CpuProbe {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let Some(found) = self.processors(&scene.root) else {
            return;
        };
        let Processors {
            logical,
            physical,
            features,
        } = found;
        if scene.arch == "x86_64" && !features.iter().any(|feature| feature == "avx2") {
            warn(
                facts,
                Warning::NO_AVX2,
                "the processor has no AVX2, so that engines run slowly or not at all; a virtual machine \
                 needs the CPU type host"
                    .to_owned(),
            );
        }
        facts.cpu = Some(Cpu {
            cores: usable(&scene.root, logical),
            physical,
            features,
        });
    }
}

impl CpuProbe {
    fn processors(&self, root: &Root) -> Option<Processors> {
        let online = root.line("sys/devices/system/cpu/online");
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(online), Some((when, processors))) = (&online, known.as_ref())
            && online == when
        {
            return Some(processors.clone());
        }
        let text = root.text("proc/cpuinfo")?;
        let processors = Processors {
            logical: logical(&text)?,
            physical: physical(&text).or_else(|| physical_by_topology(root)),
            features: features(&text)?,
        };
        *known = online.map(|online| (online, processors.clone()));
        Some(processors)
    }
}

/// The number of processors; `None` when none is listed.
fn logical(cpuinfo: &str) -> Option<u32> {
    let processors = cpuinfo
        .lines()
        .filter(|line| {
            line.split_once(':')
                .is_some_and(|(key, _)| key.trim() == "processor")
        })
        .count();
    u32::try_from(processors).ok().filter(|count| *count > 0)
}

/// The number of different cores; `None` where processors don't say to which they belong, as on arm64.
fn physical(cpuinfo: &str) -> Option<u32> {
    let mut cores = BTreeSet::new();
    let mut package = None;
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "physical id" => package = Some(value.trim()),
            "core id" => {
                cores.insert((package?, value.trim()));
            }
            _ => {}
        }
    }
    u32::try_from(cores.len()).ok().filter(|count| *count > 0)
}

/// The same from `/sys`, where arm64 says it.
fn physical_by_topology(root: &Root) -> Option<u32> {
    let is_processor = |name: &str| {
        name.strip_prefix("cpu")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let names = root.names("sys/devices/system/cpu", is_processor)?;
    let cores: Option<BTreeSet<(String, String)>> = names
        .iter()
        .map(|name| {
            let topology = format!("sys/devices/system/cpu/{name}/topology");
            let package = root.line(format!("{topology}/physical_package_id"))?;
            Some((package, root.line(format!("{topology}/core_id"))?))
        })
        .collect();
    u32::try_from(cores?.len()).ok().filter(|count| *count > 0)
}

/// How many of the processors this process may use: those that it may be scheduled on, and no more than the quota
/// of its control groups, of which a fraction of a core does not count, and one core always does.
fn usable(root: &Root, logical: u32) -> u32 {
    let allowed = root.text("proc/self/status").and_then(|status| {
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        count(list.trim())
    });
    let mut cores = logical.min(allowed.unwrap_or(logical));
    for (version, dir) in directories(root, "cpu") {
        let quota = match version {
            // `max 100000` says that there is no limit.
            Version::Two => root.line(dir.join("cpu.max")).and_then(|line| {
                let (quota, period) = line.split_once(' ')?;
                whole(quota.parse().ok()?, period.trim().parse().ok()?)
            }),
            // -1 is no number here, and says the same.
            Version::One => root
                .number(dir.join("cpu.cfs_quota_us"))
                .zip(root.number(dir.join("cpu.cfs_period_us")))
                .and_then(|(quota, period)| whole(quota, period)),
        };
        cores = cores.min(quota.unwrap_or(cores));
    }
    cores.max(1)
}

fn whole(quota: u64, period: u64) -> Option<u32> {
    Some(u32::try_from(quota.checked_div(period)?).unwrap_or(u32::MAX))
}

/// The length of a list such as `0-3,8,10-11`.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// What all processors have in common, of what engines care about; `None` when no processor says any flag.
fn features(cpuinfo: &str) -> Option<Vec<String>> {
    let mut common: Option<BTreeSet<&str>> = None;
    for line in cpuinfo.lines() {
        let Some((key, flags)) = line.split_once(':') else {
            continue;
        };
        // `flags` on x86, `Features` on arm64.
        if !matches!(key.trim(), "flags" | "Features") {
            continue;
        }
        let flags: BTreeSet<&str> = flags
            .split_whitespace()
            .filter(|flag| CARED_FOR.contains(flag))
            .collect();
        common = Some(match common {
            None => flags,
            Some(before) => before.intersection(&flags).copied().collect(),
        });
    }
    common.map(|flags| flags.into_iter().map(str::to_owned).collect())
}

/// The extensions that builds of inference engines are made for.
const CARED_FOR: &[&str] = &[
    "amx_bf16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "asimddp",
    "asimdhp",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512f",
    "avx512vbmi",
    "avx512vl",
    "avx_vnni",
    "bf16",
    "bmi2",
    "f16c",
    "fma",
    "i8mm",
    "sse4_2",
    "sve",
    "sve2",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_core_has_counts() {
        let info = "processor\t: 0\nflags\t\t: fpu avx avx2 avx512f\n\nprocessor\t: 1\nflags\t\t: fpu avx2 avx\n";
        assert_eq!(features(info).unwrap(), ["avx", "avx2"]);
    }

    #[test]
    fn two_threads_are_one_core_and_equal_numbers_of_two_packages_are_two() {
        let thread = |package: u32, core: u32| {
            format!("processor : 0\nphysical id : {package}\ncore id : {core}\n\n")
        };
        let info = [thread(0, 0), thread(0, 0), thread(0, 1), thread(1, 0)].concat();
        assert_eq!((logical(&info), physical(&info)), (Some(4), Some(3)));
        assert_eq!(physical("processor : 0\ncore id : 0\n"), None);
        assert_eq!(logical("CPU part : 0xd0c\n"), None);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0"), Some(1));
        for wrong in ["", "3-1", "a", "0-4294967295,0"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn arm_says_features() {
        let info = "processor\t: 0\nFeatures\t: fp asimd evtstrm i8mm\nCPU part\t: 0xd40\n";
        assert_eq!(features(info).unwrap(), ["asimd", "i8mm"]);
        assert_eq!(features("processor : 0\n"), None);
    }
}
