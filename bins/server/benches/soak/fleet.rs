//! A server and agents, as they are shipped.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use llmgw_core::{
    admin_client::AdminClient,
    api::{tenancy::KeyRequest, usage::PriceRequest},
    cluster::tenancy::Limits,
    control::Control,
    units::Micros,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// All processes; they end with it.
#[derive(Debug)]
pub(crate) struct Fleet {
    home: PathBuf,
    /// The server first, then agents.
    processes: Vec<Process>,
    clients: String,
    control: Control,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Fleet {
    pub(crate) fn start(
        home: &Path,
        programs: Option<&Path>,
        store: &str,
        replicas: usize,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let built = PathBuf::from(env!("CARGO_BIN_EXE_llmgw-server"));
        let server = programs.map_or(built, |programs| programs.join("llmgw-server"));
        let agent = server.with_file_name("llmgw-agent");
        if !agent.exists() {
            bail!(
                "{} is not there: cargo build -p llmgw-agentd",
                agent.display()
            );
        }
        let counts = home.join("counts");
        fs::write(home.join("weights"), "none are needed")?;
        let settings = serde_json::json!({
            "models": [{
                "name": "soak", "source": format!("file:{}/weights", home.display()), "replicas": replicas,
                "profiles": [{"engine": "counting", "memory": "64MiB", "parallel": 256}],
            }],
            "engines": {"counting": {
                "command": [own, "engine", "--port", "{port}", "--directory", counts],
                "health": "/health",
            }},
        });
        // JSON is YAML.
        fs::write(home.join("settings.yaml"), settings.to_string())?;
        let any = "127.0.0.1:0";
        let data = home.join("server");
        let mut command = Command::new(server);
        command.args([
            "--listen",
            any,
            "--admin-listen",
            any,
            "--cluster-listen",
            any,
        ]);
        command
            .args(["--store", store])
            .arg("--config")
            .arg(home.join("settings.yaml"));
        command
            .arg("--data-dir")
            .arg(&data)
            .arg("--api-key-file")
            .arg(home.join("key"));
        let server = Process::start("server", command, home)?;
        let clients = server.said("clients on http://")?;
        let clients = clients.trim_end_matches("/v1").to_owned();
        let admin = server.said("admin API on ")?;
        let agents = server.said("agents on ")?;
        let agents = agents.split(',').next().unwrap_or_default().to_owned();
        let token = fs::read_to_string(data.join("admin.token"))?;
        let control = AdminClient::new(&admin, token.trim())?.control();
        let mut fleet = Self {
            home: home.to_owned(),
            processes: vec![server],
            clients,
            control,
        };
        for name in ["agent-a", "agent-b"] {
            let mut command = Command::new(&agent);
            command.args([
                "run",
                "--server",
                &agents,
                "--hostname",
                name,
                "--memory",
                "1GiB",
            ]);
            command.arg("--data-dir").arg(home.join(name));
            command.arg("--token-file").arg(data.join("agent.token"));
            fleet.processes.push(Process::start(name, command, home)?);
        }
        Ok(fleet)
    }

    /// Where clients ask.
    pub(crate) fn clients(&self) -> &str {
        &self.clients
    }

    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        let all = self.processes.iter();
        all.map(|one| (one.name.clone(), one.child.id())).collect()
    }

    pub(crate) async fn until_ready(&self, replicas: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(120) {
            let summary = self.control.fleet.summary().await?;
            if summary.replicas_ready == replicas {
                return Ok(());
            }
            sleep(Duration::from_millis(500)).await;
        }
        bail!("no {replicas} replicas are ready\n{}", self.tails())
    }

    /// A key that is limited in all ways, and one that is not; the model has a price.
    pub(crate) async fn keys(&self) -> anyhow::Result<Vec<String>> {
        let price = PriceRequest {
            model: "soak".parse()?,
            prompt: Micros(500_000),
            cached: None,
            completion: Micros(1_500_000),
        };
        self.control.accounts.set_price(price).await?;
        let limits = Limits {
            requests_per_minute: Some(1_000_000),
            tokens_per_minute: Some(100_000_000),
            concurrent: Some(10_000),
            budgets: vec!["1000000/day/soft".parse()?],
            ..Limits::default()
        };
        let limited = KeyRequest {
            limits,
            ..KeyRequest::named("limited")
        };
        let mut keys = Vec::new();
        for request in [limited, KeyRequest::named("free")] {
            keys.push(self.control.tenancy.create_key(request).await?.secret);
        }
        Ok(keys)
    }

    /// The processes of engines that run.
    pub(crate) fn engines(&self) -> Vec<i32> {
        let counts = self.home.join("counts");
        let files = fs::read_dir(&counts).into_iter().flatten().flatten();
        let pids = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let wanted = counts.display().to_string();
            line.split(|byte| *byte == 0)
                .any(|word| word == wanted.as_bytes())
        };
        let mut pids: Vec<i32> = pids.filter(is_ours).collect();
        pids.sort_unstable();
        pids
    }

    /// That no process has ended.
    pub(crate) fn still_runs(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                bail!("{} has ended: {status}\n{}", process.name, process.tail());
            }
        }
        Ok(())
    }

    /// Ends all as an operator does.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        for process in self.processes.iter_mut().rev() {
            process.end()?;
        }
        Ok(())
    }

    fn tails(&self) -> String {
        let all = self.processes.iter();
        all.map(|one| format!("{} said:\n{}\n", one.name, one.tail()))
            .collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            // Agents end their engines when they are asked to.
            drop(process.end());
        }
    }
}

impl Process {
    fn start(name: &str, mut command: Command, home: &Path) -> anyhow::Result<Self> {
        let log = home.join(format!("{name}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log)?).env("RUST_LOG", "warn");
        let child = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// What it says behind these words, up to the end of the line.
    fn said(&self, words: &str) -> anyhow::Result<String> {
        for _ in 0..600 {
            let text = fs::read_to_string(&self.log)?;
            let whole = text.lines().filter(|_| text.ends_with('\n'));
            if let Some((_, rest)) = whole.filter_map(|line| line.split_once(words)).next() {
                return Ok(rest.to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("{} does not say {words:?}:\n{}", self.name, self.tail())
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(30)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Asks it to end, and waits.
    fn end(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        signal(i32::try_from(self.child.id())?, Signal::TERM)?;
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("{} ends with {status}\n{}", self.name, self.tail());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.child.kill()?;
        bail!("{} does not end\n{}", self.name, self.tail())
    }
}

/// Kills a process: `kill -9`.
pub(crate) fn kill(pid: i32) -> anyhow::Result<()> {
    signal(pid, Signal::KILL)
}

fn signal(pid: i32, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid).context("no process")?;
    match kill_process(pid, signal) {
        // It has ended by itself.
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}
