//! What the script says that checks an environment, and what follows from it.

use std::path::Path;

use llmgw_core::{error::Chain, id::EngineName};
use serde::Deserialize;

use super::problem::{EnvironmentProblem, Stage};
use crate::{
    command::{Helper, HelperError, Listener, Patience},
    provision::{Shop, program::NOT_INHERITED},
};

/// One line of the script.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    stage: String,
    done: bool,
    failed: Option<String>,
    package: Option<String>,
    want: Option<String>,
    have: Option<String>,
    object: Option<String>,
    library: Option<String>,
    unreadable: Option<String>,
    gpu: Option<bool>,
    version: Option<String>,
    cuda: Option<String>,
    hip: Option<String>,
    available: Option<bool>,
    devices: Option<u64>,
    says: Option<String>,
    metadata: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Findings {
    /// What the engine says that it is, when it did.
    pub(super) version: Option<String>,
    pub(super) problems: Vec<EnvironmentProblem>,
}

/// What is to be checked.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub(super) shop: &'a Shop,
    pub(super) engine: &'a EngineName,
    pub(super) python: &'a Path,
    pub(super) script: &'a Path,
    /// What is pinned; absent for an environment that somebody else has made.
    pub(super) lock: Option<&'a Path>,
    pub(super) directory: &'a Path,
}

// === impl Check ===

impl Check<'_> {
    /// Runs the script to its end, or to its deadline.
    pub(super) async fn run(&self, told: &(dyn Fn(String) + Send + Sync)) -> Findings {
        let lock = self.lock.unwrap_or_else(|| Path::new("-"));
        let listener = |line: &str| {
            if let Some(line) = read(line)
                && let Some(stage) = Stage::named(&line.stage).filter(|_| !line.done)
                && line.package.is_none()
                && line.object.is_none()
            {
                told(format!("checking {}: {stage}", self.engine));
            }
        };
        let mut env = self.shop.config.marker_env.clone();
        // As the engine is started later: nothing is asked of a hub, no statistics are sent.
        env.extend(
            [("HF_HUB_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1")]
                .map(|(name, value)| (name.into(), value.into())),
        );
        let helper = Helper {
            program: self.python,
            args: vec![
                "-I".into(),
                self.script.into(),
                self.engine.as_str().into(),
                lock.into(),
            ],
            env: &env,
            without: NOT_INHERITED,
            directory: self.directory,
            patience: Patience::Whole(self.shop.times.environment),
        };
        let heard = std::sync::Mutex::new(Vec::new());
        let hears = |line: &str| {
            listener(line);
            if line.starts_with(MARK)
                && let Ok(mut heard) = heard.lock()
                && heard.len() < MOST_LINES
            {
                heard.push(line.to_owned());
            }
        };
        let finished = helper
            .run(&Listener {
                line: &hears,
                filling: None,
            })
            .await;
        let heard = heard.into_inner().unwrap_or_default();
        let end = match &finished {
            Ok(finished) if finished.status.success() => End::Whole,
            Ok(finished) => End::Early {
                how: finished.how(),
                said: finished.last_line().to_owned(),
            },
            Err(HelperError::Deadline { after, .. }) => End::Slow(*after),
            Err(error) => {
                let problem = EnvironmentProblem::Unrunnable(Chain(error).to_string());
                return Findings {
                    version: None,
                    problems: vec![problem],
                };
            }
        };
        judge(self.engine.as_str(), &heard, end)
    }
}

/// How the script ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// By itself, with 0.
    Whole,
    /// By itself otherwise, or by a signal.
    Early {
        /// How.
        how: String,
        /// What it said last.
        said: String,
    },
    /// By us, after so long.
    Slow(std::time::Duration),
}

