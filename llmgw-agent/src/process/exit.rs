//! How a process ended, and the file in which a launcher tells it to lives of the agent that come later.

use std::{io, path::Path};

use llmgw_core::units::Bytes;
use serde::{Deserialize, Serialize};

use super::{identity::ProcessIdentity, signals};
use crate::durable;

/// How a process ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// By the kernel, because its tree used more memory than this.
    Memory(Bytes),
    /// Unseen: only its parent is told how, and nobody is left who was that.
    Unseen,
}

/// What stands in the file.
#[derive(Debug, Deserialize, Serialize)]
struct Told {
    process: ProcessIdentity,
    exit: Exit,
}

impl std::fmt::Display for Exit {
    /// Completes a sentence that begins with the name of what ended.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with {code}"),
            Self::Signal(number) => match signals::name(*number) {
                Some(name) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {number}"),
            },
            Self::Memory(limit) => write!(f, "was ended for using more than {limit} of memory"),
            Self::Unseen => f.write_str("has ended"),
        }
    }
}

/// Tells how a process ended.
pub(super) fn tell(file: &Path, process: &ProcessIdentity, exit: Exit) -> io::Result<()> {
    let told = Told {
        process: process.clone(),
        exit,
    };
    durable::write(file, &serde_json::to_vec(&told)?)
}

/// What was told of this process, when anything was.
///
/// # Errors
/// When the file can't be read now.
pub(super) fn told(file: &Path, process: &ProcessIdentity) -> io::Result<Option<Exit>> {
    let json = match durable::read(file, durable::SMALL) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        json => json?,
    };
    let told = serde_json::from_slice::<Told>(&json).ok();
    Ok(told
        .filter(|told| told.process == *process)
        .map(|told| told.exit))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_exit_is_said_in_words() {
        assert_eq!(Exit::Code(1).to_string(), "exited with 1");
        assert_eq!(Exit::Signal(9).to_string(), "was ended by SIGKILL");
        assert_eq!(Exit::Signal(64).to_string(), "was ended by signal 64");
        let limit = Exit::Memory(Bytes::gib(2));
        assert!(limit.to_string().contains("2.0 GiB"), "{limit}");
    }

    #[test]
    fn what_was_told_of_one_process_is_not_taken_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        let me = ProcessIdentity::of(std::process::id()).unwrap().unwrap();
        assert_eq!(told(&file, &me).unwrap(), None);
        tell(&file, &me, Exit::Code(3)).unwrap();
        assert_eq!(told(&file, &me).unwrap(), Some(Exit::Code(3)));
        let next = ProcessIdentity {
            start_time: me.start_time + 1,
            ..me.clone()
        };
        assert_eq!(told(&file, &next).unwrap(), None);
        fs::write(&file, "half").unwrap();
        assert_eq!(told(&file, &me).unwrap(), None);
    }
}
