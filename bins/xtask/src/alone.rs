//! Each library alone, bare and with each feature by itself.
//!
//! In a build of the whole workspace, features of one crate are on because another crate asks for them; a
//! missing `cfg` or a missing feature of a dependency shows up only alone.

use crate::{job::Job, steps::Outcome, workspace::Workspace};

/// Lints every library with no feature and with each of its features.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let mut checked = 0;
    for package in workspace.packages.iter().filter(|one| one.is_library()) {
        let bare = [None];
        let features = package.features.iter().map(Some);
        for feature in bare.into_iter().chain(features) {
            let job = Job::cargo()
                .args(["clippy", "--quiet", "--locked", "-p", &package.name])
                .args(["--lib", "--no-default-features"]);
            let job = match feature {
                None => job,
                Some(feature) => job.args(["--features", feature]),
            };
            job.args(["--", "-D", "warnings"]).run()?;
            checked += 1;
        }
    }
    Ok(Outcome::Passed(format!("{checked} ways to build")))
}
