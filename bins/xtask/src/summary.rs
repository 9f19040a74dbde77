//! What became of each step, at the end and in one look.

use std::{process::ExitCode, time::Duration};

use crate::{job::Failure, steps::Outcome};

/// The results of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    results: Vec<StepResult>,
}

#[derive(Debug)]
struct StepResult {
    name: &'static str,
    took: Duration,
    outcome: anyhow::Result<Outcome>,
}

impl Summary {
    /// Adds the result of a step.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        took: Duration,
        outcome: anyhow::Result<Outcome>,
    ) {
        self.results.push(StepResult {
            name,
            took,
            outcome,
        });
    }

    /// Whether the step of this name has run, and has not failed.
    pub(crate) fn has_passed(&self, name: &str) -> bool {
        let result = self.results.iter().find(|result| result.name == name);
        result.is_some_and(|result| matches!(result.outcome, Ok(Outcome::Passed(_))))
    }

    /// Success unless a step has failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failures().next().is_none() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// A line for each step, the last lines of those that failed, and the counts.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from("\n==> summary\n");
        for StepResult {
            name,
            took,
            outcome,
        } in &self.results
        {
            let seconds = took.as_secs_f64();
            let outcome = match outcome {
                Ok(Outcome::Passed(note)) if note.is_empty() => "ok".to_owned(),
                Ok(Outcome::Passed(note)) => format!("ok ({note})"),
                Ok(Outcome::Skipped(reason)) => format!("skipped ({reason})"),
                Err(_) => "FAILED".to_owned(),
            };
            line(&mut text, &format!("{name:<14}{seconds:>7.1} s  {outcome}"));
        }
        for (name, error) in self.failures() {
            line(&mut text, &format!("\n{name} FAILED: {error:#}"));
            if let Some(failure) = error.downcast_ref::<Failure>() {
                for last in &failure.tail {
                    line(&mut text, &format!("    {last}"));
                }
            }
        }
        let failed = self.failures().count();
        let skipped = self
            .results
            .iter()
            .filter(|result| matches!(result.outcome, Ok(Outcome::Skipped(_))))
            .count();
        let passed = self.results.len() - failed - skipped;
        let mut counts = format!("\n{passed} passed, {failed} failed");
        if skipped > 0 {
            counts.push_str(&format!(", {skipped} skipped"));
        }
        text + &counts
    }

    fn failures(&self) -> impl Iterator<Item = (&'static str, &anyhow::Error)> {
        self.results
            .iter()
            .filter_map(|result| Some((result.name, result.outcome.as_ref().err()?)))
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(outcomes: Vec<anyhow::Result<Outcome>>) -> Summary {
        let mut summary = Summary::default();
        for outcome in outcomes {
            summary.add("step", Duration::from_millis(1250), outcome);
        }
        summary
    }

    #[test]
    fn each_step_has_a_line_and_the_counts_come_last() {
        let text = summary(vec![
            Ok(Outcome::passed()),
            Ok(Outcome::Skipped("no tool".to_owned())),
            Err(anyhow::anyhow!("broken")),
        ])
        .render();
        for line in [
            "step              1.2 s  ok",
            "step              1.2 s  skipped (no tool)",
            "step              1.2 s  FAILED",
            "step FAILED: broken",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
    }

    #[test]
    fn a_skipped_step_is_no_failure_and_a_failed_one_is() {
        let skipped = summary(vec![Ok(Outcome::Skipped(String::new()))]);
        assert_eq!(skipped.exit_code(), ExitCode::SUCCESS);
        assert!(!skipped.has_passed("step"));
        let failed = summary(vec![Ok(Outcome::passed()), Err(anyhow::anyhow!("x"))]);
        assert_eq!(failed.exit_code(), ExitCode::FAILURE);
    }
}
