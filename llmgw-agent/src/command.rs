//! Short-lived helper programs: started, listened to, and ended with all that they started.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use llmgw_core::units::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use self::heard::Heard;
pub(crate) use self::{bounds::Bounds, environment::Inherits};

mod bounds;
mod environment;
mod heard;

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Helper<'a> {
    pub program: &'a Path,
    pub args: Vec<OsString>,
    /// Set, besides what is inherited.
    pub env: &'a [(OsString, OsString)],
    /// What it gets of the agent's own environment; nothing within bounds.
    pub inherits: Inherits,
    /// Not inherited all the same.
    pub without: &'a [&'a str],
    pub directory: &'a Path,
    pub patience: Patience,
}

/// When a program is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// It has to end within this time.
    Whole(Duration),
    /// It may take as long as it shows signs of life: a line of output, or a change under the watched directory.
    Silence(Duration),
}

/// Who hears what a program does while it runs.
pub(crate) struct Listener<'a> {
    /// Each line of both outputs.
    pub line: &'a (dyn Fn(&str) + Send + Sync),
    /// A directory that the program fills, and who hears how full it is.
    pub filling: Option<(&'a Path, &'a (dyn Fn(Bytes) + Send + Sync))>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub status: ExitStatus,
    /// The last lines of both outputs, in the order of their coming.
    pub lines: Vec<String>,
}

/// What came of a program that was worked with while it ran.
#[derive(Debug)]
pub(crate) enum Attended<T> {
    /// It ended by itself before the work did.
    Ended(Finished),
    /// The work was done, and the program made to end.
    Done(T),
}

/// Why a helper program did not end by itself.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    /// It can't be started.
    #[error("starting {}", program.display())]
    Start {
        /// Which program.
        program: PathBuf,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The operating system does not say how it ended.
    #[error("waiting for {}", program.display())]
    Wait {
        /// Which program.
        program: PathBuf,
        /// What the operating system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// It took too long and was ended.
    #[error("{} did not end within {after:?}", program.display())]
    Deadline {
        /// Which program.
        program: PathBuf,
        /// How long it had.
        after: Duration,
    },
    /// It neither said nor wrote anything for too long and was ended.
    #[error("{} showed no sign of life for {after:?}", program.display())]
    Silent {
        /// Which program.
        program: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
}

/// Ends a process group when it is dropped before its leader was reaped.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

// === impl Helper ===

impl Helper<'_> {
    /// Runs the program to its end and says what it printed.
    ///
    /// Dropping the future kills the program and all that is in its process group.
    pub(crate) async fn run(self, listener: &Listener<'_>) -> Result<Finished, HelperError> {
        let program = self.program.to_owned();
        let patience = self.patience;
        let mut group = self.start(None)?;
        let heard = Heard::by(listener);
        let status = tokio::select! {
            ended = heard.until_end(&mut group, &program) => ended?,
            error = heard.give_up(&program, patience) => return Err(error),
        };
        Ok(Finished {
            status,
            lines: heard.into_lines(),
        })
    }

    /// Runs the program for as long as `work` takes, within `bounds` and with no environment but its own, and then
    /// ends it with all that it started, wherever in the tree of processes that went.
    ///
    /// Dropping the future kills the program and all that is in its process group.
    pub(crate) async fn attend<W: Future>(
        self,
        bounds: &Bounds,
        listener: &Listener<'_>,
        work: W,
    ) -> Result<Attended<W::Output>, HelperError> {
        enum Outcome<T> {
            Ended(ExitStatus),
            Done(T),
            Failed(HelperError),
        }
        let program = self.program.to_owned();
        let patience = self.patience;
        let mut group = self.start(Some(bounds))?;
        let heard = Heard::by(listener);
        let outcome = tokio::select! {
            biased;
            ended = heard.until_end(&mut group, &program) => match ended {
                Ok(status) => Outcome::Ended(status),
                Err(error) => Outcome::Failed(error),
            },
            done = work => Outcome::Done(done),
            error = heard.give_up(&program, patience) => Outcome::Failed(error),
        };
        end_group(group.leader);
        if group.leader.is_some() {
            // A killed program is waited for, so that what it held is free when the caller goes on.
            group.wait().await.ok();
        }
        bounds.end_stragglers().await;
        match outcome {
            Outcome::Ended(status) => Ok(Attended::Ended(Finished {
                status,
                lines: heard.into_lines(),
            })),
            Outcome::Done(done) => Ok(Attended::Done(done)),
            Outcome::Failed(error) => Err(error),
        }
    }

    fn start(self, bounds: Option<&Bounds>) -> Result<Group, HelperError> {
        let Self {
            program,
            args,
            env,
            inherits,
            without,
            directory,
            patience: _,
        } = self;
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.env_clear();
        match bounds {
            Some(bounds) => bounds.mark(&mut command),
            None => drop(command.envs(inherits.chosen())),
        }
        for name in without {
            command.env_remove(name);
        }
        command.envs(env.iter().map(|(name, value)| (name, value)));
        let child = command.spawn().map_err(|source| HelperError::Start {
            program: program.to_owned(),
            source: Arc::new(source),
        })?;
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let (Some(bounds), Some(leader)) = (bounds, leader) {
            bounds.put_on(leader);
        }
        Ok(Group { child, leader })
    }
}

// === impl Finished ===

impl Finished {
    /// The last line that says something: what people should see first.
    pub(crate) fn last_line(&self) -> &str {
        self.lines
            .iter()
            .map(|line| line.trim())
            .rfind(|line| !line.is_empty())
            .unwrap_or("it printed nothing")
    }

    /// `exit status: 1` or `signal: 4 (SIGILL)`, as the operating system says it.
    pub(crate) fn how(&self) -> String {
        self.status.to_string()
    }
}

// === impl Listener ===

impl Listener<'_> {
    /// Hears nothing.
    pub(crate) const NONE: Listener<'static> = Listener {
        line: &|_| (),
        filling: None,
    };
}

// === impl Group ===

impl Group {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // Reaped: from here the number may be another's.
        self.leader = None;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end_group(self.leader);
    }
}

fn end_group(leader: Option<Pid>) {
    if let Some(leader) = leader {
        // It may have ended just now, which is as good.
        kill_process_group(leader, Signal::KILL).ok();
    }
}

#[cfg(test)]
mod tests;
