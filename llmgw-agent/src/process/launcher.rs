//! The launcher: a small process between the agent and an engine, in a program that stands by itself.
//!
//! What has to be set for a process before its program begins, without unsafe code in the agent, a program of
//! its own sets for itself: it leaves the agent's session, becomes the parent of whatever its children leave
//! behind, enters the control group, limits itself, and closes what it was handed by mistake. Then it starts the
//! engine and reaps until nothing is left. It tells twice: at the start which process the engine is, over the
//! pipe that is its output; at the end how that process ended, in a file, for the agent may be another by then.
//!
//! An engine is not tied to its launcher: a launcher that is killed takes nothing with it, and what is lost is
//! who ended how. A launcher is never asked to end. It does so when it has no children any more.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, WaitOptions, WaitStatus, getrlimit, setrlimit},
};
use serde::{Deserialize, Serialize};

use super::{LAUNCHER_MARK, exit, exit::Exit, identity::ProcessIdentity};

/// How a launcher is run: a program, and what stands before the launcher's own arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Launcher {
    /// The program; it calls [`run`] with the arguments that follow [`args`](Self::args).
    pub program: PathBuf,
    /// What makes the program a launcher.
    pub args: Vec<OsString>,
}

/// What a launcher is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Launch {
    /// The control group that it enters.
    pub(super) group: Option<PathBuf>,
    /// The file in which it tells how the engine ended.
    pub(super) exit: PathBuf,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
}

/// What a launcher says at the start, in one line of JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The engine runs.
    Started {
        process: ProcessIdentity,
        /// Why it is not in its control group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
    },
    /// The engine can't be started.
    Failed {
        /// The system's number of the error, when it has one.
        errno: Option<i32>,
        text: String,
    },
}

// === impl Launcher ===

impl Launcher {
    /// This very program, also when another version has been put in its place since. Its `main` begins with
    /// [`run_if_asked`].
    #[must_use]
    pub fn this_program() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            args: vec![ASKED.into()],
        }
    }
}

// === impl Launch ===

impl Launch {
    /// The arguments that say it.
    pub(super) fn into_args(self) -> Vec<OsString> {
        let Self {
            group,
            exit,
            program,
            args,
        } = self;
        let mut said = vec![EXIT.into(), exit.into_os_string()];
        if let Some(group) = group {
            said.extend([GROUP.into(), group.into_os_string()]);
        }
        said.extend([END.into(), program.into_os_string()]);
        said.extend(args);
        said
    }

    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let (mut group, mut exit) = (None, None);
        loop {
            let Some(name) = args.next() else {
                return Err("no program is named".to_owned());
            };
            if name == END {
                break;
            }
            let value = args.next().map(PathBuf::from);
            match (name.to_str(), value) {
                (Some(GROUP), Some(value)) => group = Some(value),
                (Some(EXIT), Some(value)) => exit = Some(value),
                _ => return Err(format!("{} is not understood", name.display())),
            }
        }
        let program = args.next().ok_or("no program is named")?;
        Ok(Self {
            group,
            exit: exit.ok_or("no file for the exit is named")?,
            program: program.into(),
            args: args.collect(),
        })
    }
}

// === impl Word ===

impl Word {
    fn failed(error: &io::Error) -> Self {
        Self::Failed {
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    /// What went wrong, as an error.
    pub(super) fn into_error(errno: Option<i32>, text: String) -> io::Error {
        errno.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
    }
}

/// Is a launcher when the command line of this process asks for it ([`Launcher::this_program`]); to be called
/// before anything else, for a launcher needs no more than itself. The first argument is the program's name.
pub fn run_if_asked(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    (args.next()? == ASKED).then(|| run(args))
}

/// Is a launcher until its last child has ended. The arguments are those that an agent has put behind
/// [`Launcher::args`]; the environment, the directory, the error output and the pipe are the agent's too, so that
/// nobody else can make use of it.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let launch = match Launch::parse(args) {
        Ok(launch) => launch,
        Err(text) => return give_up(&Word::Failed { errno: None, text }),
    };
    let (child, outside) = match prepare(&launch) {
        Ok(started) => started,
        Err(error) => return give_up(&Word::failed(&error)),
    };
    let process = match super::native::leader_of(child.id()) {
        Ok(process) => process,
        Err(error) => return abandon(child, &Word::failed(&error)),
    };
    let word = Word::Started {
        process: process.clone(),
        outside,
    };
    if say(&word).is_err() {
        // Nobody listens any more, and nobody will write down that it runs.
        return abandon(child, &word);
    }
    reap(&process, &launch.exit);
    ExitCode::SUCCESS
}

