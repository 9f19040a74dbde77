//! Where answers go: a table for people, JSON or YAML for programs.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write},
};

use clap::ValueEnum;
use llmgw_core::terminal::{lines, one_line};
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
    remark: Option<Cow<'static, str>>,
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
            // Whatever it is made of: no terminal is told what to do by it.
            Self::Table => lines(&people(value)),
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
                remark: Some(none.into()),
            });
        }
        self.show(&values, |values| people(values))
    }
}

// === impl Shown ===

impl Shown {
    /// The same with something that is said about it.
    pub(crate) fn with_remark(self, remark: String) -> Self {
        Self {
            remark: Some(remark.into()),
            ..self
        }
    }

    /// No answer, but something that is said.
    pub(crate) fn remark(remark: &'static str) -> Self {
        Self {
            answer: String::new(),
            remark: Some(remark.into()),
        }
    }

    /// What is no answer by itself, but a line of one.
    pub(crate) fn line(line: String) -> Self {
        Self {
            answer: line,
            remark: None,
        }
    }

    /// The answer.
    #[cfg(test)]
    pub(crate) fn answer(&self) -> &str {
        &self.answer
    }

    /// Writes the answer in the place of the last one: on a screen, over it.
    pub(crate) fn over_the_last(mut self) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            // ECMA-48: to the upper left corner, and erase to the end of the screen.
            self.answer.insert_str(0, "\u{1b}[H\u{1b}[2J");
        } else {
            self.answer.push('\n');
        }
        self.write()
    }

    /// Writes the answer. A reader that has seen enough, as `head` does, is no failure.
    pub(crate) fn write(self) -> Result<(), Failure> {
        self.write_on().map(|_| ())
    }

    /// Writes a part of an answer that goes on. Says whether anybody reads it still.
    pub(crate) fn write_on(self) -> Result<bool, Failure> {
        let Self { answer, remark } = self;
        if let Some(remark) = remark {
            drop(writeln!(io::stderr().lock(), "{}", one_line(&remark)));
        }
        let mut out = io::stdout().lock();
        match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::new(
                Cause::Refused,
                format!("writing the answer: {error}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_what_others_wrote_and_programs_get_it_whole() {
        let evil = "a\u{1b}[2Jb".to_owned();
        let shown = |format: Format| format.show(&evil, Clone::clone).unwrap().answer;
        assert_eq!(shown(Format::Table), "a [2Jb");
        assert_eq!(
            serde_json::from_str::<String>(&shown(Format::Json)).unwrap(),
            evil
        );
    }
}
