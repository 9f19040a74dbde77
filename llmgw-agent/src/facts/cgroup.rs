//! The control groups that this process is in, in both versions (cgroups(7)).

use std::path::PathBuf;

use super::{
    Root,
    mounts::{Mount, mounts},
};

/// Which version of control groups a directory belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    One,
    Two,
}

/// The directories that limit us for one controller: our own group's and those of all above it that can be seen
/// from here.
pub(super) fn directories(root: &Root, controller: &str) -> Vec<(Version, PathBuf)> {
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
        let (mount, version) = if controllers.is_empty() {
            let unified = mounts.iter().find(|mount| mount.kind == "cgroup2");
            (unified, Version::Two)
        } else if controllers.split(',').any(|name| name == controller) {
            let of_controller = |mount: &&Mount| {
                mount.kind == "cgroup" && mount.options.iter().any(|option| option == controller)
            };
            (mounts.iter().find(of_controller), Version::One)
        } else {
            continue;
        };
        if let Some(mount) = mount {
            found.extend(chain(mount, group).into_iter().map(|dir| (version, dir)));
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
        .take(DEPTH_LIMIT)
        .map(PathBuf::from)
        .collect()
}

/// Groups are nested a few levels deep.
const DEPTH_LIMIT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_outside_of_what_is_mounted_is_the_mount_itself() {
        let mount = Mount {
            root: "/docker/abc".into(),
            point: "/sys/fs/cgroup/memory".into(),
            kind: "cgroup".into(),
            source: "cgroup".into(),
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
