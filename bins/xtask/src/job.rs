//! One external command: shown as it runs, its last lines kept, bounded in time, nothing left behind.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fmt,
    io::{BufRead as _, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::{
    console::say,
    leftovers::{self, Leftover, now, pause},
};

/// A command that is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    program: OsString,
    arguments: Vec<OsString>,
    /// What is worth showing of the environment, and the rest.
    environment: Vec<(OsString, OsString)>,
    surroundings: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    limit: Duration,
    /// How long what it has started may take to end after it.
    grace: Duration,
}

/// A command that did not do what it should, with the last lines that it wrote.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Failure {
    what: String,
    /// The last lines of its output.
    pub(crate) tail: Vec<String>,
}

/// The last lines of a job, shared by the threads that read them.
#[derive(Clone, Debug, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

// === impl Job ===

impl Job {
    /// A job that runs `program`, found in `PATH`.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            surroundings: Vec::new(),
            directory: None,
            limit: LIMIT,
            grace: GRACE,
        }
    }

    /// A job that runs cargo, the one that runs us.
    pub(crate) fn cargo() -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets a variable that isn't shown with the command.
    pub(crate) fn quietly(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.surroundings
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it and shows what it writes.
    ///
    /// # Errors
    /// A [`Failure`] when it can't be started, ends with another status than success, takes longer than its
    /// limit or leaves a process behind.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        say(format_args!("$ {self}"));
        let tail = Tail::default();
        let failure = |what: String| Failure {
            what: format!("{self}: {what}"),
            tail: tail.lines(),
        };
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failure(format!("can't be started: {error}")))?;
        let readers = [
            child.stdout.take().map(|output| tail.follow(output)),
            child.stderr.take().map(|output| tail.follow(output)),
        ];
        let status = self.wait(&mut child)?;
        // A process that was left behind holds our end of the pipe: ended first, then the pipe is read out.
        let left = leftovers::end_leftovers(self.grace);
        for reader in readers.into_iter().flatten() {
            if reader.join().is_err() {
                bail!(failure("its output could not be read".to_owned()));
            }
        }
        match status {
            None => bail!(failure(format!("not done after {:?}", self.limit))),
            Some(status) if !status.success() => bail!(failure(status.to_string())),
            Some(_) => {}
        }
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(Leftover::to_string).collect();
            bail!(failure(names.join("; ")));
        }
        Ok(())
    }

    /// Runs it quietly and gives back what it wrote to its standard output.
    ///
    /// # Errors
    /// A [`Failure`] when it can't be started or ends with another status than success.
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        let output = self
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{self}: can't be started"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!(Failure {
                what: format!("{self}: {}", output.status),
                tail: errors.lines().map(ToOwned::to_owned).collect(),
            });
        }
        String::from_utf8(output.stdout).with_context(|| format!("{self}: not text"))
    }

    /// Tells whether it can be run and ends with success; its output is dropped.
    pub(crate) fn succeeds(&self) -> bool {
        self.read().is_ok()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // What cargo says of this program to this program: build scripts that watch these variables would run
        // anew at each change between `cargo xtask` and plain cargo.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
            .args(&self.arguments)
            .envs(self.surroundings.iter().map(|(name, value)| (name, value)))
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// The status, or `None` after the limit, when the job and all its descendants have been ended.
    fn wait(&self, child: &mut Child) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = now() + self.limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if now() >= deadline {
                child.kill()?;
                child.wait()?;
                leftovers::end_all();
                return Ok(None);
            }
            pause();
        }
    }
}

impl fmt::Display for Job {
    /// The command as one would type it, without the directories of its program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{}={:?} ", name.display(), value)?;
        }
        let program = std::path::Path::new(&self.program);
        let program = program.file_name().unwrap_or(&self.program);
        write!(f, "{}", program.display())?;
        for argument in &self.arguments {
            let text = argument.to_string_lossy();
            if text.contains([' ', '\n', '(', '|']) {
                write!(f, " '{}'", text.lines().next().unwrap_or_default())?;
            } else {
                write!(f, " {text}")?;
            }
        }
        Ok(())
    }
}

// === impl Tail ===

impl Tail {
    /// Reads `output` to its end on a thread of its own: shows each line and keeps the last ones.
    fn follow(&self, output: impl Read + Send + 'static) -> thread::JoinHandle<()> {
        let tail = self.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            loop {
                line.clear();
                // A line without an end, longer than this, is shown in pieces.
                let mut bounded = (&mut reader).take(MAX_LINE);
                match bounded.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        let text = String::from_utf8_lossy(&line);
                        let text = text.trim_end_matches(['\n', '\r']);
                        say(text);
                        tail.push(text.to_owned());
                    }
                }
            }
        })
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }
}

/// How long a job may take, unless it says otherwise: a cold build on two cores takes a third of it.
const LIMIT: Duration = Duration::from_secs(40 * 60);
const GRACE: Duration = Duration::from_secs(5);
const TAIL: usize = 40;
const MAX_LINE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        Job::new("sh").args(["-c", script])
    }

    fn failure(result: anyhow::Result<()>) -> Failure {
        result.unwrap_err().downcast().unwrap()
    }

    // One test, because the jobs of two would see each other's processes as left behind.
    #[test]
    fn a_job_fails_when_its_command_fails_lingers_or_leaves_a_process() {
        leftovers::adopt_orphans().unwrap();
        shell("echo fine").run().unwrap();

        let failed = failure(shell("for i in $(seq 99); do echo line $i; done; exit 3").run());
        assert!(failed.to_string().contains("exit status: 3"), "{failed}");
        assert_eq!(failed.tail.len(), TAIL);
        assert_eq!(failed.tail.last().unwrap(), "line 99");

        let slow = failure(shell("sleep 600").limit(Duration::from_millis(200)).run());
        assert!(slow.to_string().contains("not done after"), "{slow}");

        let mut leaky = shell("(sleep 601 &) ; echo started");
        leaky.grace = Duration::ZERO;
        let leaky = failure(leaky.run());
        assert!(leaky.to_string().contains("sleep 601"), "{leaky}");
        assert!(leftovers::end_leftovers(Duration::ZERO).is_empty());

        let missing = failure(Job::new("no-such-program").run());
        assert!(
            missing.to_string().contains("can't be started"),
            "{missing}"
        );
    }
}
