//! `llmgw-server` and `llmgw-agent` as separate processes, with the real engine.
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::process::{Process, SERVER, agent, end, environ, http, is_launcher, processes};

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
        // Not what looks at the installation again; and each has a launcher beside it.
        let path = Path::new(process);
        let is_of_replica = |one: &String| one.starts_with("LLMGW_REPLICA=");
        environ(path).iter().any(is_of_replica) && !is_launcher(path)
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
        processes()
            .into_iter()
            .filter(|process| environ(process).contains(&marker))
            .map(|process| process.display().to_string())
            .collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A test that failed must not leave engines to the next one.
        for process in self.engines() {
            end(Path::new(&process));
        }
    }
}
