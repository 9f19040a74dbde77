//! The house rules that can be counted: what lies where, how long it is, what it is called.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::{console::say, manifest, steps::Outcome, workspace::Workspace};

/// Checks names, lengths and manifests; fails with every breach.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let root = &workspace.root;
    let mut breaches = top_level(root)?;
    let files = sources(root)?;
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let shown = file.strip_prefix(root).unwrap_or(file);
        breaches.extend(source_problems(shown, text.lines().count()));
    }
    let workspace_manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    breaches.extend(
        manifest::workspace_problems(&workspace_manifest)
            .into_iter()
            .map(|problem| format!("Cargo.toml: {problem}")),
    );
    for package in &workspace.packages {
        let text = fs::read_to_string(&package.manifest)?;
        let folder = package.folder().strip_prefix(root).unwrap_or(root);
        for problem in manifest::package_problems(&text) {
            breaches.push(format!("{}/Cargo.toml: {problem}", folder.display()));
        }
    }
    if breaches.is_empty() {
        return Ok(Outcome::Passed(format!("{} source files", files.len())));
    }
    for breach in &breaches {
        say(breach);
    }
    bail!(breaches.join("; "))
}

/// What stands at the top and is not in the plan, and what is missing there.
fn top_level(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let odd = names
        .iter()
        .filter(|name| !TOP_LEVEL.contains(&name.as_str()) && !UNTRACKED.contains(&name.as_str()))
        .map(|name| format!("{name} stands at the top level and is not in the plan of the house"));
    let missing = TOP_LEVEL
        .iter()
        .filter(|name| !names.iter().any(|there| there == *name))
        .map(|name| format!("{name} is missing at the top level"));
    Ok(odd.chain(missing).collect())
}

/// The Rust and Python sources, without what is built or cloned into the tree.
fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.join("CACHEDIR.TAG").exists() || folder.join("pyvenv.cfg").exists() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && !is_hidden && !path.ends_with("target") {
                folders.push(path);
            } else if kind.is_file() && has_extension(&path, &["rs", "py", "pyi"]) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// What is wrong with a source file of this name and length.
fn source_problems(path: &Path, lines: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let shown = path.display();
    let is_rust = has_extension(path, &["rs"]);
    if is_rust && path.ends_with("mod.rs") {
        problems.push(format!("{shown}: a module is `name.rs` and `name/`"));
    }
    if is_rust && path.ends_with("src/main.rs") && lines > MAX_MAIN {
        problems.push(format!(
            "{shown}: {lines} lines; a main.rs has at most {MAX_MAIN}, the rest belongs to a library"
        ));
    }
    // The stubs of a compiled module are one file, as the module is.
    if lines > MAX_LINES && !has_extension(path, &["pyi"]) {
        problems.push(format!(
            "{shown}: {lines} lines; a file has at most {MAX_LINES}"
        ));
    }
    let without_extension = path.with_extension("");
    for part in without_extension.components() {
        let part = part.as_os_str().to_string_lossy();
        if SAYS_NOTHING.contains(&part.as_ref()) {
            problems.push(format!("{shown}: `{part}` says nothing of what is inside"));
        }
    }
    problems
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|own| extensions.iter().any(|extension| own == *extension))
}

const TOP_LEVEL: [&str; 18] = [
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".config",
    ".deny.toml",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "bins",
    "examples",
    "llmgw-agent",
    "llmgw-bundle",
    "llmgw-core",
    "llmgw-py",
    "llmgw-sched",
];

/// Made by tools and ignored by git.
const UNTRACKED: [&str; 6] = [
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "target",
];

const SAYS_NOTHING: [&str; 10] = [
    "common", "helper", "helpers", "manager", "misc", "service", "services", "types", "util",
    "utils",
];

const MAX_MAIN: usize = 150;
const MAX_LINES: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, lines: usize) -> usize {
        source_problems(Path::new(path), lines).len()
    }

    #[test]
    fn lengths_and_names_are_checked() {
        assert_eq!(problems("llmgw-core/src/store.rs", 600), 0);
        assert_eq!(problems("llmgw-core/src/store.rs", 601), 1);
        assert_eq!(problems("llmgw-py/python/llmgw/_llmgw.pyi", 601), 0);
        assert_eq!(problems("bins/llmgw/src/main.rs", 150), 0);
        assert_eq!(problems("bins/llmgw/src/main.rs", 151), 1);
        assert_eq!(problems("llmgw-core/src/store/mod.rs", 1), 1);
        assert_eq!(problems("llmgw-core/src/utils/text.rs", 1), 1);
        assert_eq!(problems("llmgw-py/python/llmgw/types.py", 1), 1);
    }

    #[test]
    fn what_is_odd_or_missing_at_the_top_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in TOP_LEVEL.iter().filter(|name| **name != "README.md") {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        let problems = top_level(folder.path()).unwrap();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn built_and_hidden_folders_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kept", "target", ".hidden", "cache"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("a.rs"), "").unwrap();
        }
        fs::write(folder.path().join("cache/CACHEDIR.TAG"), "").unwrap();
        let files = sources(folder.path()).unwrap();
        assert_eq!(files, [folder.path().join("kept/a.rs")]);
    }
}
