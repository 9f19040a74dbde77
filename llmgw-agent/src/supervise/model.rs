//! The weights on the disk, as an engine wants them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use llmgw_core::id::EngineName;

use crate::engine::{LaunchProblem, WeightsForm};

/// The path that an engine of this form is given for weights at `path`.
///
/// A file of safetensors that lies in the directory of its model stands for that directory.
pub(super) fn fitting(
    engine: &EngineName,
    form: WeightsForm,
    path: &Path,
) -> Result<PathBuf, LaunchProblem> {
    let refused = |need, have| LaunchProblem::Weights {
        engine: engine.clone(),
        need,
        path: path.to_owned(),
        have,
    };
    match form {
        WeightsForm::Any => Ok(path.to_owned()),
        WeightsForm::File if path.is_dir() => Err(refused("one file", "a directory")),
        WeightsForm::File => Ok(path.to_owned()),
        WeightsForm::Directory => {
            let directory = if path.is_dir() {
                path
            } else {
                let is_part = path
                    .extension()
                    .is_some_and(|extension| extension == "safetensors" || extension == "json");
                match path.parent().filter(|_| is_part) {
                    Some(parent) => parent,
                    None => return Err(refused(DIRECTORY, "one file")),
                }
            };
            if directory.join(CONFIGURATION).is_file() {
                Ok(directory.to_owned())
            } else {
                Err(refused(DIRECTORY, "in a directory without a config.json"))
            }
        }
    }
}

/// How many bytes a file has, or the files of a directory together.
///
/// # Errors
/// When it can't be looked at.
pub(super) fn size(path: &Path) -> io::Result<u64> {
    let found = fs::metadata(path)?;
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut total = 0_u64;
    for entry in fs::read_dir(path)? {
        // Follows links: repositories on a disk are often links to blobs.
        if let Ok(found) = fs::metadata(entry?.path())
            && found.is_file()
        {
            total = total.saturating_add(found.len());
        }
    }
    Ok(total)
}

const CONFIGURATION: &str = "config.json";
const DIRECTORY: &str = "the directory of a model (safetensors, config.json, a tokenizer)";

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(form: WeightsForm, path: &Path) -> Result<PathBuf, String> {
        fitting(&"vllm".parse().unwrap(), form, path).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_part_of_a_repository_stands_for_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let part = home.path().join("model-00001-of-00002.safetensors");
        fs::write(&part, "12345").unwrap();
        let error = fitted(WeightsForm::Directory, &part).unwrap_err();
        assert!(
            error.ends_with("in a directory without a config.json"),
            "{error}"
        );
        fs::write(home.path().join(CONFIGURATION), "{}").unwrap();
        for path in [part.as_path(), home.path()] {
            assert_eq!(fitted(WeightsForm::Directory, path).unwrap(), home.path());
        }
        assert_eq!(size(home.path()).unwrap(), 7);
        assert_eq!(size(&part).unwrap(), 5);
    }

    #[test]
    fn weights_of_another_form_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let gguf = home.path().join("tiny.gguf");
        fs::write(&gguf, "").unwrap();
        fs::write(home.path().join(CONFIGURATION), "{}").unwrap();
        let error = fitted(WeightsForm::Directory, &gguf).unwrap_err();
        assert!(
            error.starts_with("vllm reads the directory of a model"),
            "{error}"
        );
        let error = fitted(WeightsForm::File, home.path()).unwrap_err();
        assert!(error.ends_with("is a directory"), "{error}");
        assert_eq!(fitted(WeightsForm::File, &gguf).unwrap(), gguf);
        assert_eq!(fitted(WeightsForm::Any, home.path()).unwrap(), home.path());
    }
}
