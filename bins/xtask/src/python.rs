//! The Python package: an environment with pinned tools, the wheel, its tests, types and format.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};

use crate::{job::Job, steps::Outcome, workspace::Workspace};

/// Makes the environment, or brings the one that is there up to the pinned versions.
pub(crate) fn environment(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let folder = folder(workspace);
    if !python(workspace)
        .args(["-m", "pip", "--version"])
        .succeeds()
    {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("removing {}", folder.display()))?;
        }
        Job::new("python3")
            .args(["-m", "venv"])
            .arg(&folder)
            .run()?;
    }
    pip(workspace)
        .arg("install")
        .arg("--requirement")
        .arg(package(workspace).join("requirements-dev.txt"))
        .run()?;
    let version = python(workspace).arg("--version").read()?;
    Ok(Outcome::Passed(version.trim().to_owned()))
}

/// Builds and installs the package as a user would, and checks that the wheel is for every later Python.
pub(crate) fn install(workspace: &Workspace) -> anyhow::Result<Outcome> {
    pip(workspace)
        .args(["install", "--force-reinstall", "--no-deps"])
        .arg(package(workspace))
        // A user's wheel is optimised; what is checked here is not its speed.
        .env("MATURIN_PEP517_ARGS", "--profile dev")
        .run()?;
    let question =
        "from importlib.metadata import distribution as d; print(d('llmgw').read_text('WHEEL'))";
    let wheel = python(workspace).args(["-c", question]).read()?;
    let tags: Vec<&str> = wheel
        .lines()
        .filter_map(|line| line.strip_prefix("Tag: "))
        .collect();
    if tags.is_empty() || !tags.iter().all(|tag| tag.starts_with("cp310-abi3-")) {
        bail!("the wheel is tagged {tags:?}, not cp310-abi3");
    }
    Ok(Outcome::Passed(tags.join(", ")))
}

/// All Python tests, with the programs that were built for the Rust ones.
pub(crate) fn test(workspace: &Workspace) -> anyhow::Result<Outcome> {
    python(workspace)
        .args(["-m", "pytest", "--color=no"])
        .env("LLMGW_BIN_DIR", workspace.target.join("debug"))
        .directory(package(workspace))
        .limit(TEST_LIMIT)
        .run()?;
    Ok(Outcome::passed())
}

/// The types are right by mypy's strictest reading, and the stubs say what the compiled module has.
pub(crate) fn typing(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let examples = workspace.root.join("examples");
    let python = python(workspace).directory(package(workspace));
    python
        .clone()
        .args(["-m", "mypy", "--strict", "python", "tests"])
        .arg(examples)
        .run()?;
    python.args(["-m", "mypy.stubtest", "llmgw"]).run()?;
    Ok(Outcome::passed())
}

/// The Python code is formatted and free of the usual slips.
pub(crate) fn lint(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let ruff = || {
        python(workspace)
            .args(["-m", "ruff"])
            .directory(&workspace.root)
    };
    let config = package(workspace).join("pyproject.toml");
    let places = ["llmgw-py", "examples"];
    ruff()
        .arg("check")
        .arg("--config")
        .arg(&config)
        .args(places)
        .run()?;
    ruff()
        .args(["format", "--check", "--diff"])
        .arg("--config")
        .arg(&config)
        .args(places)
        .run()?;
    Ok(Outcome::passed())
}

/// A job of the environment's Python.
pub(crate) fn python(workspace: &Workspace) -> Job {
    let folder = folder(workspace);
    let program = folder.join("bin").join("python");
    // As an activated environment is: programs that look for `python` find this one.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).unwrap_or_else(|_| path.clone());
    Job::new(program)
        .quietly("VIRTUAL_ENV", folder)
        .quietly("PATH", path)
        // No compiled files beside the sources, which may be read-only.
        .quietly("PYTHONDONTWRITEBYTECODE", "1")
}

/// An empty folder for scripts and what they write.
pub(crate) fn scratch(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let scratch = workspace.target.join("py-scratch");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

fn pip(workspace: &Workspace) -> Job {
    python(workspace).args(["-m", "pip", "--disable-pip-version-check"])
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("py-venv")
}

fn package(workspace: &Workspace) -> PathBuf {
    workspace.root.join("llmgw-py")
}

/// A test that hangs is ended by pytest's own limit long before.
const TEST_LIMIT: Duration = Duration::from_secs(15 * 60);
