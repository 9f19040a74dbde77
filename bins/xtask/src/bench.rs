//! The benches: which there are, and running one.

use anyhow::bail;

use crate::{console::say, job::Job, workspace::Workspace};

/// Runs the bench of this name, or lists all.
pub(crate) fn run(workspace: &Workspace, name: Option<&str>) -> anyhow::Result<()> {
    let mut benches = workspace.targets("bench");
    let Some(name) = name else {
        let names: Vec<String> = benches
            .map(|(package, bench)| format!("{} ({})", bench.name, package.name))
            .collect();
        if names.is_empty() {
            say("there is no bench; one is added with the room that it measures");
        }
        for name in names {
            say(name);
        }
        return Ok(());
    };
    let Some((package, bench)) = benches.find(|(_, bench)| bench.name == name) else {
        bail!("there is no bench {name}; `cargo xtask bench` lists those there are");
    };
    Job::cargo()
        .args(["bench", "--locked", "-p", &package.name])
        .args(["--bench", &bench.name])
        .run()
}
