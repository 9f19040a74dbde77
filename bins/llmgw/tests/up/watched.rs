//! A real Prometheus looks at a running `llmgw up`.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::harness::{Home, shell};

struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    fn start(home: &Home, admin: &str) -> Self {
        let directory = home.path().join("prometheus");
        fs::create_dir(&directory).unwrap();
        let token = home.data_dir().join("admin.token");
        let rules = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../server/monitoring/alerts.yaml"
        );
        let target = admin.trim_start_matches("http://");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs:\n\
             - job_name: llmgw\n  \
               authorization: {{credentials_file: {token:?}}}\n  \
               static_configs: [{{targets: [{target:?}]}}]\n"
        );
        fs::write(directory.join("prometheus.yaml"), config).unwrap();
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus (Debian's package of that name)");
        Self {
            child,
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    /// Waits until a query is answered with something that ends so.
    fn wait_for(&self, query: &str, ending: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let asked = Command::new("promtool")
                .args(["query", "instant", &self.url, query])
                .output()
                .unwrap();
            let answer = String::from_utf8_lossy(&asked.stdout).into_owned();
            let values = answer.lines().filter_map(|line| line.split(" @[").next());
            if values.clone().any(|value| value.ends_with(ending)) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{query}: no {ending:?} in {answer:?}, {asked:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_real_prometheus_sees_what_a_real_engine_does_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    let prometheus = Prometheus::start(&home, up.admin());
    prometheus.wait_for("up{job=\"llmgw\"}", "=> 1");
    prometheus.wait_for("llmgw_model_ready_replicas", "=> 1");
    prometheus.wait_for("llmgw_engine_installs{state=\"installed\"}", "=> 1");
    prometheus.wait_for("llmgw_replicas{state=\"ready\"}", "=> 1");

    let pasted = shell(up.curl());
    assert!(pasted.status.success(), "{pasted:?}");
    let answer: serde_json::Value = serde_json::from_slice(&pasted.stdout).unwrap();
    let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap();
    prometheus.wait_for("llmgw_requests_total{code=\"200\"}", "=> 1");
    prometheus.wait_for(
        "llmgw_tokens_total{kind=\"completion\"}",
        &format!("=> {tokens}"),
    );

    // A model that fits nowhere is seen, with the reason.
    assert!(up.add_giant("giant", &home.path()).status.success());
    prometheus.wait_for(
        "llmgw_model_unplaceable{model=\"giant\",reason=\"memory\"}",
        "=> 1",
    );
    let removed = up.ctl(&["remove", "giant"]);
    assert!(removed.status.success(), "{removed:?}");
    prometheus.wait_for("count(llmgw_model_desired_replicas)", "=> 1");
    assert!(up.terminate().success());
}
