//! Short-lived helper programs: started, listened to, and ended with all that they started.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_core::units::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

pub(crate) use self::bounds::Bounds;

mod bounds;

/// One run of a program. It inherits the agent's environment: `pip` is configured there.
#[derive(Debug)]
pub(crate) struct Helper<'a> {
    pub program: &'a Path,
    pub args: Vec<OsString>,
    /// Set, besides what is inherited.
    pub env: &'a [(OsString, OsString)],
    /// Not inherited.
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

/// What came last, bounded.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
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
        if let Some(bounds) = bounds {
            command.env_clear();
            bounds.mark(&mut command);
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

/// What was heard of a running program so far.
struct Heard<'a> {
    tail: Mutex<Tail>,
    last: Mutex<Instant>,
    listener: &'a Listener<'a>,
}

// === impl Heard ===

impl<'a> Heard<'a> {
    fn by(listener: &'a Listener<'a>) -> Self {
        Self {
            tail: Mutex::new(Tail::default()),
            last: Mutex::new(Instant::now()),
            listener,
        }
    }

    /// Listens until the program has ended.
    async fn until_end(
        &self,
        group: &mut Group,
        program: &Path,
    ) -> Result<ExitStatus, HelperError> {
        let leader = group.leader;
        let (out, err) = (group.child.stdout.take(), group.child.stderr.take());
        let reading = async { tokio::join!(self.read(out), self.read(err)) };
        tokio::pin!(reading);
        let ended = tokio::select! {
            ended = group.wait() => {
                // What is still in the pipes is read. Who keeps them open after the program has ended
                // was left behind by it.
                if timeout(REST_OF_OUTPUT, reading).await.is_err() {
                    end_group(leader);
                }
                ended
            }
            _ = &mut reading => group.wait().await,
        };
        ended.map_err(|source| HelperError::Wait {
            program: program.to_owned(),
            source: Arc::new(source),
        })
    }

    async fn read(&self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 4 << 10];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.alive();
            for byte in buffer.get(..count).unwrap_or_default() {
                match byte {
                    // Progress bars return to the start of their line.
                    b'\n' | b'\r' => self.line(&mut line),
                    _ if line.len() < MAX_LINE => line.push(*byte),
                    _ => {}
                }
            }
        }
        self.line(&mut line);
    }

    fn line(&self, line: &mut Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(line).into_owned();
        line.clear();
        (self.listener.line)(&text);
        if let Ok(mut tail) = self.tail.lock() {
            tail.push(text);
        }
    }

    fn alive(&self) {
        if let Ok(mut last) = self.last.lock() {
            *last = Instant::now();
        }
    }

    fn silence(&self) -> Duration {
        self.last
            .lock()
            .map_or(Duration::ZERO, |last| last.elapsed())
    }

    /// Returns when the program's time is up, and tells the listener meanwhile how full its directory is.
    async fn give_up(&self, program: &Path, patience: Patience) -> HelperError {
        let limit = match patience {
            Patience::Whole(limit) | Patience::Silence(limit) => limit,
        };
        let measuring = async {
            let mut full = Bytes::ZERO;
            let mut ticks = interval(MEASURE_EVERY.min(limit / 4).max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if let Some((directory, hears)) = self.listener.filling {
                    let now = size_of(directory.to_owned()).await;
                    if now != full {
                        full = now;
                        self.alive();
                        hears(full);
                    }
                }
                if matches!(patience, Patience::Silence(_)) && self.silence() > limit {
                    break;
                }
            }
        };
        let program = program.to_owned();
        match patience {
            Patience::Whole(after) => tokio::select! {
                () = measuring => HelperError::Silent { program, after },
                () = sleep(after) => HelperError::Deadline { program, after },
            },
            Patience::Silence(after) => {
                measuring.await;
                HelperError::Silent { program, after }
            }
        }
    }

    fn into_lines(self) -> Vec<String> {
        self.tail
            .into_inner()
            .map_or_else(|_| Vec::new(), |tail| tail.lines.into())
    }
}

// === impl Tail ===

impl Tail {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_TAIL {
            let Some(first) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= first.len();
        }
    }
}

/// How many bytes the files under `directory` have together; what can't be read counts as nothing.
async fn size_of(directory: PathBuf) -> Bytes {
    let measure = move || {
        let mut waiting = vec![directory];
        let mut total = 0_u64;
        while let Some(directory) = waiting.pop() {
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            for entry in entries.flatten() {
                match entry.metadata() {
                    Ok(found) if found.is_dir() => waiting.push(entry.path()),
                    Ok(found) => total = total.saturating_add(found.len()),
                    Err(_) => {}
                }
            }
        }
        Bytes(total)
    };
    tokio::task::spawn_blocking(measure)
        .await
        .unwrap_or(Bytes::ZERO)
}

const MAX_LINE: usize = 2_000;
/// Enough for the traceback at the end of a failed `pip`.
const MAX_TAIL: usize = 64 << 10;
const REST_OF_OUTPUT: Duration = Duration::from_secs(1);
/// As often as a person looks at a progress bar.
const MEASURE_EVERY: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
