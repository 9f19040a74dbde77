//! What is measured: how each proxy is set up and started.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    call::{Calls, Mode},
    client::Client,
    peers::Peer,
    process::Group,
};

/// What can be measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
    /// Our gateway with so many worker threads.
    Ours {
        threads: usize,
    },
    /// Ours as another build of this program has it.
    Other,
    Peer(Peer),
}

/// A proxy that runs; ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) group: Group,
    /// Of its processes, before it was asked for anything but one call.
    pub(crate) idle_kib: u64,
}

/// Where the bench keeps what it writes.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// Gone at the end.
    pub(crate) directory: &'a Path,
    /// Kept.
    pub(crate) cache: &'a Path,
    /// Another build of this program.
    pub(crate) other: Option<&'a Path>,
    /// Where the upstream listens.
    pub(crate) upstreams: &'a [u16],
}

// === impl Kind ===

impl Kind {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let ours = [1, 2].map(|threads| Self::Ours { threads });
        let floor = [Self::Nginx, Self::Haproxy];
        floor
            .into_iter()
            .chain(ours)
            .chain([Self::Other])
            .chain(Peer::ALL.map(Self::Peer))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Ours { threads: 1 } => "llmgw",
            Self::Ours { .. } => "llmgw-2",
            Self::Other => "llmgw-other",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Starts it, and waits until it has answered a call.
    pub(crate) async fn start(self, place: &Place<'_>) -> anyhow::Result<Proxy> {
        let port = free_port()?;
        let directory = place.directory.join(self.name());
        fs::create_dir(&directory)?;
        let mut command = match self {
            Self::Nginx => nginx(port, place.upstreams, &directory)?,
            Self::Haproxy => haproxy(port, place.upstreams, &directory)?,
            Self::Ours { threads } => {
                let program = std::env::current_exe()?;
                ours(&program, port, place.upstreams, &directory, threads)
            }
            Self::Other => {
                let program = place.other.context("there is no other build")?;
                ours(program, port, place.upstreams, &directory, 1)
            }
            Self::Peer(peer) => peer.command(port, place, &directory)?,
        };
        let log = directory.join("log");
        let (group, mut child) = spawn(&mut command, &log)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let patience = match self {
            Self::Peer(_) => Duration::from_secs(90),
            _ => Duration::from_secs(10),
        };
        let answers = async {
            let calls = Calls::new(Mode::Unary, address);
            loop {
                let why = match Client::connect(address).await {
                    Ok(mut client) => {
                        match client
                            .call(calls.get(0), Mode::Unary, &mut Vec::new())
                            .await
                        {
                            Ok(_) => return Ok(()),
                            Err(error) => error,
                        }
                    }
                    Err(error) => error,
                };
                if let Some(status) = child.try_wait()? {
                    return Err(anyhow!("ended with {status}: {why}"));
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let start = Instant::now();
        let answered = timeout(patience, answers).await.unwrap_or_else(|_| {
            let seconds = start.elapsed().as_secs();
            Err(anyhow!("did not answer within {seconds} s"))
        });
        answered.with_context(|| last_lines(&log))?;
        // Lets what starts beside it come to rest.
        sleep(Duration::from_millis(300)).await;
        let idle_kib = group.resident()?;
        Ok(Proxy {
            name: self.name(),
            address,
            group,
            idle_kib,
        })
    }
}

/// Starts a process as the leader of a group.
pub(crate) fn spawn(
    command: &mut Command,
    log: &Path,
) -> anyhow::Result<(Group, std::process::Child)> {
    use std::os::unix::process::CommandExt as _;

    let log = File::create(log)?;
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    Ok((Group::of(child.id()), child))
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn ours(program: &Path, port: u16, upstreams: &[u16], directory: &Path, threads: usize) -> Command {
    let mut command = Command::new(program);
    command
        .args(["gateway", "--port", &port.to_string()])
        .args(["--threads", &threads.to_string()])
        .arg("--directory")
        .arg(directory)
        .args(upstreams.iter().map(u16::to_string));
    command
}

fn nginx(port: u16, upstreams: &[u16], directory: &Path) -> io::Result<Command> {
    let servers: String = upstreams
        .iter()
        .map(|port| format!("server 127.0.0.1:{port}; "))
        .collect();
    let at = directory.display();
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error crit;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
  uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
  upstream engines {{ {servers} keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
"
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, config)?;
    let mut command = Command::new(program("nginx"));
    command.arg("-c").arg(path).arg("-p").arg(directory);
    command.arg("-e").arg(directory.join("error"));
    Ok(command)
}

fn haproxy(port: u16, upstreams: &[u16], directory: &Path) -> io::Result<Command> {
    let servers: String = upstreams
        .iter()
        .enumerate()
        .map(|(number, port)| format!("  server s{number} 127.0.0.1:{port} pool-max-conn 512\n"))
        .collect();
    let config = format!(
        "global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h
  http-reuse always
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend engines
backend engines
  balance roundrobin
{servers}"
    );
    let path = directory.join("haproxy.cfg");
    fs::write(&path, config)?;
    let mut command = Command::new(program("haproxy"));
    command.arg("-db").arg("-f").arg(path);
    Ok(command)
}

/// Where the system keeps a server's program, which may not be on the path of who asks.
fn program(name: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/local/sbin"].map(|place| Path::new(place).join(name));
    let found = places.into_iter().find(|place| place.exists());
    found.unwrap_or_else(|| PathBuf::from(name))
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(5)..);
    format!("it said: {}", last.unwrap_or_default().join(" | "))
}
