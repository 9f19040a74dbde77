//! Where answers go: a table for people, JSON or YAML for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{Cause, Failure};

/// How an answer is shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// For programs, as JSON; `ctl` has it as the admin API says it
    Json,
    /// For programs, as YAML
    Yaml,
}

/// An answer, ready to be written.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Shown {
    /// The answer itself: standard output.
    answer: String,
    /// What is said about it: standard error.
    remark: Option<&'static str>,
}

// === impl Format ===

impl Format {
    /// Shows one thing; `people` is the form for people.
    pub(crate) fn show<T: Serialize>(
        self,
        value: &T,
        people: impl FnOnce(&T) -> String,
    ) -> Result<Shown, Failure> {
        let failed = |error: &dyn ToString| Failure::new(Cause::Refused, error.to_string());
        let answer = match self {
            Self::Table => people(value),
            Self::Json => {
                let mut json =
                    serde_json::to_string_pretty(value).map_err(|error| failed(&error))?;
                json.push('\n');
                json
            }
            Self::Yaml => serde_saphyr::to_string(value).map_err(|error| failed(&error))?,
        };
        Ok(Shown {
            answer,
            remark: None,
        })
    }

    /// Shows a list; people get a remark instead of an empty table.
    pub(crate) fn list<T: Serialize>(
        self,
        values: &[T],
        people: impl FnOnce(&[T]) -> String,
        none: &'static str,
    ) -> Result<Shown, Failure> {
        if self == Self::Table && values.is_empty() {
            return Ok(Shown {
                answer: String::new(),
                remark: Some(none),
            });
        }
        self.show(&values, |values| people(values))
    }
}

// === impl Shown ===

impl Shown {
    /// Writes the answer. A reader that has seen enough, as `head` does, is no failure.
    pub(crate) fn write(self) -> Result<(), Failure> {
        let Self { answer, remark } = self;
        if let Some(remark) = remark {
            drop(writeln!(io::stderr().lock(), "{remark}"));
        }
        let mut out = io::stdout().lock();
        match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
                Cause::Refused,
                format!("writing the answer: {error}"),
            )),
            _ => Ok(()),
        }
    }
}
