//! The loader's cache of libraries: `/etc/ld.so.cache`, as glibc writes it.
//!
//! The form is glibc's own (`sysdeps/generic/dl-cache.h`): a header, a table of entries of 24 bytes, and the
//! strings that they point to. A file of an older form may stand before it. What can't be read counts as no
//! cache: the usual directories are looked at too.

use std::{collections::BTreeSet, fs::File, io::Read as _, path::Path};

/// The names that the loader finds by its cache, as far as their files are still there.
pub(super) fn cached_names(root: &Path) -> BTreeSet<String> {
    let mut bytes = Vec::new();
    let path = root.join("etc/ld.so.cache");
    let Ok(file) = File::open(path) else {
        return BTreeSet::new();
    };
    if file.take(MAX_CACHE).read_to_end(&mut bytes).is_err() {
        return BTreeSet::new();
    }
    entries(&bytes)
        .into_iter()
        // An entry outlives its file until the cache is made again.
        .filter(|(_, path)| root.join(path.trim_start_matches('/')).exists())
        .map(|(name, _)| name)
        .collect()
}

/// The name and the path of each entry.
fn entries(bytes: &[u8]) -> Vec<(String, String)> {
    let Some(start) = bytes
        .windows(MAGIC.len())
        .position(|window| window == MAGIC)
    else {
        return Vec::new();
    };
    // Offsets count from here, whatever stands before.
    let cache = bytes.get(start..).unwrap_or_default();
    let count = number(cache, MAGIC.len()).unwrap_or(0);
    (0..count.min(MAX_ENTRIES))
        .map_while(|index| {
            let at = HEADER + index * ENTRY;
            let name = string(cache, number(cache, at + 4)?)?;
            let path = string(cache, number(cache, at + 8)?)?;
            Some((name, path))
        })
        .collect()
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let word: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_ne_bytes(word)).ok()
}

fn string(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().take(MAX_NAME).position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
}

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// A cache of a thousand libraries has about 60 KiB.
const MAX_CACHE: u64 = 16 << 20;
const MAX_ENTRIES: usize = 100_000;
const MAX_NAME: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(before: &[u8], names: &[(&str, &str)]) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let word = |value: usize| u32::try_from(value).unwrap().to_ne_bytes();
        head.extend(word(names.len()));
        head.resize(HEADER, 0);
        for (name, path) in names {
            let base = HEADER + names.len() * ENTRY;
            table.extend(word(0));
            table.extend(word(base + strings.len()));
            strings.extend(name.bytes().chain([0]));
            table.extend(word(base + strings.len()));
            strings.extend(path.bytes().chain([0]));
            table.resize(table.len() + 12, 0);
        }
        [before, &head, &table, &strings].concat()
    }

    #[test]
    fn names_are_found_as_long_as_their_files_are_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::create_dir_all(root.path().join("opt")).unwrap();
        std::fs::write(root.path().join("opt/libgomp.so.1"), "").unwrap();
        let names = [
            ("libgomp.so.1", "/opt/libgomp.so.1"),
            ("libgone.so.1", "/opt/libgone.so.1"),
        ];
        let bytes = cache(b"ld.so-1.7.0\0an older form ", &names);
        std::fs::write(root.path().join("etc/ld.so.cache"), bytes).unwrap();
        let found: Vec<String> = cached_names(root.path()).into_iter().collect();
        assert_eq!(found, ["libgomp.so.1"]);
        assert!(cached_names(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn this_machines_cache_is_read() {
        assert!(cached_names(Path::new("/")).contains("libc.so.6"));
    }

    #[test]
    fn a_damaged_cache_is_none() {
        let whole = cache(b"", &[("a.so.1", "/a.so.1"), ("b.so.2", "/b.so.2")]);
        for place in 0..whole.len() {
            for value in [0xff, 0x7f, 0] {
                let mut bytes = whole.clone();
                bytes[place] = value;
                entries(&bytes);
            }
            entries(&whole[..place]);
        }
    }
}
