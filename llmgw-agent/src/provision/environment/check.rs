//! What the script says that checks an environment, and what follows from it.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use llmgw_core::{error::Chain, fingerprint::Fingerprint, id::EngineName};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::problem::{EnvironmentProblem, Stage};
use crate::{
    command::{Helper, HelperError, Inherits, Listener, Patience},
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

/// How much of an environment is looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Depth {
    /// Versions, and the libraries that its objects need.
    Files,
    /// Also what it does: devices, import, its own word.
    Whole,
}

// === impl Check ===

impl Check<'_> {
    /// Checks the whole environment; or its versions and libraries alone, when nothing has changed since it was last
    /// found to be right: to import torch and an engine takes minutes of a processor, and tells nothing new then.
    pub(super) async fn run(&self, told: &(dyn Fn(String) + Send + Sync)) -> Findings {
        let environment = self.python.ancestors().nth(2).map(Path::to_owned);
        let looks = spawn_blocking(move || looks(environment.as_deref())).await;
        let looks = looks.ok().flatten();
        let key = self.python.to_owned();
        let known = self.shop.checked_whole(&key);
        let depth = if looks.is_some() && known == looks {
            Depth::Files
        } else {
            Depth::Whole
        };
        let findings = self.look(depth, told).await;
        match depth {
            Depth::Whole if findings.problems.is_empty() => self.shop.keep_checked(key, looks),
            // Whatever is wrong, next time all of it is looked at.
            _ if !findings.problems.is_empty() => self.shop.keep_checked(key, None),
            Depth::Whole | Depth::Files => {}
        }
        findings
    }

    /// Runs the script to its end, or to its deadline.
    async fn look(&self, depth: Depth, told: &(dyn Fn(String) + Send + Sync)) -> Findings {
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
        let mut args = vec![
            "-I".into(),
            self.script.into(),
            self.engine.as_str().into(),
            lock.into(),
        ];
        if depth == Depth::Files {
            args.push("files".into());
        }
        let helper = Helper {
            program: self.python,
            args,
            env: &env,
            inherits: Inherits::Basics,
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

/// What an environment looks like: each of its files by size and time, and the driver that it finds. `None` when it can't
/// be looked at whole.
fn looks(environment: Option<&Path>) -> Option<Fingerprint> {
    let mut text: Vec<String> = DRIVER_VERSIONS
        .iter()
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .collect();
    let mut waiting = vec![environment?.join("lib")];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).ok()? {
            let entry = entry.ok()?;
            let path = entry.path();
            // Python keeps there what it has read, whenever it likes.
            if entry.file_name() == "__pycache__" {
                continue;
            }
            let found = entry.metadata().ok()?;
            if found.is_dir() {
                waiting.push(path);
                continue;
            }
            if text.len() >= MOST_FILES {
                return None;
            }
            text.push(format!(
                "{} {} {}.{}",
                path.display(),
                found.len(),
                found.mtime(),
                found.mtime_nsec()
            ));
        }
    }
    text.sort();
    Some(Fingerprint::of_bytes(text.join("\n").as_bytes()))
}

fn read(line: &str) -> Option<Line> {
    serde_json::from_str(line.strip_prefix(MARK)?).ok()
}

/// Before each line of the script: what packages print on their own is not taken for it.
const MARK: &str = "llmgw-check ";
/// Five stages with at most twenty problems each.
const MOST_LINES: usize = 200;
/// Where a driver says which one it is: an environment that worked with the one before is tried again.
const DRIVER_VERSIONS: [&str; 2] = ["/sys/module/nvidia/version", "/sys/module/amdgpu/version"];
/// Environments of engines have up to about 60,000.
const MOST_FILES: usize = 300_000;
/// Libraries that come with the driver, and with nothing else.
const DRIVER: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

#[cfg(test)]
mod tests;
