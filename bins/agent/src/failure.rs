//! Why the agent ends with a failure: one line, a hint, an exit code.

use std::process::ExitCode;

use llmgw_core::{
    error::{Chain, Coded},
    terminal::one_line,
};

/// What is told before the end.
#[derive(Debug)]
pub(crate) struct Failure {
    line: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// Something went wrong.
    pub(crate) fn of<E: Coded + 'static>(error: &E) -> Self {
        Self {
            line: Chain(error).to_string(),
            hint: error.hint(),
            code: FAILED,
        }
    }

    /// Something went wrong, and there is no more to say.
    pub(crate) fn plain(line: String) -> Self {
        Self {
            line,
            hint: None,
            code: FAILED,
        }
    }

    /// Something that was given can't be right.
    pub(crate) fn input<E: Coded + 'static>(error: &E) -> Self {
        Self {
            code: WRONG_INPUT,
            ..Self::of(error)
        }
    }

    /// Something that was given can't be right, in our own words.
    pub(crate) fn wrong(line: String, hint: &str) -> Self {
        Self {
            line,
            hint: Some(hint.to_owned()),
            code: WRONG_INPUT,
        }
    }

    /// Tells it, and says what the process ends with.
    #[expect(
        clippy::print_stderr,
        reason = "this is where a command says why it failed"
    )]
    pub(crate) fn report(self) -> ExitCode {
        let Self { line, hint, code } = self;
        eprintln!("error: {}", one_line(&line));
        if let Some(hint) = hint {
            eprintln!("hint: {}", one_line(&hint));
        }
        ExitCode::from(code)
    }
}

const FAILED: u8 = 1;
/// As clap ends for a flag that it doesn't know.
const WRONG_INPUT: u8 = 2;
