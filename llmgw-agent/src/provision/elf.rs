//! What a program or a library says that it needs, read from the file itself; nothing is run.

use std::{collections::BTreeSet, fs::File, io::Read as _, path::Path};

use llmgw_core::cluster::node::MajorMinor;
use object::{
    Endianness,
    elf::{self, FileHeader64},
    read::{
        ReadCache, ReadRef,
        elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _},
    },
};

/// What one object needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Needs {
    /// The names of libraries, as the loader looks for them.
    pub libraries: Vec<String>,
    /// The name that others find it by.
    pub soname: Option<String>,
    /// Where it wants its libraries looked for first, with `$ORIGIN` still in it.
    pub run_path: Vec<String>,
    /// The loader that starts it; libraries have none.
    pub interpreter: Option<String>,
    /// The newest version of the GNU C library that it asks for.
    pub glibc: Option<MajorMinor>,
    /// The number of the processor architecture that it is for.
    pub machine: u16,
}

/// Why a file that begins as an object can't be read as one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ElfError {
    /// Reading failed.
    #[error("{0}")]
    Read(String),
    /// It is damaged.
    #[error("it is not a whole program or library: {0}")]
    Broken(String),
    /// It is for 32-bit machines.
    #[error("it is for 32-bit processors")]
    Narrow,
}

/// Reads what the file at `path` needs; `None` when it is no program and no library.
///
/// Only the tables that say it are read, and none that is larger than any linker makes it.
pub(super) fn needs(path: &Path) -> Result<Option<Needs>, ElfError> {
    let mut file = File::open(path).map_err(|error| ElfError::Read(error.to_string()))?;
    let mut magic = [0; 5];
    if file.read_exact(&mut magic).is_err() || !magic.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    if magic[4] != CLASS_64 {
        return Err(ElfError::Narrow);
    }
    read(&ReadCache::new(file)).map(Some)
}

fn read<'data>(data: impl ReadRef<'data>) -> Result<Needs, ElfError> {
    let broken = |error: object::read::Error| ElfError::Broken(error.to_string());
    let header = FileHeader64::<Endianness>::parse(data).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    let mut needs = Needs {
        machine: header.e_machine(endian).0,
        ..Needs::default()
    };
    for segment in header.program_headers(endian, data).map_err(broken)? {
        if segment.p_type(endian) == elf::PT_INTERP && segment.p_filesz(endian) > MAX_TABLE {
            return Err(ElfError::Broken("a table is too large".to_owned()));
        }
        if let Some(interpreter) = segment.interpreter(endian, data).map_err(broken)? {
            needs.interpreter = Some(text(interpreter));
        }
    }
    let sections = header.sections(endian, data).map_err(broken)?;
    for section in sections.iter() {
        let kind = section.sh_type(endian);
        let read = matches!(
            kind,
            elf::SHT_DYNAMIC | elf::SHT_GNU_VERNEED | elf::SHT_DYNSYM
        );
        if kind != elf::SHT_DYNSYM && read && section.sh_size(endian) > MAX_TABLE {
            return Err(ElfError::Broken("a table is too large".to_owned()));
        }
    }
    let table = sections.dynamic_table(endian, data).map_err(broken)?;
    for entry in &table {
        let value = || table.string(entry).map(text).map_err(broken);
        match entry.tag {
            elf::DT_NEEDED => needs.libraries.push(value()?),
            elf::DT_SONAME => needs.soname = Some(value()?),
            elf::DT_RUNPATH | elf::DT_RPATH => {
                needs
                    .run_path
                    .extend(value()?.split(':').map(str::to_owned));
            }
            _ => {}
        }
    }
    if let Some((mut files, link)) = sections.gnu_verneed(endian, data).map_err(broken)? {
        let strings = sections.strings(endian, data, link).map_err(broken)?;
        let mut versions = BTreeSet::new();
        let mut seen = 0_usize;
        while let Some((_, mut names)) = files.next().map_err(broken)? {
            while let Some(name) = names.next().map_err(broken)? {
                seen += 1;
                if seen > MAX_VERSIONS {
                    return Err(ElfError::Broken("it asks for too many versions".to_owned()));
                }
                let name = text(name.name(endian, strings).map_err(broken)?);
                versions.extend(name.strip_prefix("GLIBC_").and_then(MajorMinor::leading));
            }
        }
        needs.glibc = versions.last().copied();
    }
    Ok(needs)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const CLASS_64: u8 = 2;
/// Dynamic tables have some hundred bytes.
const MAX_TABLE: u64 = 1 << 20;
/// A library asks for some twenty versions.
const MAX_VERSIONS: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn this_program_says_what_it_needs() {
        let needs = needs(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(
            needs.libraries.contains(&"libc.so.6".to_owned()),
            "{needs:?}"
        );
        assert!(needs.interpreter.unwrap().contains("ld-linux"));
        // The newest of all versions that it names: Rust's own library asks for 2.14 at least.
        assert!(needs.glibc.unwrap() >= MajorMinor::new(2, 14));
    }

    #[test]
    fn what_is_no_object_needs_nothing_and_a_broken_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let read = |bytes: &[u8]| {
            File::create(&path).unwrap().write_all(bytes).unwrap();
            needs(&path)
        };
        assert_eq!(read(b""), Ok(None));
        assert_eq!(read(b"#!/bin/sh\n"), Ok(None));
        assert_eq!(read(b"\x7fELF\x01\x01\x01"), Err(ElfError::Narrow));
        assert!(matches!(
            read(b"\x7fELF\x02\x01\x01"),
            Err(ElfError::Broken(_))
        ));
    }

    /// Every part of a real program that says where its tables are, made wrong byte by byte.
    #[test]
    fn a_damaged_header_is_an_error_or_other_needs_but_never_a_panic() {
        let whole = std::fs::read("/bin/true").unwrap();
        let step = (whole.len() / 400).max(1);
        let places = (0..1024).chain((1024..whole.len()).step_by(step));
        for place in places.filter(|place| *place < whole.len()) {
            for flip in [0xff, 0x80, 0x01] {
                let mut bytes = whole.clone();
                bytes[place] ^= flip;
                drop(read(bytes.as_slice()));
            }
        }
        for length in (0..whole.len()).step_by(step) {
            drop(read(&whole[..length]));
        }
    }
}
