//! Which CUDA a machine's NVIDIA driver supports.

use llmgw_core::cluster::node::MajorMinor;

use crate::facts::Root;

/// The CUDA version of the loaded driver; `None` when no NVIDIA driver is loaded or its version is not known.
///
/// The kernel module says its version in `/proc/driver/nvidia/version`, without any library of the driver.
pub(super) fn cuda_of_driver(root: &Root) -> Option<MajorMinor> {
    let text = root.text("proc/driver/nvidia/version")?;
    cuda_of_branch(branch(&text)?)
}

/// Whether an NVIDIA driver is loaded at all.
pub(super) fn is_loaded(root: &Root) -> bool {
    root.text("proc/driver/nvidia/version").is_some()
}

/// The first number of the version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ...`.
fn branch(text: &str) -> Option<u32> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    let version = line.split_whitespace().find(|word| {
        word.split('.').count() >= 2
            && word
                .chars()
                .all(|character| character.is_ascii_digit() || character == '.')
    })?;
    version.split('.').next()?.parse().ok()
}

/// By the table "CUDA Toolkit and Corresponding Driver Versions" of NVIDIA's CUDA Toolkit release notes: each
/// toolkit came with the driver branch that supports it. A branch that is newer than the table supports what
/// its newest row does, at least.
fn cuda_of_branch(branch: u32) -> Option<MajorMinor> {
    BRANCHES
        .iter()
        .rev()
        .find(|(first, _)| branch >= *first)
        .map(|(_, version)| *version)
}

const BRANCHES: &[(u32, MajorMinor)] = &[
    (450, MajorMinor::new(11, 0)),
    (470, MajorMinor::new(11, 4)),
    (520, MajorMinor::new(11, 8)),
    (525, MajorMinor::new(12, 0)),
    (530, MajorMinor::new(12, 1)),
    (535, MajorMinor::new(12, 2)),
    (545, MajorMinor::new(12, 3)),
    (550, MajorMinor::new(12, 4)),
    (555, MajorMinor::new(12, 5)),
    (560, MajorMinor::new(12, 6)),
    (565, MajorMinor::new(12, 7)),
    (570, MajorMinor::new(12, 8)),
    (575, MajorMinor::new(12, 9)),
    (580, MajorMinor::new(13, 0)),
    (590, MajorMinor::new(13, 1)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::capture::Machine;

    #[test]
    fn a_driver_says_its_branch_and_the_branch_says_its_cuda() {
        let proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\nGCC version: 12\n";
        assert_eq!(branch(proprietary), Some(570));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@host)\n";
        assert_eq!(branch(open), Some(580));
        assert_eq!(branch("something else"), None);
        let cuda = |number| cuda_of_branch(number).map(|version| version.to_string());
        assert_eq!(cuda(570).as_deref(), Some("12.8"));
        assert_eq!(cuda(572).as_deref(), Some("12.8"));
        assert_eq!(cuda(9_999).as_deref(), Some("13.1"));
        assert_eq!(cuda(390), None);
    }

    #[test]
    fn a_machine_without_a_driver_has_no_cuda() {
        let root = tempfile::tempdir().unwrap();
        let root = Root::captured(root.path(), Machine::default());
        assert_eq!(cuda_of_driver(&root), None);
        assert!(!is_loaded(&root));
    }
}
