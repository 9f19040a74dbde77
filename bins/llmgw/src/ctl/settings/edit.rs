//! A document in the editor of whoever writes it.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    process::Command,
};

use tempfile::{NamedTempFile, TempPath};

use crate::failure::{Cause, Failure};

/// What was written, and where it still is.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) text: String,
    place: TempPath,
}

/// Has a text edited: by the program that VISUAL or EDITOR names, else `vi`.
pub(super) fn edit(text: &str) -> Result<Edited, Failure> {
    let failed = |doing: &str, error: &dyn ToString| {
        Failure::new(Cause::Usage, format!("{doing}: {}", error.to_string()))
    };
    // Only its owner may read it: it may name addresses with passwords.
    let mut file = NamedTempFile::with_suffix(".yaml")
        .map_err(|error| failed("making a file to edit", &error))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.flush())
        .map_err(|error| failed("writing a file to edit", &error))?;
    let place = file.into_temp_path();
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(env::var_os);
    let editor = named
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "vi".into());
    // It may be a program with arguments, as `git` takes it.
    let mut line = editor.clone();
    line.push(" \"$1\"");
    let ended = Command::new("sh")
        .arg("-c")
        .arg(line)
        .arg("editor")
        .arg(&*place)
        .status()
        .map_err(|error| failed("starting the editor", &error))?;
    if !ended.success() {
        let name = editor.to_string_lossy().into_owned();
        return Err(Failure::new(
            Cause::Usage,
            format!("{name} ended with {ended}; nothing was changed"),
        )
        .with_hint("name an editor: EDITOR=nano llmgw ctl settings edit"));
    }
    let mut text = String::new();
    fs::File::open(&place)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(|error| failed("reading what was written", &error))?;
    Ok(Edited { text, place })
}

impl Edited {
    /// Removes the file.
    pub(super) fn forget(self) {
        drop(self.place);
    }

    /// Leaves the file where it is, and says where.
    pub(super) fn keep(self) -> String {
        let shown = self.place.display().to_string();
        match self.place.keep() {
            Ok(kept) => kept.display().to_string(),
            Err(_) => shown,
        }
    }
}

/// More than a document may be long: what is too long is refused, and not cut.
const LONGEST: u64 = 2 << 20;
