//! The processor.

use std::collections::BTreeSet;

use llmgw_core::cluster::node::{Cpu, NodeFacts};

use super::{Probe, Scene, warn};

/// Looks at the processor.
///
/// The number of cores is asked from the running system, also for a captured tree: it is what this process may
/// use, after affinity and quota, and stands in no file.
#[derive(Clone, Copy, Debug)]
pub struct CpuProbe;

impl Probe for CpuProbe {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let cores = std::thread::available_parallelism()
            .ok()
            .and_then(|cores| u32::try_from(cores.get()).ok());
        let features = scene
            .root
            .text("proc/cpuinfo")
            .and_then(|text| features(&text));
        let (Some(cores), Some(features)) = (cores, features) else {
            return;
        };
        if scene.arch == "x86_64" && !features.iter().any(|feature| feature == "avx2") {
            warn(
                facts,
                "no_avx2",
                "the processor has no AVX2, so that engines run slowly or not at all; a virtual machine \
                 needs the CPU type host"
                    .to_owned(),
            );
        }
        facts.cpu = Some(Cpu { cores, features });
    }
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
    fn arm_says_features() {
        let info = "processor\t: 0\nFeatures\t: fp asimd evtstrm i8mm\nCPU part\t: 0xd40\n";
        assert_eq!(features(info).unwrap(), ["asimd", "i8mm"]);
        assert_eq!(features("processor : 0\n"), None);
    }
}
