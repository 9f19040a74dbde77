//! `llmgw-server` where few files may be open: clients don't take them all.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and waits as a user would wait"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A server that may have so many open files, and at first only half of them.
struct Server {
    child: Child,
    said: BufReader<ChildStderr>,
    log: String,
}

#[test]
fn silent_clients_leave_descriptors_to_the_rest_of_the_server() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), 400);
    let clients = server.address("clients on http://");
    let admin = server.address("admin API on http://");
    let warned =
        "at most 72 client connections at once, not 4096: this process may have 400 open files";
    assert!(server.log.contains(warned), "{}", server.log);
    assert_eq!(server.log.matches("client connections").count(), 1);
    let limits = fs::read_to_string(server.proc().join("limits")).unwrap();
    let open_files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let open_files: Vec<&str> = open_files.unwrap().split_whitespace().collect();
    assert_eq!(open_files[3..5], ["400", "400"], "raised as far as it may");

    let silent: Vec<TcpStream> = (0..72).map(|_| connect(&clients)).collect();
    let mut turned_away = connect(&clients);
    let answer = read(&mut turned_away);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\"code\":\"queue_full\""), "{answer}");
    let mut flood: Vec<TcpStream> = (0..500).map(|_| connect(&clients)).collect();
    for client in &mut flood {
        let answer = read(client);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "));
    }
    let open = fs::read_dir(server.proc().join("fd")).unwrap().count();
    assert!(open < 200, "{open} are open");
    let token = fs::read_to_string(home.path().join("admin.token")).unwrap();
    let head = format!("host: x\r\nauthorization: Bearer {}\r\n", token.trim());
    let answer = get(&admin, "/api/v1/nodes", &head);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    drop(silent);
    wait_until_served(&clients);
}

#[test]
fn without_a_descriptor_for_the_next_client_it_waits_says_so_once_and_recovers() {
    let home = tempfile::tempdir().unwrap();
    // Less than the reserve: clients that are turned away take the last ones.
    let mut server = Server::start(home.path(), 50);
    let clients = server.address("clients on http://");
    let crowd: Vec<TcpStream> = (0..100).map(|_| connect(&clients)).collect();
    server.wait_for("can't accept connections");
    let before = server.processor_ticks();
    // Long enough for a loop without a pause to show.
    thread::sleep(Duration::from_millis(500));
    let spent = server.processor_ticks() - before;
    assert!(
        spent < 25,
        "{spent} hundredths of a second in half a second"
    );
    drop(crowd);
    wait_until_served(&clients);
    drop(server.child.kill());
    server.said.read_to_string(&mut server.log).unwrap();
    let times = server.log.matches("can't accept connections").count();
    assert_eq!(times, 1, "{}", server.log);
}

impl Server {
    fn start(data_dir: &Path, open_files: u32) -> Self {
        let half = open_files / 2;
        let limited = format!("ulimit -n {open_files}; ulimit -S -n {half}; exec \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_llmgw-server")])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--cluster-listen", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let log = String::new();
        Self { child, said, log }
    }

    /// What is told behind `text`.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).unwrap();
            self.log.push_str(&line);
            assert!(read > 0, "no {text:?}; it said:\n{}", self.log);
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().to_owned();
            }
        }
    }

    fn address(&mut self, text: &str) -> String {
        self.wait_for(text).trim_end_matches("/v1").to_owned()
    }

    /// The processor time that it took so far, in hundredths of a second.
    fn processor_ticks(&self) -> u64 {
        let stat = fs::read_to_string(self.proc().join("stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split(' ').collect();
        fields[11..13]
            .iter()
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum()
    }

    fn proc(&self) -> std::path::PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn wait_until_served(clients: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !get(clients, "/healthz", "host: x\r\n").starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < deadline, "the places are not free again");
        thread::sleep(Duration::from_millis(20));
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// All that comes until the other side closes.
fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it was not closed: {error}"),
    }
    String::from_utf8(bytes).unwrap()
}

fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    // One that is turned away may be closed before it has said anything.
    drop(stream.write_all(request.as_bytes()));
    read(&mut stream)
}
