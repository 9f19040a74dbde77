//! The steps of `cargo xtask ci`, in an order that fails early.

use anyhow::bail;

use crate::{
    alone,
    console::{heading, say},
    gates,
    leftovers::now,
    python, readme, rust, sim, structure,
    summary::Summary,
    tools,
    workspace::Workspace,
};

/// How a step ended, when it did not fail.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// All is well; with what is worth a word, or nothing.
    Passed(String),
    /// Not done, and why.
    Skipped(String),
}

/// One part of the checks.
#[derive(Clone, Copy, Debug)]
struct Step {
    name: &'static str,
    about: &'static str,
    /// Steps without which this one makes no sense.
    needs: &'static [&'static str],
    run: fn(&Workspace) -> anyhow::Result<Outcome>,
}

/// Says what there is.
pub(crate) fn list() {
    for step in STEPS {
        say(format_args!("{:<14}{}", step.name, step.about));
    }
}

/// Runs all steps, or those named and what they need; a failed step stops only those that need it.
///
/// # Errors
/// When a name is not that of a step.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> anyhow::Result<Summary> {
    if let Some(unknown) = only.iter().find(|name| step(name).is_none()) {
        bail!("there is no step {unknown}; `cargo xtask ci --list` lists them");
    }
    let mut summary = Summary::default();
    for step in STEPS.iter().filter(|step| is_wanted(step.name, only)) {
        heading(format_args!("{}: {}", step.name, step.about));
        let start = now();
        let unmet = step.needs.iter().find(|name| !summary.has_passed(name));
        let outcome = match unmet {
            Some(unmet) => Ok(Outcome::Skipped(format!("{unmet} did not pass"))),
            None => (step.run)(workspace),
        };
        if let Err(error) = &outcome {
            say(format_args!("{} FAILED: {error:#}", step.name));
        }
        summary.add(step.name, now() - start, outcome);
    }
    Ok(summary)
}

// === impl Outcome ===

impl Outcome {
    /// All is well, and there is nothing to say.
    pub(crate) fn passed() -> Self {
        Self::Passed(String::new())
    }
}

fn step(name: &str) -> Option<&'static Step> {
    STEPS.iter().find(|step| step.name == name)
}

fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty()
        || only
            .iter()
            .any(|wanted| wanted == name || needs(wanted, name))
}

/// Whether the step `name` needs `other`, at once or through others.
fn needs(name: &str, other: &str) -> bool {
    let direct = step(name).map(|step| step.needs).unwrap_or_default();
    direct
        .iter()
        .any(|need| *need == other || needs(need, other))
}

const STEPS: &[Step] = &[
    Step {
        name: "tools",
        about: "what the machine must have",
        needs: &[],
        run: tools::check,
    },
    Step {
        name: "fetch",
        about: "the locked dependencies can be fetched",
        needs: &[],
        run: rust::fetch,
    },
    Step {
        name: "fmt",
        about: "the code is formatted",
        needs: &[],
        run: rust::format,
    },
    Step {
        name: "structure",
        about: "names, lengths, manifests, the top level",
        needs: &[],
        run: structure::check,
    },
    Step {
        name: "gates",
        about: "who may know whom, and what an embedder carries",
        needs: &["fetch"],
        run: gates::check,
    },
    Step {
        name: "clippy",
        about: "no lint fires",
        needs: &["fetch"],
        run: rust::clippy,
    },
    Step {
        name: "alone",
        about: "each library alone, bare and per feature",
        needs: &["fetch"],
        run: alone::check,
    },
    Step {
        name: "build",
        about: "the programs, for the tests to start",
        needs: &["fetch"],
        run: rust::build,
    },
    Step {
        name: "test",
        about: "all Rust tests, the real-engine ones too",
        needs: &["build"],
        run: |workspace| rust::test(workspace, None),
    },
    Step {
        name: "sim",
        about: "a simulated cluster keeps its promises, whatever goes wrong",
        needs: &["fetch"],
        run: sim::check,
    },
    Step {
        name: "doctest",
        about: "the examples in docs and README",
        needs: &["fetch"],
        run: rust::doctest,
    },
    Step {
        name: "doc",
        about: "the docs build, every link leads somewhere",
        needs: &["fetch"],
        run: rust::docs,
    },
    Step {
        name: "examples",
        about: "every Rust example runs",
        needs: &["fetch"],
        run: rust::examples,
    },
    Step {
        name: "py-env",
        about: "a Python environment with the pinned tools",
        needs: &[],
        run: python::environment,
    },
    Step {
        name: "py-install",
        about: "pip install ./llmgw-py",
        needs: &["py-env"],
        run: python::install,
    },
    Step {
        name: "py-test",
        about: "pytest, the Python examples too",
        needs: &["build", "py-install"],
        run: python::test,
    },
    Step {
        name: "py-typing",
        about: "mypy --strict, and the stubs against the module",
        needs: &["py-install"],
        run: python::typing,
    },
    Step {
        name: "py-lint",
        about: "ruff check and format",
        needs: &["py-env"],
        run: python::lint,
    },
    Step {
        name: "readme",
        about: "README's Python blocks run",
        needs: &["py-install"],
        run: readme::check,
    },
    Step {
        name: "deny",
        about: "licences, sources, banned crates",
        needs: &["fetch"],
        run: rust::deny,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_needs_only_steps_before_it() {
        for (index, step) in STEPS.iter().enumerate() {
            for need in step.needs {
                let at = STEPS.iter().position(|other| other.name == *need);
                assert!(
                    at.is_some_and(|at| at < index),
                    "{} needs {need}",
                    step.name
                );
            }
        }
    }

    #[test]
    fn a_wanted_step_brings_what_it_needs() {
        let only = ["readme".to_owned()];
        let wanted: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        let wanted: Vec<_> = wanted
            .into_iter()
            .filter(|name| is_wanted(name, &only))
            .collect();
        assert_eq!(wanted, ["py-env", "py-install", "readme"]);
    }
}
