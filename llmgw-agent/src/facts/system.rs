//! The operating system: its name, its version, its C library, and the machine's own name.

use llmgw_core::cluster::node::{NodeFacts, Os};

use super::{Probe, Root, Scene};

/// Looks at the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemProbe;

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
            .unwrap_or_else(|| {
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned()
            });
        // Systems that boot from a read-only /usr have only the second.
        facts.os = scene
            .root
            .text("etc/os-release")
            .or_else(|| scene.root.text("usr/lib/os-release"))
            .and_then(|text| os_release(&text));
        facts.glibc = glibc(&scene.root, &scene.arch);
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

/// Reads the version out of the library itself, which says it in its banner. Asking `ldd` would run a program
/// of the machine that is looked at; calling into the library would need unsafe code.
pub(crate) fn glibc(root: &Root, arch: &str) -> Option<String> {
    [
        format!("lib/{arch}-linux-gnu/libc.so.6"),
        format!("usr/lib/{arch}-linux-gnu/libc.so.6"),
        "lib64/libc.so.6".to_owned(),
        "usr/lib64/libc.so.6".to_owned(),
        "lib/libc.so.6".to_owned(),
        "usr/lib/libc.so.6".to_owned(),
    ]
    .iter()
    .find_map(|path| banner_version(&root.bytes(path, LIBRARY_LIMIT)?))
}

fn banner_version(library: &[u8]) -> Option<String> {
    let start = library
        .windows(BANNER.len())
        .position(|window| window == BANNER)?;
    let banner = library.get(start..)?;
    let line = banner.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line.get(..BANNER_LIMIT).unwrap_or(line));
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
        let library = b"\x7fELF\0\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        assert_eq!(banner_version(library).as_deref(), Some("2.36"));
        let old = b"GNU C Library (GNU libc) stable release version 2.17, by Roland";
        assert_eq!(banner_version(old).as_deref(), Some("2.17"));
        assert_eq!(banner_version(b"musl libc (x86_64)"), None);
    }
}
