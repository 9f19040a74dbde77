//! The disk that holds weights.

use llmgw_core::{
    cluster::node::{Disk, NodeFacts, Warning},
    units::Bytes,
};

use super::{
    Probe, Scene,
    mounts::{Mount, holding, mounts},
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
            source: shared_name(mount),
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

/// The name of a shared disk, where it means the same on every machine: a host with a path, or a share. What a
/// machine's host or a program in user space presents is named by whoever set it up.
fn shared_name(mount: &Mount) -> Option<String> {
    let Mount { kind, source, .. } = mount;
    let is_named = source.starts_with("//") || source.contains(":/");
    (is_shared(kind) && is_named && !kind.starts_with("fuse.")).then(|| source.clone())
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
            source: None,
        };
        assert!(nearly_full(&disk(1000, 49)));
        assert!(!nearly_full(&disk(1000, 50)));
        assert!(nearly_full(&disk(10, 1)));
        assert!(!nearly_full(&disk(10, 2)));
    }

    #[test]
    fn a_shared_disk_has_the_name_that_all_machines_know_it_by() {
        let name = |kind: &str, source: &str| {
            shared_name(&Mount {
                root: "/".into(),
                point: "/models".into(),
                kind: kind.to_owned(),
                source: source.to_owned(),
                options: Vec::new(),
            })
        };
        for (kind, source) in [
            ("nfs4", "filer:/models"),
            ("nfs", "[fd00::1]:/models"),
            ("cifs", "//filer/models"),
            ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/models"),
            ("lustre", "mgs@tcp:/scratch"),
        ] {
            assert_eq!(name(kind, source).as_deref(), Some(source), "{kind}");
        }
        // The host's name for it, a program's, and disks of the machine itself.
        for (kind, source) in [
            ("virtiofs", "models"),
            ("9p", "hostshare"),
            ("fuse.sshfs", "me@host:/models"),
            ("ext4", "/dev/disk/by-path/pci-0000:00:/x"),
        ] {
            assert_eq!(name(kind, source), None, "{kind}");
        }
    }
}
