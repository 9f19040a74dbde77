//! What an archive holds, when it breaks no rule.

use std::path::Path;

use llmgw_core::units::Bytes;
use serde::Serialize;

use super::{
    format::Format,
    input::Input,
    links,
    reading::Reading,
    tree::{ROOT, Tree},
    walk::{Visitor, walk},
};
use crate::{
    digest::Digested,
    error::{ArchiveError, Rule},
    limits::Limits,
};

/// What an archive holds.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listing {
    /// What it is.
    pub format: Format,
    /// Its entries in their order; the folder that all are in is none of them.
    pub entries: Vec<Entry>,
    /// Bytes of all files.
    pub bytes: Bytes,
    /// The folder that everything is in, when there is one.
    pub top: Option<String>,
}

/// One entry.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// Its relative name, with `/` between its parts.
    pub path: String,
    /// What it is.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What an entry is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// Its bytes.
        bytes: Bytes,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Where it leads, from the folder that it is in.
        target: String,
    },
}

/// Checks the archive at `archive` and says what it holds. Writes nothing. Blocks while it reads the whole archive.
///
/// # Errors
/// When the archive breaks a [`Rule`] or a limit, is damaged, or can't be read; the error names the entry and the
/// rule.
pub fn inspect(archive: &Path, limits: &Limits) -> Result<Listing, ArchiveError> {
    let reading = Reading {
        archive,
        limits,
        cancelled: &|| false,
    };
    let input = Input::open(reading)?;
    check(&input, false).map(|checked| checked.listing)
}

/// What the first pass saw.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) listing: Listing,
    /// Of the archive's own bytes.
    pub(super) digested: Digested,
}

/// The first pass: reads all of it, writes nothing.
pub(super) fn check(input: &Input<'_>, collapse_top: bool) -> Result<Checked, ArchiveError> {
    let reading = input.reading;
    let mut checker = Checker {
        reading,
        tree: Tree::new(),
        entries: Vec::new(),
        bytes: 0,
    };
    let digested = walk(input, &mut checker)?;
    let Checker {
        tree,
        entries,
        bytes,
        ..
    } = checker;
    let root = tree.top().filter(|_| collapse_top);
    let root = root.map_or(ROOT, |(place, _)| place);
    if let Some((path, rule)) = links::first_bad(&tree, root) {
        return Err(reading.refused(&path, rule));
    }
    Ok(Checked {
        listing: Listing {
            format: input.format,
            entries,
            bytes: Bytes(bytes),
            top: tree.top().map(|(_, name)| name.to_owned()),
        },
        digested,
    })
}

struct Checker<'a> {
    reading: Reading<'a>,
    tree: Tree,
    entries: Vec<Entry>,
    bytes: u64,
}

impl Visitor for Checker<'_> {
    fn entry(&mut self, entry: Entry) -> Result<(), ArchiveError> {
        let Self {
            reading,
            tree,
            entries,
            bytes,
        } = self;
        let limits = reading.limits;
        if let Kind::File { bytes: size, .. } = &entry.kind {
            *bytes = bytes.saturating_add(size.0);
            if *bytes > limits.total.0 {
                let rule = Rule::TooMuch(limits.total);
                return Err(reading.refused(&entry.path, rule));
            }
        }
        tree.add(&entry.path, &entry.kind, limits)
            .map_err(|rule| reading.refused(&entry.path, rule))?;
        entries.push(entry);
        Ok(())
    }

    fn bytes(&mut self, _chunk: &[u8]) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        Ok(())
    }
}
