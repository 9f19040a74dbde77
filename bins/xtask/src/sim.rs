//! The simulation of a whole cluster, from many seeds.

use crate::{job::Job, steps::Outcome, workspace::Workspace};

/// A thousand seeds keep every promise, and each fault that is planted is found.
pub(crate) fn check(_: &Workspace) -> anyhow::Result<Outcome> {
    run(&[])?;
    run(&["--planted".to_owned()])?;
    Ok(Outcome::Passed("1000 seeds".to_owned()))
}

/// Runs it with these arguments.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    Job::cargo()
        .args(["bench", "--quiet", "--locked", "--profile", "sim"])
        .args(["-p", "llmgw-sched", "--features", "sim", "--bench", "sim"])
        .arg("--")
        .args(args)
        .run()
}
