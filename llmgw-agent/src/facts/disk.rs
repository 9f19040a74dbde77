//! The disk that holds weights.

use llmgw_core::{
    cluster::node::{Disk, NodeFacts, Warning},
    units::Bytes,
};

use super::{
    Probe, Scene,
    mounts::{holding, mounts},
    warn,
};

/// Looks at the disk of the data directory.
#[derive(Clone, Copy, Debug)]
pub struct DiskProbe;

impl Probe for DiskProbe {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let Some(dir) = scene.root.resolve(&scene.data_dir) else {
            return;
        };
        let mounts = mounts(&scene.root);
        let Some(mount) = holding(&mounts, &dir) else {
            return;
        };
        let Some(sizes) = scene.root.disk_sizes(&dir, &mount.point) else {
            return;
        };
        let disk = Disk {
            mount: mount.point.to_string_lossy().into_owned(),
            total: sizes.total,
            free: sizes.free,
            shared: is_shared(&mount.kind),
        };
        if nearly_full(&disk) {
            let text = format!(
                "{} of {} are free on {}, which holds {}",
                disk.free,
                disk.total,
                disk.mount,
                scene.data_dir.display(),
            );
            warn(facts, Warning::DISK_NEARLY_FULL, text);
        }
        facts.disk = Some(disk);
    }
}

fn nearly_full(disk: &Disk) -> bool {
    disk.free < Bytes::gib(2) || disk.free.0 < disk.total.0 / 20
}

/// Whether other machines may write to a file system of this type.
fn is_shared(kind: &str) -> bool {
    SHARED.contains(&kind)
        || kind
            .strip_prefix("fuse.")
            .is_some_and(|program| !LOCAL_FUSE.contains(&program))
}

const SHARED: &[&str] = &[
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "panfs",
    "pvfs2",
    "smb3",
    "smbfs",
    "virtiofs",
    "wekafs",
];

/// Programs in user space that present a local disk; all others are taken for network file systems, because a
/// filer's space that is counted twice does more harm than a local disk's that is not summed.
const LOCAL_FUSE: &[&str] = &[
    "bindfs",
    "exfat",
    "fuse-overlayfs",
    "gocryptfs",
    "lxcfs",
    "mergerfs",
    "ntfs",
    "ntfs-3g",
    "zfs",
    "encfs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_shared() {
        for kind in ["nfs4", "cifs", "fuse.ceph", "fuse.sshfs", "lustre"] {
            assert!(is_shared(kind), "{kind}");
        }
        for kind in [
            "ext4",
            "xfs",
            "btrfs",
            "overlay",
            "tmpfs",
            "fuse.mergerfs",
            "fuseblk",
        ] {
            assert!(!is_shared(kind), "{kind}");
        }
    }

    #[test]
    fn a_disk_is_nearly_full_by_share_and_by_size() {
        let disk = |total, free| Disk {
            mount: "/".into(),
            total: Bytes::gib(total),
            free: Bytes::gib(free),
            shared: false,
        };
        assert!(nearly_full(&disk(1000, 49)));
        assert!(!nearly_full(&disk(1000, 50)));
        assert!(nearly_full(&disk(10, 1)));
        assert!(!nearly_full(&disk(10, 2)));
    }
}
