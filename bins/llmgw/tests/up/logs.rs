//! What a real engine writes, followed while it serves and to its end.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use super::harness::{Home, LLMGW, Up, shell};

/// A command that goes on, and what it says.
struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    fn begin(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that has this.
    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {text:?} ({error}) in:\n{}", seen.join("\n")),
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn replica(up: &Up) -> String {
    let replicas = up.ctl_json(&["replicas"]);
    replicas[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn what_an_engine_writes_is_followed_while_it_serves_and_to_its_end_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    let first = replica(&up);
    let shown = up.ctl(&["logs", "smollm2-135m"]);
    assert!(shown.status.success(), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.lines().count() > 10, "{shown}");

    let mut command = Command::new(LLMGW);
    command.args(["ctl", "logs", "smollm2-135m", "--follow", "--lines", "0"]);
    command.args(["-o", "json", "--admin-url", up.admin()]);
    command.arg("--data-dir").arg(home.data_dir());
    let following = Following::begin(command);
    // As a console does.
    let token = home.data_dir().join("admin.token");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "exec curl -sSN -H \"Authorization: Bearer $(cat {})\" \
         '{}/api/v1/replicas/{first}/log?lines=0&follow=true'",
        token.display(),
        up.admin()
    ));
    let streaming = Following::begin(command);
    streaming.wait_for("event: lines");

    // The engine says something of each request.
    let pasted = shell(up.curl());
    assert!(pasted.status.success(), "{pasted:?}");
    let line = following.wait_for("\"line\"");
    assert!(line.contains(&first), "{line}");
    streaming.wait_for("\"lines\":[\"");

    // As when memory runs out: its end is told, and its successor's lines come.
    let engine = home.engines();
    let engine = engine.iter().find(|line| !line.contains("llmgw-launcher"));
    let pid = engine.unwrap().split(['/', ' ']).nth(2).unwrap().to_owned();
    assert!(shell(&format!("kill -9 {pid}")).status.success());
    streaming.wait_for("event: end");
    let end = streaming.wait_for("data: ");
    assert!(
        end.contains("\"failed\"") && end.contains("SIGKILL"),
        "{end}"
    );
    let note = following.wait_for("failed: ");
    assert!(note.contains(&first), "{note}");
    let successor = following.wait_for(" begins on ");
    assert!(!successor.contains(&first), "{successor}");
    following.wait_for("\"line\"");
    drop((following, streaming));
    assert!(up.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}
