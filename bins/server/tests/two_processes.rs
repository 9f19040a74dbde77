//! `llmgw-server` and `llmgw-agent` as separate processes, with the real engine.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and waits as a user would wait"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const SERVER: &str = env!("CARGO_BIN_EXE_llmgw-server");

/// The agent's binary, which is built beside the server's.
fn agent() -> PathBuf {
    let path = Path::new(SERVER).with_file_name("llmgw-agent");
    assert!(path.exists(), "build it first: cargo build -p llmgw-agentd");
    path
}

/// A process and what it says on stderr.
struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

/// A server with known ports, and an agent beside it.
struct Pair {
    home: tempfile::TempDir,
    server: Process,
    clients: String,
    admin: String,
    agents: String,
}

#[test]
fn apart_they_reach_the_same_and_each_survives_the_other_real_engine() {
    let mut pair = Pair::start();
    let mut agent = pair.agent();
    pair.wait_until_served(&mut agent);
    let replica = pair.replica();
    assert!(pair.token() > 0);

    // The agent is killed: the next one takes the engine over.
    agent.kill();
    let mut agent = pair.agent();
    agent.wait_for("taking over a running engine");
    pair.wait_until_served(&mut agent);
    assert_eq!(pair.replica(), replica);

    // The server is killed: the agent goes on, and the next server adopts what it runs.
    pair.restart_server();
    pair.wait_until_served(&mut agent);
    assert_eq!(pair.replica(), replica);
    assert!(pair.token() > 0);
    let is_engine = |process: &String| {
        let read = |name| fs::read(Path::new(process).join(name)).unwrap_or_default();
        // Not what looks at the installation again; and each has a launcher beside it, which reaps what it leaves.
        let mark = b"\0LLMGW_REPLICA=";
        let environ = [b"\0", &read("environ")[..]].concat();
        environ.windows(mark.len()).any(|found| found == mark)
            && !read("cmdline").starts_with(b"llmgw-launcher\0")
    };
    let mut engines = pair.engines();
    engines.retain(is_engine);
    assert_eq!(engines.len(), 1, "{engines:?}");

    agent.terminate();
    assert_eq!(pair.engines(), Vec::<String>::new());
    pair.server.terminate();
}

#[test]
fn beyond_loopback_both_refuse_and_say_why() {
    let home = tempfile::tempdir().unwrap();
    let refused = |program: &Path, arguments: &[&str]| -> Output {
        Command::new(program)
            .args(arguments)
            .arg("--data-dir")
            .arg(home.path().join("data"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let server = refused(Path::new(SERVER), &["--cluster-listen", "0.0.0.0:0"]);
    let token = home.path().join("token");
    fs::write(&token, "secret").unwrap();
    let token = token.to_str().unwrap();
    let connect = ["run", "--server", "192.0.2.1:8443", "--token-file", token];
    for output in [server, refused(&agent(), &connect)] {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("secure session"), "{said}");
    }
}

impl Pair {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let free = "127.0.0.1:0".to_owned();
        let mut server = Self::spawn_server(home.path(), [&free, &free, &free]);
        let after = |line: String, word: &str| {
            let rest = line.split(word).nth(1).unwrap().to_owned();
            rest.split([',', ' '])
                .next()
                .unwrap()
                .trim_start_matches("http://")
                .to_owned()
        };
        let clients = after(server.wait_for("clients on "), "clients on ");
        let admin = after(server.wait_for("admin API on "), "admin API on ");
        let agents = after(server.wait_for("agents on "), "agents on ");
        Self {
            home,
            server,
            clients: clients.trim_end_matches("/v1").to_owned(),
            admin,
            agents,
        }
    }

    fn spawn_server(home: &Path, [clients, admin, agents]: [&String; 3]) -> Process {
        let mut command = Command::new(SERVER);
        command.args([
            "--model",
            "starter",
            "--listen",
            clients,
            "--admin-listen",
            admin,
        ]);
        command.args(["--cluster-listen", agents]);
        command.arg("--data-dir").arg(home.join("server"));
        command.arg("--api-key-file").arg(home.join("key"));
        Process::spawn(command)
    }

    fn restart_server(&mut self) {
        self.server.kill();
        let ports = [&self.clients, &self.admin, &self.agents];
        self.server = Self::spawn_server(self.home.path(), ports);
        self.server.wait_for("clients on ");
    }

    fn agent(&self) -> Process {
        let mut command = Command::new(agent());
        command.args(["run", "--server", &self.agents]);
        command
            .arg("--data-dir")
            .arg(self.home.path().join("agent"));
        command
            .arg("--token-file")
            .arg(self.home.path().join("server/agent.token"));
        Process::spawn(command)
    }

    fn wait_until_served(&mut self, agent: &mut Process) {
        let deadline = Instant::now() + Duration::from_secs(180);
        let url = format!("http://{}/readyz", self.clients);
        while http(&[&url]).0 != 200 {
            assert!(
                Instant::now() < deadline,
                "not served; the agent said:\n{}\nthe server said:\n{}",
                agent.said(),
                self.server.said()
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The completion tokens of a real answer.
    fn token(&self) -> u64 {
        let key = fs::read_to_string(self.home.path().join("key")).unwrap();
        let bearer = format!("Authorization: Bearer {}", key.trim());
        let url = format!("http://{}/v1/completions", self.clients);
        let body = r#"{"model": "smollm2-135m", "prompt": "hi", "max_tokens": 4}"#;
        let (status, answer) = http(&["-H", &bearer, "-d", body, &url]);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    }

    /// The only replica, as the admin API shows it.
    fn replica(&self) -> String {
        let token = fs::read_to_string(self.home.path().join("server/admin.token")).unwrap();
        let bearer = format!("Authorization: Bearer {}", token.trim());
        let (_, replicas) = http(&[
            "-H",
            &bearer,
            &format!("http://{}/api/v1/replicas", self.admin),
        ]);
        assert_eq!(replicas.as_array().unwrap().len(), 1, "{replicas}");
        replicas[0]["id"].as_str().unwrap().to_owned()
    }

    /// Processes that the agent started: engines, and their launchers.
    fn engines(&self) -> Vec<String> {
        let agent = self.home.path().canonicalize().unwrap().join("agent");
        let marker = format!("LLMGW_DATA_DIR={}", agent.display());
        let marked = |environ: &Vec<u8>| {
            environ
                .split(|byte| *byte == 0)
                .any(|variable| variable == marker.as_bytes())
        };
        fs::read_dir("/proc")
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| fs::read(path.join("environ")).is_ok_and(|environ| marked(&environ)))
            .map(|path| path.display().to_string())
            .collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A test that failed must not leave engines to the next one.
        for process in self.engines() {
            let pid = process.trim_start_matches("/proc/").to_owned();
            drop(Command::new("kill").args(["-9", &pid]).status());
        }
    }
}

impl Process {
    fn spawn(mut command: Command) -> Self {
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
    fn wait_for(&mut self, text: &str) -> String {
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

    fn said(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        self.seen.join("\n")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(&mut self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let deadline = Instant::now() + Duration::from_secs(30);
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
fn http(arguments: &[&str]) -> (u16, Value) {
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
