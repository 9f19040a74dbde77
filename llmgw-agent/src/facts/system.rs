//! The operating system: its name, its version, its C library, and the machine's own name.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    sync::{Mutex, PoisonError},
};

use llmgw_core::cluster::node::{NodeFacts, Os};

use super::{Probe, Root, Scene};

/// Looks at the operating system.
#[derive(Debug, Default)]
pub struct SystemProbe {
    /// What the C library said the last time: it has 2 MiB, and changes with an upgrade only.
    library: Mutex<Option<(Edition, Option<String>)>>,
}

/// What tells one edition of a file from another.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Edition {
    path: String,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Probe for SystemProbe {
    fn name(&self) -> &'static str {
        "system"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        facts.hostname = scene
            .root
            .text("proc/sys/kernel/hostname")
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| match scene.root.machine() {
                Some(_) => String::new(),
                None => rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
            });
        // Systems that boot from a read-only /usr have only the second.
        facts.os = scene
            .root
            .text("etc/os-release")
            .or_else(|| scene.root.text("usr/lib/os-release"))
            .and_then(|text| os_release(&text));
        facts.glibc = self.glibc(&scene.root, &scene.arch);
    }
}

fn os_release(text: &str) -> Option<Os> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.trim().split_once('=')?;
            let value = value.trim_matches(['"', '\'']);
            (name == key && !value.is_empty()).then(|| value.to_owned())
        })
    };
    Some(Os {
        id: value("ID")?,
        version: value("VERSION_ID"),
    })
}

impl SystemProbe {
    /// Reads the version out of the library itself, which says it in its banner. Asking `ldd` would run a program
    /// of the machine that is looked at; calling into the library would need unsafe code.
    pub(crate) fn glibc(&self, root: &Root, arch: &str) -> Option<String> {
        let (path, edition) = [
            format!("lib/{arch}-linux-gnu/libc.so.6"),
            format!("usr/lib/{arch}-linux-gnu/libc.so.6"),
            "lib64/libc.so.6".to_owned(),
            "usr/lib64/libc.so.6".to_owned(),
            "lib/libc.so.6".to_owned(),
            "usr/lib/libc.so.6".to_owned(),
        ]
        .into_iter()
        .find_map(|path| {
            let edition = Edition::of(&path, &root.path(&path).metadata().ok()?);
            Some((path, edition))
        })?;
        let mut known = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, version)) = known.as_ref()
            && *of == edition
        {
            return version.clone();
        }
        let library = root.read(path.as_ref(), LIBRARY_LIMIT)?;
        // A captured tree holds the banner alone.
        root.note(&path, banner(&library).unwrap_or_default());
        let version = banner(&library).and_then(banner_version);
        *known = Some((edition, version.clone()));
        version
    }
}

// === impl Edition ===

impl Edition {
    fn of(path: &str, file: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            inode: file.ino(),
            size: file.size(),
            changed: (file.mtime(), file.mtime_nsec()),
        }
    }
}

fn banner(library: &[u8]) -> Option<&[u8]> {
    let start = library
        .windows(BANNER.len())
        .position(|window| window == BANNER)?;
    let banner = library.get(start..)?;
    let line = banner.split(|byte| *byte == b'\n').next()?;
    Some(line.get(..BANNER_LIMIT).unwrap_or(line))
}

fn banner_version(banner: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(banner);
    let (_, version) = line.rsplit_once("version ")?;
    let version: String = version
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let version = version.trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

const BANNER: &[u8] = b"GNU C Library (";
const BANNER_LIMIT: usize = 256;
/// The library has about 2 MiB.
const LIBRARY_LIMIT: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_file_is_read_with_and_without_quotes() {
        let os = os_release("NAME=\"X\"\nID=debian\nVERSION_ID=\"12\"\n").unwrap();
        assert_eq!(
            (os.id.as_str(), os.version.as_deref()),
            ("debian", Some("12"))
        );
        let rolling = os_release("ID='arch'\nBUILD_ID=rolling\n").unwrap();
        assert_eq!((rolling.id.as_str(), rolling.version), ("arch", None));
        assert_eq!(os_release("NAME=x\n"), None);
    }

    #[test]
    fn the_library_says_its_version_in_its_banner() {
        let library: &[u8] = b"\x7fELF\0\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        let version = |library| banner(library).and_then(banner_version);
        assert_eq!(version(library).as_deref(), Some("2.36"));
        let old: &[u8] = b"GNU C Library (GNU libc) stable release version 2.17, by Roland";
        assert_eq!(version(old).as_deref(), Some("2.17"));
        assert_eq!(version(b"musl libc (x86_64)"), None);
    }
}
