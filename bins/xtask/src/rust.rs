//! The steps that cargo does: format, lints, build, tests, docs, examples.

use anyhow::bail;

use crate::{job::Job, steps::Outcome, tools, workspace::Workspace};

/// Everything in the lock file is here, or can be fetched.
pub(crate) fn fetch(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo().args(["fetch", "--locked"]).run()?;
    Ok(Outcome::passed())
}

/// The code is formatted as `.rustfmt.toml` says.
pub(crate) fn format(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo()
        .args(["fmt", "--all", "--check", "--", "--color", "never"])
        .run()?;
    Ok(Outcome::passed())
}

/// No lint of the workspace's table fires, in any target.
pub(crate) fn clippy(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo()
        .arg("clippy")
        .args(EVERYTHING)
        .args(["--all-targets", "--", "-D", "warnings"])
        .run()?;
    Ok(Outcome::passed())
}

/// The programs are built, so that tests can start them.
pub(crate) fn build(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo()
        .arg("build")
        .args(EVERYTHING)
        .arg("--bins")
        .run()?;
    Ok(Outcome::passed())
}

/// All tests pass, or those that match `filter`.
pub(crate) fn test(workspace: &Workspace, filter: Option<&str>) -> anyhow::Result<Outcome> {
    if !tools::has_nextest() {
        let job = Job::cargo()
            .arg("test")
            .args(EVERYTHING)
            .args(["--tests", "--no-fail-fast"]);
        filter.into_iter().fold(job, Job::arg).run()?;
        return Ok(Outcome::Passed("by `cargo test`".to_owned()));
    }
    let job = Job::cargo()
        .args(["nextest", "run"])
        .args(EVERYTHING)
        .args(["--no-fail-fast", "--profile", "ci"]);
    match filter {
        None => job.run()?,
        Some(filter) => job.args(["-E", &expression(workspace, filter)?]).run()?,
    }
    Ok(Outcome::passed())
}

/// The examples in the docs run.
pub(crate) fn doctest(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo()
        .args(["test", "--doc"])
        .args(EVERYTHING)
        .run()?;
    Ok(Outcome::passed())
}

/// The docs build, and every link in them leads somewhere.
pub(crate) fn docs(_: &Workspace) -> anyhow::Result<Outcome> {
    Job::cargo()
        .arg("doc")
        .args(EVERYTHING)
        .arg("--no-deps")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Outcome::passed())
}

/// Every example program runs to its end.
pub(crate) fn examples(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let mut names = Vec::new();
    for (package, example) in workspace.targets("example") {
        Job::cargo()
            .args(["run", "--quiet", "--locked", "-p", &package.name])
            .args(["--example", &example.name])
            .run()?;
        names.push(example.name.as_str());
    }
    if names.is_empty() {
        bail!("there is no example");
    }
    Ok(Outcome::Passed(names.join(", ")))
}

/// Licences, sources and banned crates, where cargo-deny is installed.
pub(crate) fn deny(_: &Workspace) -> anyhow::Result<Outcome> {
    if !tools::has_deny() {
        let reason = "cargo-deny is not installed: cargo install --locked cargo-deny";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    // Not the advisories: their database is fetched from a host that a closed site does not reach.
    Job::cargo()
        .args(["deny", "--all-features", "--config", ".deny.toml"])
        .args(["check", "bans", "licenses", "sources"])
        .run()?;
    Ok(Outcome::passed())
}

/// A nextest filter for tests whose name, package or file contains `filter`.
fn expression(workspace: &Workspace, filter: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-:./".contains(c);
    if filter.is_empty() || !filter.chars().all(plain) {
        bail!(
            "{filter:?} is not a part of a test's name: use letters, digits and any of _ - : . /"
        );
    }
    // nextest takes a pattern that no package or file can match for a mistake.
    let mut expression = format!("test(~{filter})");
    let mut packages = workspace.packages.iter();
    if packages.any(|package| package.name.contains(filter)) {
        expression.push_str(&format!(" | package(~{filter})"));
    }
    let mut files = workspace.targets("test");
    if files.any(|(_, file)| file.name.contains(filter)) {
        expression.push_str(&format!(" | binary(~{filter})"));
    }
    Ok(expression)
}

const EVERYTHING: [&str; 3] = ["--workspace", "--all-features", "--locked"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_asks_only_for_packages_and_files_that_there_are() {
        let workspace = Workspace::of(&[("llmgw-core", &["store_sqlite"]), ("llmgw", &["up"])]);
        for (filter, expected) in [
            ("core", "test(~core) | package(~core)"),
            ("store", "test(~store) | binary(~store)"),
            ("up", "test(~up) | binary(~up)"),
            ("retries", "test(~retries)"),
        ] {
            assert_eq!(expression(&workspace, filter).unwrap(), expected);
        }
    }

    #[test]
    fn a_filter_can_only_be_a_part_of_a_name() {
        let workspace = Workspace::of(&[]);
        for bad in ["", "a) | all(", "a b"] {
            assert!(expression(&workspace, bad).is_err(), "{bad:?}");
        }
    }
}
