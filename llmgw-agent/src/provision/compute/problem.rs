//! Why an installed build was not found to compute.

use std::{fmt, time::Duration};

use llmgw_core::error::{Code, Coded};

use crate::process::Exit;

/// What a build did instead of computing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeProblem {
    /// It could not be tried.
    #[error("it could not be tried: {0}")]
    Untried(String),
    /// A signal ended it.
    #[error("{} while {phase}: {}", name(*signal), meaning(*signal))]
    Signal {
        /// The number.
        signal: i32,
        /// What it was doing.
        phase: Phase,
        /// The last lines that it printed.
        said: Vec<String>,
    },
    /// It ended by itself.
    #[error("it exited with {status} while {phase}: {}", last(said))]
    Exited {
        /// The status.
        status: i32,
        /// What it was doing.
        phase: Phase,
        /// The last lines that it printed.
        said: Vec<String>,
    },
    /// It took too long.
    #[error("it was still {phase} a tiny model after {} s", after.as_secs_f32())]
    Hang {
        /// What it was doing.
        phase: Phase,
        /// How long it had.
        after: Duration,
    },
    /// It computed something else.
    #[error("it computed {got} instead of {expected}")]
    WrongTokens {
        /// The tokens that follow.
        expected: String,
        /// The tokens that it gave.
        got: String,
    },
    /// It computed the right thing in the wrong place.
    #[error("it was to compute on a GPU and computed on the processor ({said})")]
    SilentCpu {
        /// What it said of that.
        said: String,
    },
    /// It answered, and without tokens.
    #[error("it gave no tokens: {0}")]
    Unanswered(String),
}

/// What a build was doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Starting, and loading the model.
    Loading,
    /// Answering.
    Computing,
}

impl ComputeProblem {
    /// Whether it died of an instruction that the processor does not have.
    pub(in crate::provision) fn is_illegal_instruction(&self) -> bool {
        matches!(self, Self::Signal { signal: SIGILL, .. })
    }

    /// The last lines that it printed, where they tell more than the problem does.
    #[must_use]
    pub fn said(&self) -> &[String] {
        match self {
            Self::Signal { said, .. } | Self::Exited { said, .. } => said,
            _ => &[],
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loading => "loading",
            Self::Computing => "computing",
        })
    }
}

impl Coded for ComputeProblem {
    fn code(&self) -> Code {
        match self {
            Self::Untried(_) => Code::Internal,
            _ => Code::Unavailable,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Untried(_) => "check the rights and the free space of the data directory",
            Self::Signal { signal: SIGILL, .. } => {
                "use another build for this processor, or in a virtual machine the processor type host"
            }
            Self::Signal {
                signal: SIGKILL, ..
            } => "the kernel does this when memory runs out",
            Self::Signal { .. } => "use another build; the fault is in this one, or in a driver",
            Self::Exited { .. } => "the last lines that it printed say why",
            Self::Hang { .. } => {
                "use another build, or look whether the machine or its GPU is stuck"
            }
            Self::WrongTokens { .. } => {
                "do not use this build here: it computes wrongly on this machine"
            }
            Self::SilentCpu { .. } => {
                "the build's GPU runtime or the driver is missing or too old: look at its list of devices"
            }
            Self::Unanswered(_) => "is it a llama.cpp server of 2025 or later?",
        };
        Some(hint.to_owned())
    }
}

fn name(signal: i32) -> String {
    let said = Exit::Signal(signal).to_string();
    said.strip_prefix("was ended by ")
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

fn meaning(signal: i32) -> &'static str {
    match signal {
        SIGILL => "this build uses instructions that this CPU lacks",
        SIGABRT => "this build gave up",
        SIGBUS | SIGFPE | SIGSEGV => "this build crashes on this machine",
        SIGKILL => "something has killed it",
        _ => "something has ended it",
    }
}

fn last(said: &[String]) -> &str {
    said.last().map_or("it printed nothing", String::as_str)
}

// The numbers on x86-64 and on arm64.
pub(super) const SIGILL: i32 = 4;
pub(super) const SIGABRT: i32 = 6;
pub(super) const SIGBUS: i32 = 7;
pub(super) const SIGFPE: i32 = 8;
const SIGKILL: i32 = 9;
pub(super) const SIGSEGV: i32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_said_with_what_it_means_here() {
        let problem = |signal, phase| ComputeProblem::Signal {
            signal,
            phase,
            said: Vec::new(),
        };
        assert_eq!(
            problem(SIGILL, Phase::Loading).to_string(),
            "SIGILL while loading: this build uses instructions that this CPU lacks"
        );
        assert_eq!(
            problem(SIGSEGV, Phase::Computing).to_string(),
            "SIGSEGV while computing: this build crashes on this machine"
        );
        assert_eq!(
            problem(64, Phase::Loading).to_string(),
            "signal 64 while loading: something has ended it"
        );
    }

    #[test]
    fn an_exit_is_said_with_the_last_line() {
        let exited = |said: &[&str]| ComputeProblem::Exited {
            status: 1,
            phase: Phase::Loading,
            said: said.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(
            exited(&["a", "no such file"]).to_string(),
            "it exited with 1 while loading: no such file"
        );
        assert_eq!(
            exited(&[]).to_string(),
            "it exited with 1 while loading: it printed nothing"
        );
    }
}
