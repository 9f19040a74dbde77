//! The benches: which there are, and running one.

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{console::say, job::Job, workspace::Workspace};

/// Runs the bench of this name with these arguments, or lists all.
pub(crate) fn run(
    workspace: &Workspace,
    name: Option<&str>,
    args: &[String],
) -> anyhow::Result<()> {
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
    // Cargo would run it in the folder of its package: paths are those of who asks.
    let built = Job::cargo()
        .args(["bench", "--locked", "--no-run", "--all-features"])
        .args(["-p", &package.name])
        .args([
            "--bench",
            &bench.name,
            "--message-format",
            "json-render-diagnostics",
        ])
        .read()?;
    Job::new(executable(&built, &bench.name)?).args(args).run()
}

/// The program that cargo says it built for this bench.
pub(crate) fn executable(built: &str, bench: &str) -> anyhow::Result<String> {
    let mut messages = built
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = |message: &Value| message["target"]["name"] == bench;
    let path = |message: Value| {
        let path = message["executable"].as_str().map(ToOwned::to_owned);
        path.filter(|_| ours(&message))
    };
    let executable = messages.find_map(path);
    executable.with_context(|| format!("cargo built no program for the bench {bench}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_bench_is_found_among_what_cargo_built() {
        let built = r#"{"reason":"compiler-artifact","target":{"name":"lib"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"speed"},"executable":"/t/speed-1"}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(built, "speed").unwrap(), "/t/speed-1");
        let missing = executable(built, "lib").unwrap_err();
        assert!(
            missing.to_string().contains("no program for the bench lib"),
            "{missing}"
        );
    }
}
