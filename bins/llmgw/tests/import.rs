//! The real `llmgw import litellm`, alone and against the real admin API, over a control plane in memory.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{
    fs,
    process::{Output, Stdio},
};

use llmgw_core::testing::control::MemoryControl;
use llmgw_server::{
    admin::{AdminDeps, serve},
    settings::Sources,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, process::Command};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const TOKEN: &str = "0123456789abcdef";
const CONFIG: &str = "
model_list:
  - model_name: tiny
    litellm_params: {model: vllm/org/tiny, input_cost_per_token: 1e-7, output_cost_per_token: 2e-7}
  - model_name: unknown
    litellm_params: {model: vllm/org/unknown, input_cost_per_token: 1e-7, output_cost_per_token: 2e-7}
  - model_name: far
    litellm_params: {model: openai/gpt, api_key: sk-far-away}
litellm_settings: {max_budget: 5, budget_duration: 1d}
general_settings: {master_key: sk-master}
";

fn accounts() -> String {
    json!([
        {"organization_id": "o", "organization_alias": "acme"},
        {"team_id": "t", "team_alias": "search", "organization_id": "o", "rpm_limit": 9},
        {"token": "h", "key_alias": "indexer", "team_id": "t", "models": ["tiny"]},
    ])
    .to_string()
}

/// The two files in a directory of their own.
fn files() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.yaml"), CONFIG).unwrap();
    fs::write(home.path().join("accounts.json"), accounts()).unwrap();
    home
}

async fn import(home: &TempDir, arguments: &str, url: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmgw"));
    command
        .args(["import", "litellm", "config.yaml", "accounts.json"])
        .args(arguments.split_whitespace())
        .current_dir(home.path())
        .env_clear()
        .env("LLMGW_ADMIN_TOKEN", TOKEN)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(url) = url {
        command.env("LLMGW_ADMIN_URL", url);
    }
    command.output().await.unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_settings_that_are_written_are_read_by_a_server_and_never_written_over() {
    let home = files();
    let output = import(&home, "--out settings.yaml", None).await;
    assert!(output.status.success(), "{}", text(output.stderr));
    let said = text(output.stdout);
    for words in [
        "Models    2 (written to settings.yaml)",
        "Accounts  3 levels, 1 key, 2 prices (--apply makes them)",
        "config.yaml:7 model_list[2]",
        "openai is a provider elsewhere",
        "--source far=hf:OWNER/REPO/FILE",
        "general_settings.master_key",
        "9 requests per minute",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    assert!(!said.contains("sk-"), "{said}");
    let settings = Sources {
        file: Some(home.path().join("settings.yaml")),
        ..Sources::default()
    };
    let settings = settings.read("").unwrap();
    assert_eq!(settings.models.len(), 2);

    let again = import(&home, "--out settings.yaml", None).await;
    assert_eq!(again.status.code(), Some(2));
    let said = text(again.stderr);
    assert!(said.contains("writing settings.yaml: "), "{said}");
    assert!(
        said.contains("hint: name a file that is not there yet"),
        "{said}"
    );
}

#[tokio::test]
async fn a_program_gets_all_of_it_as_the_admin_api_takes_it() {
    let home = files();
    let output = import(&home, "-o json --source far=hf:a/b/c.gguf", None).await;
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["settings"]["models"][2]["source"], "hf:a/b/c.gguf");
    assert_eq!(
        all["accounts"]["levels"][2],
        json!({"path": "acme/search", "limits": {"requests_per_minute": 9}})
    );
    assert_eq!(all["accounts"]["keys"][0]["level"], "acme/search");
    let remark = &all["remarks"][0];
    assert_eq!(
        (&remark["line"], &remark["fate"]),
        (&json!(3), &json!("changed"))
    );
}

#[tokio::test]
async fn what_is_applied_is_made_once_and_each_secret_is_shown() {
    let home = files();
    let control = MemoryControl::sample().control();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let _serving = stop.clone().drop_guard();
    TaskTracker::new().spawn(serve(
        listener,
        AdminDeps::new(control.clone(), TOKEN),
        stop,
    ));

    let output = import(&home, "--apply", Some(&url)).await;
    // One model is not there, so that its price is refused.
    assert_eq!(output.status.code(), Some(1));
    let said = text(output.stdout);
    for words in [
        "SECRET, SHOWN THIS ONCE",
        "Made: 3 levels, 1 keys, 1 prices",
        "the price of unknown",
        "start llmgw with the settings that --out wrote",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    let keys = control.tenancy.keys().await.unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(
        (keys[0].name.as_str(), keys[0].level.to_string().as_str()),
        ("indexer", "acme/search")
    );
    let levels = control.tenancy.levels().await.unwrap();
    let limits: Vec<String> = levels
        .iter()
        .map(|level| serde_json::to_string(&level.limits).unwrap())
        .collect();
    assert_eq!(
        limits,
        [
            r#"{"budgets":[{"amount_micros":5000000,"period":"day","kind":"hard"}]}"#,
            "{}",
            r#"{"requests_per_minute":9}"#
        ]
    );

    let again = text(import(&home, "--apply", Some(&url)).await.stdout);
    assert!(
        again.contains("Made: 0 levels, 0 keys, 0 prices"),
        "{again}"
    );
    assert!(
        again.contains("the key \"indexer\" of acme/search is there already"),
        "{again}"
    );
    assert_eq!(control.tenancy.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn whoever_can_not_be_asked_is_told_before_anything_is_made() {
    let home = files();
    let output = import(&home, "--apply", Some("http://127.0.0.1:1")).await;
    assert_eq!(output.status.code(), Some(4), "{}", text(output.stdout));
    fs::write(home.path().join("accounts.json"), "{\"a\": 1}").unwrap();
    let output = import(&home, "", None).await;
    assert_eq!(output.status.code(), Some(2));
    let said = text(output.stderr);
    assert!(
        said.contains("accounts.json: it is neither LiteLLM's configuration"),
        "{said}"
    );
}
