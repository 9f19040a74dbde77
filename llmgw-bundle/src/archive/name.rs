//! The names of entries and the targets of links, as they may be.

use crate::{error::Rule, limits::Limits};

/// A name that stays where it is put.
#[derive(Debug)]
pub(super) struct Name {
    /// Its parts with `/` between them; empty for the folder that all are in.
    pub(super) path: String,
    /// Whether it ends with `/`, as a folder's does.
    pub(super) is_folder: bool,
}

impl Name {
    /// Checks the name of an entry.
    pub(super) fn new(raw: &[u8], limits: &Limits) -> Result<Self, Rule> {
        let name = text(raw, limits)?;
        let path = name.strip_suffix('/').unwrap_or(name);
        let mut depth = 0;
        for part in path.split('/') {
            if matches!(part, "" | "." | "..") {
                return Err(Rule::LeavingName);
            }
            if part.len() > limits.part {
                return Err(Rule::LongPart(limits.part));
            }
            depth += 1;
        }
        if depth > limits.depth {
            return Err(Rule::TooDeep(limits.depth));
        }
        Ok(Self {
            path: path.to_owned(),
            is_folder: path.len() < name.len(),
        })
    }

    /// Checks the name of an entry of a tar archive, where `tar -C folder -c .` makes names that begin with `./`.
    pub(super) fn in_tar(raw: &[u8], limits: &Limits) -> Result<Self, Rule> {
        match raw {
            b"." | b"./" => Ok(Self {
                path: String::new(),
                is_folder: true,
            }),
            _ => Self::new(raw.strip_prefix(b"./").unwrap_or(raw), limits),
        }
    }
}

/// Checks what can be checked of a link's target without knowing what it leads to.
pub(super) fn target(raw: &[u8], limits: &Limits) -> Result<String, Rule> {
    match text(raw, limits) {
        Ok("") | Err(Rule::AbsoluteName) => Err(Rule::LeavingLink),
        Ok(target) => Ok(target.to_owned()),
        Err(rule) => Err(rule),
    }
}

/// The start of a name, however long and strange it is, for an error.
pub(super) fn shown(raw: &[u8]) -> String {
    let start = raw.get(..SHOWN).unwrap_or(raw);
    String::from_utf8_lossy(start).into_owned()
}

fn text<'a>(raw: &'a [u8], limits: &Limits) -> Result<&'a str, Rule> {
    if raw.len() > limits.name {
        return Err(Rule::LongName(limits.name));
    }
    let Ok(name) = std::str::from_utf8(raw) else {
        return Err(Rule::UnreadableName);
    };
    if name.chars().any(|c| c.is_control() || c == '\\') {
        return Err(Rule::UnreadableName);
    }
    let has_drive = name.as_bytes().get(1) == Some(&b':');
    if name.starts_with('/') || has_drive {
        return Err(Rule::AbsoluteName);
    }
    Ok(name)
}

/// Enough to find an entry again, and short enough for a line.
const SHOWN: usize = 256;
