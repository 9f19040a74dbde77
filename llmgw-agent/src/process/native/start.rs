//! The start of a replica's first process, as a child or by a launcher.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::{NativeRuntime, end_of, exit_of};
use crate::process::{
    DATA_DIR_MARK, LAUNCHER_MARK, ProcessError, ProcessStart, REPLICA_MARK,
    identity::ProcessIdentity,
    launcher::{Launch, Launcher, Word},
    table,
};

impl NativeRuntime {
    /// Starts a child of our own.
    pub(super) fn start_child(
        &self,
        start: &ProcessStart,
    ) -> Result<ProcessIdentity, ProcessError> {
        let log = open_log(start)?;
        let mut command = self.command(start, &start.program, &start.args);
        let out = log.try_clone().map_err(failed(start))?;
        command.stdout(out).stderr(log).process_group(0);
        // From here to `watch` nothing waits, so that a dropped future leaves no unknown process.
        let mut child = command.spawn().map_err(failed(start))?;
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let leader = match child.id().ok_or_else(gone).and_then(leader_of) {
            Ok(leader) => leader,
            Err(source) => {
                // A process that can't be written down must not run. It is its own group's only member yet.
                if let Err(error) = child.start_kill() {
                    tracing::error!(replica = %start.replica, %error, "a process without identity runs on");
                }
                return Err(failed(start)(source));
            }
        };
        self.watch(start.replica, leader.clone(), exit_of(child));
        Ok(leader)
    }

    /// Starts a launcher, and hears from it which process the engine is. Dropping the future leaves a launcher
    /// that carries our marks; it gives up, or is found by them.
    pub(super) async fn start_launched(
        &self,
        launcher: &Launcher,
        start: &ProcessStart,
    ) -> Result<ProcessIdentity, ProcessError> {
        let exit = self.exit_file(start.replica);
        match fs::remove_file(&exit) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ProcessError::File { path: exit, source });
            }
            _ => {}
        }
        let launch = Launch {
            group: self.group(start),
            exit: exit.clone(),
            program: start.program.clone(),
            args: start.args.clone(),
        };
        let log = open_log(start)?;
        let args: Vec<OsString> = launcher
            .args
            .iter()
            .cloned()
            .chain(launch.into_args())
            .collect();
        let mut command = self.command(start, &launcher.program, &args);
        command
            .arg0("llmgw-launcher")
            .env(LAUNCHER_MARK, "1")
            .stdout(Stdio::piped())
            .stderr(log);
        let unlaunched = |source| ProcessError::Launch {
            launcher: launcher.program.clone(),
            source,
        };
        let mut child = command.spawn().map_err(unlaunched)?;
        let heard = hear(child.stdout.take()).await;
        let (leader, outside) = match heard {
            Ok(Word::Started { process, outside }) => (process, outside),
            Ok(Word::Failed { errno, text }) => {
                self.reap(child);
                return Err(failed(start)(Word::into_error(errno, text)));
            }
            Err(source) => {
                // What it may have started carries our marks; whoever stops the replica finds it.
                drop(child.start_kill());
                self.reap(child);
                return Err(unlaunched(source));
            }
        };
        if let Some(error) = outside {
            tracing::warn!(replica = %start.replica, error, "it runs outside of its control group");
        }
        let itself = child.id().and_then(|pid| leader_of(pid).ok());
        self.reap(child);
        self.watch(
            start.replica,
            leader.clone(),
            end_of(leader.clone(), itself, exit),
        );
        Ok(leader)
    }

    /// The control group of a replica, made with its limits. Without one it is found by other signs.
    fn group(&self, start: &ProcessStart) -> Option<PathBuf> {
        let cgroups = self.config.containment.cgroups()?;
        match cgroups.create(start.replica, &start.limits) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::warn!(replica = %start.replica, %error, "it gets no control group");
                None
            }
        }
    }

    fn command(&self, start: &ProcessStart, program: &Path, args: &[OsString]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(self.config.environment.iter().cloned())
            .envs(start.env.iter().cloned())
            .env(DATA_DIR_MARK, &self.config.data_dir)
            .env(REPLICA_MARK, start.replica.to_string())
            .current_dir(&self.config.data_dir)
            .stdin(Stdio::null());
        command
    }

    /// Waits for a launcher to end, so that it does not stay in the kernel's table.
    fn reap(&self, mut launcher: Child) {
        let released = self.released.clone();
        self.tasks.spawn(async move {
            drop(released.run_until_cancelled(launcher.wait()).await);
        });
    }
}

fn open_log(start: &ProcessStart) -> Result<fs::File, ProcessError> {
    let opened = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&start.log);
    opened.map_err(|source| ProcessError::File {
        path: start.log.clone(),
        source,
    })
}

/// Who a child is that nobody has waited for: it is there even if it has ended.
pub(in crate::process) fn leader_of(pid: u32) -> io::Result<ProcessIdentity> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let stat = table::stat(pid)?.ok_or_else(gone)?;
    ProcessIdentity::with_start(pid, stat.start_time)
}

/// The first word of a launcher.
async fn hear(pipe: Option<ChildStdout>) -> io::Result<Word> {
    let pipe = pipe.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    let mut line = String::new();
    let mut reader = BufReader::new(pipe).take(WORD_LIMIT);
    match tokio::time::timeout(WORD_WITHIN, reader.read_line(&mut line)).await {
        Ok(read) => read?,
        Err(_) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
    };
    if line.is_empty() {
        return Err(io::Error::other("it has ended without a word"));
    }
    Ok(serde_json::from_str(&line)?)
}

fn failed(start: &ProcessStart) -> impl Fn(io::Error) -> ProcessError + use<> {
    let program = start.program.clone();
    move |source| ProcessError::Start {
        program: program.clone(),
        source,
    }
}

/// A launcher does little more than two calls of exec; the programs may have to come from a slow disk.
const WORD_WITHIN: Duration = Duration::from_secs(60);

/// An identity and an error message.
const WORD_LIMIT: u64 = 16 << 10;
