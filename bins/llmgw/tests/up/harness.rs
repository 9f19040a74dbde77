//! Starts `llmgw up`, reads what it says, and looks for what it leaves behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// The program under test.
pub(crate) const LLMGW: &str = env!("CARGO_BIN_EXE_llmgw");

/// A directory of its own for one test: data, and the key file.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

/// A running `llmgw up`.
pub(crate) struct Up {
    child: Child,
    lines: Receiver<String>,
    /// All lines so far, for the message of a failure.
    seen: Vec<String>,
    contact: Contact,
}

/// How to reach a running `llmgw up`.
pub(crate) struct Contact {
    data_dir: PathBuf,
    /// The line to paste, once it was printed.
    curl: Option<String>,
    admin: Option<String>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.path().join("api-key")
    }

    /// Starts `llmgw up` on free ports, with its key in a file.
    pub(crate) fn up(&self, change: impl FnOnce(&mut Command)) -> Up {
        let mut command = Command::new(LLMGW);
        command.args([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--data-dir").arg(self.data_dir());
        command.arg("--api-key-file").arg(self.key_file());
        change(&mut command);
        Up::spawn(command, self.data_dir())
    }

    /// Engines that belong to this home.
    pub(crate) fn engines(&self) -> Vec<String> {
        self.marked("LLMGW_REPLICA=")
    }

    /// Processes other than `llmgw up` itself that belong to this home: engines, installations, downloads.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.marked("")
    }

    /// Processes of this home that also have a variable that begins so.
    fn marked(&self, other: &str) -> Vec<String> {
        let marker = format!("LLMGW_DATA_DIR={}", self.path().display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let Ok(environ) = fs::read(path.join("environ")) else {
                continue;
            };
            let has = |start: &str| {
                environ
                    .split(|byte| *byte == 0)
                    .any(|variable| variable.starts_with(start.as_bytes()))
            };
            let marked = has(&marker) && has(other);
            if marked {
                let line = fs::read(path.join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                found.push(format!("{} {line}", path.display()));
            }
        }
        found
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed must not leave engines to the next one.
        for process in self.processes() {
            let pid = process
                .split(['/', ' '])
                .nth(2)
                .unwrap_or_default()
                .to_owned();
            drop(Command::new("kill").args(["-9", &pid]).status());
        }
    }
}

impl Up {
    fn spawn(mut command: Command, data_dir: PathBuf) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for stream in streams {
            let send = send.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Self {
            child,
            lines,
            seen: Vec::new(),
            contact: Contact {
                data_dir,
                curl: None,
                admin: None,
            },
        }
    }

    /// Waits until the line to paste was printed.
    pub(crate) fn ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(180);
        while self.contact.curl.is_none() || self.contact.admin.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.take_in(line),
                Err(error) => panic!("not ready ({error}); it said:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.seen.iter().any(|line| line.contains(text)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.take_in(line),
                Err(error) => panic!("no {text:?} ({error}); it said:\n{}", self.said()),
            }
        }
    }

    /// Lets time pass while reading what it says.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let deadline = Instant::now() + span;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.take_in(line),
                Err(RecvTimeoutError::Timeout) => return,
                // It has ended: what is left of the time passes all the same.
                Err(RecvTimeoutError::Disconnected) => return thread::sleep(left),
            }
        }
    }

    fn take_in(&mut self, line: String) {
        if line.starts_with("curl ") {
            self.contact.curl = Some(line.clone());
        }
        if let Some(rest) = line.split("admin API on ").nth(1) {
            self.contact.admin = rest.split(':').take(3).collect::<Vec<_>>().join(":").into();
        }
        self.seen.push(line);
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        self.seen.join("\n")
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.signal("-TERM");
        self.ended()
    }

    /// Sends it a signal: `-INT`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it has ended.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not stop; it said:\n{}",
                self.said()
            );
            self.run_for(Duration::from_millis(20));
        }
    }
}

impl Contact {
    /// The line to paste.
    pub(crate) fn curl(&self) -> &str {
        self.curl.as_deref().expect("ready")
    }

    /// Where clients connect: `http://127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        let url = self.curl().split(' ').nth(1).unwrap();
        url.split("/v1").next().unwrap().to_owned()
    }

    /// Where the admin API is: `http://127.0.0.1:PORT`.
    pub(crate) fn admin(&self) -> &str {
        self.admin.as_deref().expect("ready")
    }

    /// Runs `llmgw ctl` against it.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(LLMGW);
        command.arg("ctl").arg("--admin-url").arg(self.admin());
        command
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The same with JSON out.
    pub(crate) fn ctl_json(&self, arguments: &[&str]) -> Value {
        let output = self.ctl(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Adds a model of that name that fits nowhere. Says whether it was acknowledged.
    pub(crate) fn add_giant(&self, name: &str, directory: &Path) -> Output {
        let file = directory.join(format!("{name}.yaml"));
        let text = format!("name: {name}\nsource: file:/m.gguf\nprofiles: [{{memory: 400GB}}]\n");
        fs::write(&file, text).unwrap();
        self.ctl(&["add", "-f", file.to_str().unwrap()])
    }
}

impl Deref for Up {
    type Target = Contact;

    fn deref(&self) -> &Contact {
        &self.contact
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a line as a shell would, and gives its output.
pub(crate) fn shell(line: &str) -> Output {
    Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// An HTTP call by curl: status and body.
pub(crate) fn http(arguments: &[&str]) -> (u16, Value) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text
        .rsplit_once('\n')
        .unwrap_or_else(|| panic!("{output:?}"));
    (
        status.parse().unwrap(),
        serde_json::from_str(body).unwrap_or(Value::Null),
    )
}