/// Sets up this process, and starts the engine from it. Says why the control group could not be entered.
fn prepare(launch: &Launch) -> io::Result<(Child, Option<String>)> {
    match rustix::process::setsid() {
        // Whoever was made the leader of a group has been taken out of the agent's already.
        Err(error) if error != Errno::PERM => return Err(error.into()),
        _ => {}
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let outside = launch.group.as_ref().and_then(|group| enter(group).err());
    limit_resources()?;
    // Whatever the agent was handed by who started it; our own are closed for programs anyway.
    close_fds::set_fds_cloexec(FIRST_BEYOND_STANDARD, &[]);
    let (out, err) = (log()?, log()?);
    let child = Command::new(&launch.program)
        .args(&launch.args)
        .env_remove(LAUNCHER_MARK)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()?;
    Ok((child, outside.map(|error| error.to_string())))
}

fn enter(group: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(group.join("cgroup.procs"))?;
    file.write_all(std::process::id().to_string().as_bytes())
}

/// An engine that crashes must not write its memory, tens of gigabytes, to a disk; and it may have as many
/// connections as the machine allows, for shells and units allow few by default.
fn limit_resources() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: Some(files.maximum.map_or(FILES, |most| most.min(FILES))),
        maximum: files.maximum,
    };
    if files.current.is_some_and(|now| Some(now) < most.current) {
        setrlimit(Resource::Nofile, most)?;
    }
    Ok(())
}

/// The log that the agent has opened as our error output.
fn log() -> io::Result<Stdio> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

/// Says it to the agent, and lets go of the pipe.
fn say(word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut pipe = io::stdout().lock();
    pipe.write_all(&line)?;
    pipe.flush()?;
    drop(pipe);
    rustix::stdio::dup2_stdout(fs::File::open("/dev/null")?)?;
    Ok(())
}

fn give_up(word: &Word) -> ExitCode {
    // Who does not listen sees that no engine runs.
    drop(say(word));
    ExitCode::FAILURE
}

/// Ends an engine that must not run.
fn abandon(mut child: Child, word: &Word) -> ExitCode {
    drop(child.kill());
    drop(child.wait());
    give_up(word)
}

/// Waits for the children of this process, its own and those that came to it, until there are none.
fn reap(engine: &ProcessIdentity, file: &Path) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if u32::try_from(pid.as_raw_nonzero().get()) == Ok(engine.pid)
                    && let Some(exit) = exit_of(status)
                {
                    // It is the agent that misses it, and says so.
                    drop(exit::tell(file, engine, exit));
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// What asks a program to be a launcher.
const ASKED: &str = "launch-engine";

const EXIT: &str = "--exit-file";
const GROUP: &str = "--cgroup";
const END: &str = "--";

/// Standard input, output and error stand before.
const FIRST_BEYOND_STANDARD: i32 = 3;

/// Some programs walk through all that are allowed at their start, and a limit of 2^30 makes that minutes.
const FILES: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_survives_the_command_line() {
        for group in [None, Some(PathBuf::from("/sys/fs/cgroup/a b"))] {
            let launch = Launch {
                group,
                exit: "/data/exits/r.json".into(),
                program: "/opt/llama-server".into(),
                args: vec!["--".into(), "--cgroup".into(), "x y".into()],
            };
            assert_eq!(Launch::parse(launch.clone().into_args()), Ok(launch));
        }
    }

    #[test]
    fn what_is_no_launch_is_refused() {
        for args in [
            &[][..],
            &["--"],
            &["--exit-file", "/x"],
            &["--exit-file", "/x", "--"],
            &["--", "/bin/true"],
            &["--exit-file", "/x", "--what", "1", "--", "/bin/true"],
        ] {
            let parsed = Launch::parse(args.iter().map(OsString::from));
            assert!(parsed.is_err(), "{args:?}: {parsed:?}");
        }
    }
}
