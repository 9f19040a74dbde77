//! Everything at once, for as long as it is told; outside CI.

use std::time::Duration;

use anyhow::Context as _;

use crate::{bench::executable, job::Job};

/// Builds what is shipped and the bench that tries it, and runs that with these arguments.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let minutes = minutes(args)?;
    // The bench starts it as a process of its own.
    let agent = Job::cargo().args(["build", "--quiet", "--locked", "-p", "llmgw-agentd"]);
    agent.run()?;
    let bench = [
        "bench",
        "--profile",
        "dev",
        "--locked",
        "--no-run",
        "-p",
        "llmgw-server",
    ];
    let built = Job::cargo()
        .args(bench)
        .args([
            "--bench",
            SOAK,
            "--message-format",
            "json-render-diagnostics",
        ])
        .read()?;
    Job::new(executable(&built, SOAK)?)
        .args(args)
        .limit(Duration::from_secs_f64(minutes * 60.0) + MORE)
        .run()
}

/// How long it is told to run.
fn minutes(args: &[String]) -> anyhow::Result<f64> {
    let mut args = args.iter();
    let text = loop {
        match args.next().map(String::as_str) {
            None => return Ok(USUAL),
            Some("--minutes") => break args.next().context("--minutes says no number")?.as_str(),
            Some(arg) => {
                if let Some(text) = arg.strip_prefix("--minutes=") {
                    break text;
                }
            }
        }
    };
    let minutes: f64 = text.parse().with_context(|| format!("--minutes {text}"))?;
    anyhow::ensure!(
        (0.0..=MOST).contains(&minutes),
        "--minutes {text} is not between 0 and {MOST}"
    );
    Ok(minutes)
}

const SOAK: &str = "soak";
/// What the bench takes when it is told nothing.
const USUAL: f64 = 10.0;
/// A week.
const MOST: f64 = 10_080.0;
/// To start it all, and to count in the end.
const MORE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_run_is_among_what_it_is_told() {
        let of = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(ToOwned::to_owned).collect();
            minutes(&args).map_err(|error| error.to_string())
        };
        assert_eq!(of("--seed 3"), Ok(USUAL));
        assert_eq!(of("--seed 3 --minutes 60 --json x"), Ok(60.0));
        assert_eq!(of("--minutes=0.5"), Ok(0.5));
        assert!(of("--minutes").is_err());
        assert!(of("--minutes soon").unwrap_err().contains("--minutes soon"));
        assert!(of("--minutes 1e9").unwrap_err().contains("is not between"));
    }
}
