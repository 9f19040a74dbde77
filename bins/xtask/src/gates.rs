//! Who may know whom, and what an embedder must not have to carry.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};

use crate::{
    console::say,
    job::Job,
    steps::Outcome,
    workspace::{Package, Workspace},
};

/// Checks the dependency tables of the whole workspace; fails with every breach.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let mut breaches = Vec::new();
    for package in &workspace.packages {
        breaches.extend(points_back(package));
    }
    let mut counts = Vec::new();
    for name in LIGHT {
        let package = workspace.package(name).context(name)?;
        if !package.default_features.is_empty() {
            breaches.push(format!("{name} has default features; it must have none"));
        }
        let crates = tree(&["-p", name, "-e", "normal", "--no-default-features"])?;
        breaches.extend(found(
            &crates,
            |one| HEAVY.iter().any(|heavy| is_part(one, heavy)),
            name,
        ));
        counts.push(format!("{name} {}", crates.len()));
    }
    let everything = tree(&["--workspace", "--all-features", "-e", "normal,build"])?;
    breaches.extend(found(
        &everything,
        |one| BANNED.contains(&one),
        "the workspace",
    ));
    counts.push(format!("the workspace {}", everything.len()));

    if breaches.is_empty() {
        return Ok(Outcome::Passed(format!("crates: {}", counts.join(", "))));
    }
    for breach in &breaches {
        say(breach);
    }
    bail!(breaches.join("; "))
}

/// Our own packages that `package` depends on and must not know.
fn points_back(package: &Package) -> Vec<String> {
    let own = |name: &str| MAY_KNOW.iter().find(|(own, _)| *own == name);
    let Some((_, allowed)) = own(&package.name) else {
        return vec![format!(
            "{} has no row in the table of who may know whom",
            package.name
        )];
    };
    let known = package.dependencies.iter();
    known
        .filter(|name| own(name).is_some())
        .filter(|name| !allowed.contains(&name.as_str()))
        .map(|name| format!("{} must not know {name}", package.name))
        .collect()
}

/// Those of `crates` that are `unwanted`.
fn found(crates: &BTreeSet<String>, unwanted: impl Fn(&str) -> bool, whose: &str) -> Vec<String> {
    crates
        .iter()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| unwanted(name))
        .map(|name| format!("{whose} pulls in {name}"))
        .collect()
}

/// Whether a crate is `of`, or a part of it such as `tokio-util` of `tokio`.
fn is_part(name: &str, of: &str) -> bool {
    name.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The crates of a tree, with their versions.
fn tree(arguments: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let text = Job::cargo()
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .read()?;
    let crates = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    Ok(crates.collect())
}

/// What another service can embed for next to nothing.
const LIGHT: [&str; 3] = ["llmgw-core", "llmgw-sched", "llmgw-bundle"];

/// An async runtime, HTTP, SQL, TLS.
const HEAVY: [&str; 7] = [
    "tokio", "hyper", "tower", "axum", "sqlx", "rustls", "reqwest",
];

/// TLS is rustls with ring, everywhere: one provider to watch, no C library of the system to match.
const BANNED: [&str; 5] = [
    "openssl",
    "openssl-sys",
    "native-tls",
    "aws-lc-rs",
    "aws-lc-sys",
];

/// Each package of ours, and those that it may depend on; nothing points back. A program may know every library.
const MAY_KNOW: [(&str, &[&str]); 10] = [
    ("llmgw-core", &[]),
    ("llmgw-sched", &["llmgw-core"]),
    ("llmgw-bundle", &["llmgw-core"]),
    ("llmgw-agent", &["llmgw-core", "llmgw-bundle"]),
    ("llmgw-py", &["llmgw-core", "llmgw-sched", "llmgw-bundle"]),
    (
        "llmgw-server",
        &["llmgw-core", "llmgw-sched", "llmgw-bundle"],
    ),
    (
        "llmgw-agentd",
        &["llmgw-core", "llmgw-bundle", "llmgw-agent"],
    ),
    (
        "llmgw",
        &[
            "llmgw-core",
            "llmgw-sched",
            "llmgw-agent",
            "llmgw-bundle",
            "llmgw-server",
        ],
    ),
    (
        "llmgw-examples",
        &["llmgw-core", "llmgw-sched", "llmgw-agent", "llmgw-bundle"],
    ),
    ("xtask", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let mut workspace = Workspace::of(&[(name, &[])]);
        let mut package = workspace.packages.remove(0);
        package.dependencies = dependencies.iter().map(ToString::to_string).collect();
        package
    }

    #[test]
    fn a_dependency_that_points_back_is_a_breach() {
        assert!(points_back(&package("llmgw-sched", &["llmgw-core", "serde"])).is_empty());
        for (name, dependency) in [
            ("llmgw-agent", "llmgw-sched"),
            ("llmgw-core", "llmgw-agent"),
            ("llmgw-sched", "llmgw-server"),
        ] {
            let breaches = points_back(&package(name, &[dependency]));
            assert_eq!(breaches, [format!("{name} must not know {dependency}")]);
        }
        assert_eq!(points_back(&package("newcomer", &[])).len(), 1);
    }

    #[test]
    fn a_part_of_a_crate_is_told_from_a_namesake() {
        assert!(is_part("tokio", "tokio"));
        assert!(is_part("tokio-util", "tokio"));
        assert!(!is_part("tokiort", "tokio"));
    }

    #[test]
    fn an_unwanted_crate_is_named_with_whose_it_is() {
        let crates = ["openssl-sys v0.9.0", "openssl-probe v0.2.0"];
        let crates = crates.map(ToOwned::to_owned).into();
        let breaches = found(&crates, |name| BANNED.contains(&name), "x");
        assert_eq!(breaches, ["x pulls in openssl-sys"]);
    }
}
