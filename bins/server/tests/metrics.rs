//! `/metrics` as Prometheus reads it, and the alert rules over it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

use std::{
    collections::BTreeSet,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use llmgw_core::{
    api::tenancy::{KeyRequest, LevelRequest},
    cluster::tenancy::Limits,
    control::Control,
    metrics::{GatewayGauges, GatewayMeters},
    testing::control::MemoryControl,
};
use llmgw_server::admin::{AdminDeps, router};
use tower::ServiceExt;

async fn scrape(token: Option<&str>) -> (StatusCode, String, String) {
    scrape_of(MemoryControl::sample().control(), token).await
}

async fn scrape_of(control: Control, token: Option<&str>) -> (StatusCode, String, String) {
    let mut request = Request::get("/metrics");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let deps = AdminDeps::new(control, "t");
    let request = request.body(Body::empty()).unwrap();
    let response = router(deps).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let kind = parts.headers["content-type"].to_str().unwrap().to_owned();
    (
        parts.status,
        kind,
        String::from_utf8(bytes.to_vec()).unwrap(),
    )
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool (Debian's package prometheus): {error}"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The names of the families in a text.
fn families(text: &str) -> BTreeSet<&str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    names.filter_map(|line| line.split(' ').next()).collect()
}

#[tokio::test]
async fn a_scrape_needs_the_token_and_is_what_prometheus_reads() {
    let (status, kind, _) = scrape(None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(kind, "application/json");
    let (status, kind, text) = scrape(Some("t")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(kind.starts_with("text/plain; version=0.0.4"));
    assert!(text.contains("llmgw_leader 1"), "{text}");
    let checked = promtool(&["check", "metrics"], &text);
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn what_is_left_of_a_levels_budgets_is_told_and_nothing_of_keys() {
    let control = MemoryControl::sample().control();
    let tenancy = &control.tenancy;
    let limits = Limits {
        budgets: vec!["25/month".parse().unwrap(), "1.5/day".parse().unwrap()],
        ..Limits::default()
    };
    let path = "acme".parse().unwrap();
    let level = LevelRequest {
        path,
        limits: limits.clone(),
    };
    tenancy.create_level(level).await.unwrap();
    let key = KeyRequest {
        limits,
        ..KeyRequest::named("secretive")
    };
    tenancy.create_key(key).await.unwrap();
    let (_, _, text) = scrape_of(control, Some("t")).await;
    for line in [
        r#"llmgw_budget_units{level="acme",period="month"} 25"#,
        r#"llmgw_budget_remaining_units{level="acme",period="day"} 1.5"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let budgets = text.lines().filter(|line| line.starts_with("llmgw_budget"));
    assert_eq!(budgets.count(), 4);
    assert!(!text.contains("secretive"), "{text}");
}

#[tokio::test]
async fn every_name_that_is_told_is_explained_and_the_alerts_use_no_other() {
    let control = MemoryControl::sample().control();
    let limits = Limits {
        budgets: vec!["1/day".parse().unwrap()],
        ..Limits::default()
    };
    let limited = LevelRequest {
        limits,
        ..LevelRequest::default()
    };
    control.tenancy.limit_level(limited).await.unwrap();
    let (_, _, mut text) = scrape_of(control, Some("t")).await;
    text.push_str(&GatewayMeters::new().text(GatewayGauges::default()));
    let explained = include_str!("../../../llmgw-core/src/metrics.rs");
    for family in families(&text) {
        assert!(explained.contains(&format!("`{family}`")), "{family}");
    }
    // What rules say is a number of ours is one.
    let rules = include_str!("../monitoring/alerts.yaml");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for name in words.filter(|word| word.starts_with("llmgw_")) {
        let family = name.trim_end_matches("_bucket");
        assert!(explained.contains(&format!("`{family}`")), "{name}");
    }
}

#[test]
fn each_alert_fires_on_what_it_is_for_and_not_on_what_is_well() {
    for arguments in [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts_test.yaml"],
    ] {
        let output = promtool(&arguments, "");
        assert!(output.status.success(), "{output:?}");
    }
    // None is left out of the test.
    let rules = include_str!("../monitoring/alerts.yaml");
    let tested = include_str!("../monitoring/alerts_test.yaml");
    let named = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in named {
        let fires = format!("alertname=\"{alert}\"");
        assert!(tested.contains(&fires), "{alert} is not tested");
    }
}
