//! What the machine must have, and how to get what is missing.

use std::{fs, path::PathBuf};

use anyhow::bail;

use crate::{job::Job, steps::Outcome, workspace::Workspace};

/// Something that a step runs.
#[derive(Clone, Copy, Debug)]
struct Tool {
    name: &'static str,
    /// Tells whether it is there.
    present: fn() -> bool,
    /// The command that installs it.
    install: &'static str,
    /// Why it can be done without, where it can.
    without: Option<&'static str>,
}

/// Names everything that is missing at once, each with the command that installs it.
pub(crate) fn check(_: &Workspace) -> anyhow::Result<Outcome> {
    let mut missing = Vec::new();
    let mut notes = Vec::new();
    for tool in TOOLS {
        if (tool.present)() {
            continue;
        }
        let line = format!("{}: `{}`", tool.name, tool.install);
        match tool.without {
            Some(without) => notes.push(format!("{without} ({line})")),
            None => missing.push(line),
        }
    }
    if missing.is_empty() {
        return Ok(Outcome::Passed(notes.join("; ")));
    }
    bail!(
        "missing, each with what installs it: {}",
        missing.join(", ")
    )
}

/// Whether `cargo nextest` can be run.
pub(crate) fn has_nextest() -> bool {
    Job::cargo().args(["nextest", "--version"]).succeeds()
}

/// Whether `cargo deny` can be run.
pub(crate) fn has_deny() -> bool {
    Job::cargo().args(["deny", "--version"]).succeeds()
}

fn has_rustfmt() -> bool {
    Job::cargo().args(["fmt", "--version"]).succeeds()
}

fn has_clippy() -> bool {
    Job::cargo().args(["clippy", "--version"]).succeeds()
}

fn has_c_compiler() -> bool {
    Job::new("cc").arg("--version").succeeds()
}

fn has_python() -> bool {
    let question = "import sys; sys.exit(sys.version_info < (3, 10))";
    Job::new("python3").args(["-c", question]).succeeds()
}

fn has_venv() -> bool {
    Job::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .succeeds()
}

fn has_curl() -> bool {
    Job::new("curl").arg("--version").succeeds()
}

fn has_prometheus() -> bool {
    Job::new("promtool").arg("--version").succeeds()
        && Job::new("prometheus").arg("--version").succeeds()
}

/// Debian keeps PostgreSQL's server programs out of `PATH`.
fn has_postgres() -> bool {
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let packaged = packaged.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(packaged).collect();
    let has_both = |folder: &PathBuf| {
        ["initdb", "postgres"]
            .iter()
            .all(|program| folder.join(program).is_file())
    };
    folders.iter().any(has_both)
}

const TOOLS: [Tool; 9] = [
    Tool {
        name: "rustfmt",
        present: has_rustfmt,
        install: "rustup component add rustfmt",
        without: None,
    },
    Tool {
        name: "clippy",
        present: has_clippy,
        install: "rustup component add clippy",
        without: None,
    },
    Tool {
        name: "a C compiler (for SQLite and ring)",
        present: has_c_compiler,
        install: "apt-get install -y gcc libc6-dev",
        without: None,
    },
    Tool {
        name: "Python 3.10 or later",
        present: has_python,
        install: "apt-get install -y python3",
        without: None,
    },
    Tool {
        name: "Python's venv",
        present: has_venv,
        install: "apt-get install -y python3-venv",
        without: None,
    },
    Tool {
        name: "curl",
        present: has_curl,
        install: "apt-get install -y curl",
        without: None,
    },
    Tool {
        name: "PostgreSQL's server (initdb, postgres)",
        present: has_postgres,
        install: "apt-get install -y postgresql",
        without: None,
    },
    Tool {
        name: "Prometheus (prometheus, promtool)",
        present: has_prometheus,
        install: "apt-get install -y prometheus",
        without: None,
    },
    Tool {
        name: "cargo-nextest",
        present: has_nextest,
        install: "cargo install --locked cargo-nextest",
        without: Some("tests run by `cargo test`, one file after the other"),
    },
];
