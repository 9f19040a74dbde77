//! Processes of the release, what they say, and how they are asked.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_llmgw-server");

/// The agent's binary, which is built beside the server's.
pub(crate) fn agent() -> PathBuf {
    let path = Path::new(SERVER).with_file_name("llmgw-agent");
    assert!(path.exists(), "build it first: cargo build -p llmgw-agentd");
    path
}

/// The operator's binary, which is built beside the server's.
pub(crate) fn llmgw() -> PathBuf {
    let path = Path::new(SERVER).with_file_name("llmgw");
    assert!(path.exists(), "build it first: cargo build -p llmgw");
    path
}

/// A process and what it says on stderr.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// The next line that contains `text`.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(60)) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no {text:?} ({error}); it said:\n{}", self.said()),
            }
        }
    }

    pub(crate) fn said(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        self.seen.join("\n")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn terminate(&mut self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}; it said:\n{}", self.said());
                return;
            }
            assert!(
                Instant::now() < deadline,
                "it does not stop; it said:\n{}",
                self.said()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An HTTP call by curl: status (0 when nobody answers) and body.
pub(crate) fn http(arguments: &[&str]) -> (u16, Value) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some((body, status)) = text.rsplit_once('\n') else {
        panic!("{output:?}")
    };
    (
        status.parse().unwrap(),
        serde_json::from_str(body).unwrap_or(Value::Null),
    )
}

/// The variables of a process that it was started with.
pub(crate) fn environ(process: &Path) -> Vec<String> {
    let read = fs::read(process.join("environ")).unwrap_or_default();
    let variables = read.split(|byte| *byte == 0);
    variables
        .map(|one| String::from_utf8_lossy(one).into_owned())
        .collect()
}

/// The processes of this machine, as directories of `/proc`.
pub(crate) fn processes() -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap();
    all.map(|entry| entry.unwrap().path()).collect()
}

/// Whether it is an engine's launcher, which reaps what the engine leaves.
pub(crate) fn is_launcher(process: &Path) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    line.starts_with(b"llmgw-launcher\0")
}

/// Ends a process at once, as far as it is still there.
pub(crate) fn end(process: &Path) {
    let pid = process.file_name().unwrap().to_str().unwrap();
    drop(
        Command::new("kill")
            .args(["-9", pid])
            .stderr(Stdio::null())
            .status(),
    );
}
