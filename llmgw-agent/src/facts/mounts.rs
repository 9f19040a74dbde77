//! The kernel's list of mounts, as `/proc/self/mountinfo` gives it (proc_pid_mountinfo(5)).

use std::path::{Path, PathBuf};

use super::Root;

/// One mounted file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mount {
    /// The directory inside the file system that is seen at `point`.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The file system's type, such as `ext4`.
    pub kind: String,
    /// What is mounted, such as `/dev/sda1` or `filer:/models`.
    pub source: String,
    /// Options of the file system itself; for a version 1 control group, its controllers.
    pub options: Vec<String>,
}

/// All mounts, in the order in which they were made.
#[must_use]
pub fn mounts(root: &Root) -> Vec<Mount> {
    root.text("proc/self/mountinfo")
        .map(|text| text.lines().filter_map(parse).collect())
        .unwrap_or_default()
}

/// The mount that holds `path`: the deepest, and of several at one place the last, which hides the others.
#[must_use]
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// `36 35 98:0 /inside /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`, where before the dash
/// stand any number of optional fields.
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let root = before.nth(3)?;
    let point = before.next()?;
    let mut after = after.split(' ');
    let kind = after.next()?;
    let source = after.next().unwrap_or_default();
    let options = after.next().unwrap_or_default();
    Some(Mount {
        root: unescape(root),
        point: unescape(point),
        kind: kind.to_owned(),
        source: unescape(source).to_string_lossy().into_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    })
}

/// Space, tab, newline and backslash stand as three octal digits behind a backslash.
fn unescape(text: &str) -> PathBuf {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code, after.get(3..)) {
            (Some(code), Some(tail)) => {
                plain.push(char::from(code));
                rest = tail;
            }
            _ => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /srv/big\\040disk rw master:1 shared:2 - nfs4 filer:/x rw,vers=4.2
41 27 0:51 / /srv/big\\040disk rw - xfs /dev/sdb rw
32 31 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";

    #[test]
    fn the_deepest_and_last_mount_holds_a_path() {
        let mounts: Vec<Mount> = LINES.lines().filter_map(parse).collect();
        assert_eq!(mounts.len(), 5);
        let kind = |path: &str| holding(&mounts, Path::new(path)).unwrap().kind.clone();
        assert_eq!(kind("/srv/big disk/llmgw"), "xfs");
        assert_eq!(kind("/srv/big"), "ext4");
        assert_eq!(kind("/proc/self"), "proc");
    }

    #[test]
    fn fields_behind_any_number_of_optional_ones_are_found() {
        let mount = parse(LINES.lines().nth(2).unwrap()).unwrap();
        assert_eq!(mount.kind, "nfs4");
        assert_eq!(mount.options, ["rw", "vers=4.2"]);
        assert_eq!(parse("not a mount"), None);
        assert_eq!(unescape("a\\04"), PathBuf::from("a\\04"));
    }
}