/// Reads what was heard. What is missing is a problem: silence proves nothing.
pub(super) fn judge(engine: &str, heard: &[String], end: End) -> Findings {
    let mut findings = Findings {
        version: None,
        problems: Vec::new(),
    };
    let mut at = Stage::Start;
    let mut finished = None;
    let mut needs_gpu = false;
    for line in heard.iter().filter_map(|line| read(line)) {
        let Some(stage) = Stage::named(&line.stage) else {
            continue;
        };
        at = stage;
        if line.done {
            finished = Some(stage);
        }
        needs_gpu = line.gpu.unwrap_or(needs_gpu);
        findings.take(engine, stage, line, needs_gpu);
    }
    match end {
        End::Whole if finished == Some(Stage::Version) => {}
        End::Whole => findings.problems.push(EnvironmentProblem::Ended {
            stage: at,
            how: "no answer".to_owned(),
            said: "it says nothing more".to_owned(),
        }),
        End::Early { how, said } => {
            findings.problems.push(EnvironmentProblem::Ended {
                stage: at,
                how,
                said,
            });
        }
        End::Slow(after) => {
            findings
                .problems
                .push(EnvironmentProblem::Slow { stage: at, after });
        }
    }
    // The cause of the others comes first: without a driver nothing can be imported.
    findings
        .problems
        .sort_by_key(|problem| !matches!(problem, EnvironmentProblem::NoDriver { .. }));
    findings.problems.dedup();
    findings
}

// === impl Findings ===

impl Findings {
    fn take(&mut self, engine: &str, stage: Stage, line: Line, needs_gpu: bool) {
        if let Some(said) = line.failed {
            self.problems
                .push(EnvironmentProblem::Failed { stage, said });
            return;
        }
        match stage {
            Stage::Start => {}
            Stage::Versions => {
                if let (Some(package), Some(want)) = (line.package, line.want) {
                    self.problems.push(EnvironmentProblem::Version {
                        package,
                        want,
                        have: line.have,
                    });
                }
            }
            Stage::Libraries => match (line.object, line.library, line.unreadable) {
                (Some(_), Some(library), _) if DRIVER.contains(&library.as_str()) => {
                    self.problems.push(EnvironmentProblem::NoDriver {
                        engine: engine.to_owned(),
                    });
                }
                (Some(object), Some(library), _) => {
                    self.problems
                        .push(EnvironmentProblem::Library { object, library });
                }
                (Some(object), None, Some(said)) => {
                    let said = format!("{object} can't be read: {said}");
                    self.problems
                        .push(EnvironmentProblem::Failed { stage, said });
                }
                _ => {}
            },
            Stage::Torch => {
                let (Some(torch), Some(cuda), None) = (line.version, line.cuda, line.hip) else {
                    return;
                };
                let has_driver = !self
                    .problems
                    .iter()
                    .any(|problem| matches!(problem, EnvironmentProblem::NoDriver { .. }));
                if needs_gpu && has_driver {
                    match (line.available, line.devices) {
                        (Some(true), Some(1..)) => {}
                        (Some(true), _) => self.problems.push(EnvironmentProblem::NoGpu { torch }),
                        _ => self
                            .problems
                            .push(EnvironmentProblem::Driver { torch, cuda }),
                    }
                }
            }
            Stage::Import => {}
            Stage::Version => {
                if let (Some(says), Some(want)) = (line.says, line.metadata) {
                    if says.split('+').next() != Some(want.as_str()) {
                        self.problems.push(EnvironmentProblem::Says { says, want });
                    } else {
                        self.version = Some(says);
                    }
                }
            }
        }
    }
}

fn read(line: &str) -> Option<Line> {
    serde_json::from_str(line.strip_prefix(MARK)?).ok()
}

/// Before each line of the script: what packages print on their own is not taken for it.
const MARK: &str = "llmgw-check ";
/// Five stages with at most twenty problems each.
const MOST_LINES: usize = 200;
/// Libraries that come with the driver, and with nothing else.
const DRIVER: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

#[cfg(test)]
mod tests;
