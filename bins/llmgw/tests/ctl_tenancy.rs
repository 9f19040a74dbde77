//! The real `llmgw ctl keys` and `llmgw ctl tenants` against the real admin API, over a control plane in memory.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::process::{Output, Stdio};

use llmgw_core::testing::control::MemoryControl;
use llmgw_server::admin::{AdminDeps, serve};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

const TOKEN: &str = "0123456789abcdef";

/// A control plane.
struct Plane {
    url: String,
    _serving: DropGuard,
}

impl Plane {
    async fn sample() -> Self {
        let memory = MemoryControl::sample();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let deps = AdminDeps::new(memory.control(), TOKEN);
        TaskTracker::new().spawn(serve(listener, deps, stop.clone()));
        Self {
            url,
            _serving: stop.drop_guard(),
        }
    }

    async fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
        command
            .arg("ctl")
            .args(arguments.split(' '))
            .env_clear()
            .env("LLMGW_ADMIN_URL", &self.url)
            .env("LLMGW_ADMIN_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command.output().await.unwrap()
    }

    async fn said(&self, arguments: &str) -> String {
        let output = self.run(arguments).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.said(&format!("{arguments} -o json")).await).unwrap()
    }

    async fn refused(&self, arguments: &str) -> (Option<i32>, String) {
        let output = self.run(arguments).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), errors)
    }
}

#[tokio::test]
async fn levels_are_made_limited_and_removed() {
    let plane = Plane::sample().await;
    let (code, said) = plane.refused("tenants create acme/search").await;
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no organisation acme"), "{said}");
    assert!(said.contains("llmgw ctl tenants create acme"), "{said}");
    plane.said("tenants create acme --models a,b/c").await;
    plane.said("tenants create acme/search").await;
    let table = plane.said("tenants").await;
    for words in ["organisation", "only a, b/c", "acme/search", "cluster"] {
        assert!(table.contains(words), "{words} is not in {table}");
    }
    let limited = plane.json("tenants limit acme/search --models a").await;
    assert_eq!(limited["limits"], json!({"models": ["a"]}));
    let (code, said) = plane.refused("tenants remove acme").await;
    assert_eq!(code, Some(1));
    assert!(said.contains("the team acme/search is in acme"), "{said}");
    for level in ["acme/search", "acme"] {
        let removed = plane.json(&format!("tenants remove {level}")).await;
        assert_eq!(removed, json!({"removed": level}));
    }
    let (code, said) = plane.refused("tenants remove acme/search/x/y").await;
    assert_eq!(code, Some(2), "{said}");
}

#[tokio::test]
async fn a_key_has_a_level_an_end_and_models() {
    let plane = Plane::sample().await;
    plane.said("tenants create acme").await;
    let made = plane
        .json("keys create ops --level acme --expires 1day --models a,b")
        .await;
    assert_eq!(made["level"], "acme");
    assert_eq!(made["limits"], json!({"models": ["a", "b"]}));
    let lasts = made["expires_at"].as_i64().unwrap() - made["created_at"].as_i64().unwrap();
    assert_eq!(lasts, 86_400_000);
    // The memory control plane's clock stands at 1970.
    let table = plane.said("keys").await;
    for words in ["acme", "has expired, 1970-01-02", "only a, b"] {
        assert!(table.contains(words), "{words} is not in {table}");
    }
    let id = made["id"].as_str().unwrap();
    let limited = plane
        .json(&format!("keys limit {id} --concurrent 3 --budget 5/day"))
        .await;
    let expected = json!({"concurrent": 3, "budgets": [{"amount_micros": 5_000_000, "period": "day", "kind": "hard"}]});
    assert_eq!(
        (&limited["limits"], &limited["level"]),
        (&expected, &json!("acme"))
    );
    let (code, said) = plane
        .refused("keys limit key-0197c2a4f0e17b6c9a3d5e8f10213243")
        .await;
    assert_eq!(code, Some(3), "{said}");
    for time in ["1ns", "99999years"] {
        let (code, said) = plane
            .refused(&format!("keys create ops --expires {time}"))
            .await;
        assert_eq!(code, Some(2));
        assert!(
            said.contains("is not between 1 second and 100 years"),
            "{said}"
        );
    }
    // It may come yet: told, and made all the same.
    let output = plane
        .run("keys create ops --models tiny,smollm2-135m,nobody,none")
        .await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && said.contains("there are no models nobody, none "),
        "{said}"
    );
    let all = plane.json("keys").await;
    let other = all
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["id"] != made["id"])
        .unwrap()["id"]
        .clone();
    plane
        .said(&format!("keys revoke {}", other.as_str().unwrap()))
        .await;
    let (code, said) = plane.refused("keys create ops --level nobody").await;
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no organisation nobody"), "{said}");
    plane.said(&format!("keys revoke {id}")).await;
    let log = plane.said("audit").await;
    assert!(log.contains(&format!("{id} ops")), "the name stays: {log}");
    assert_eq!(plane.json("keys").await, json!([]));
}
