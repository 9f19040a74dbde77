use llmgw_core::cluster::node::NodeFacts;
use serde_json::json;

use super::*;

fn progress(since: Timestamp) -> Progress {
    Progress {
        bars: None,
        ..Progress::new(since)
    }
}

fn replica(state: &str, error: Option<&str>) -> ReplicaStatus {
    serde_json::from_value(json!({
        "spec": {
            "id": ReplicaId::generate(),
            "model": "tiny",
            "profile": {
                "name": "default", "engine": "llamacpp", "memory": 1, "context": 512, "parallel": 1,
            },
            "weights": {"sources": ["file:/m.gguf"]},
            "fingerprint": "0",
        },
        "state": state,
        "since": 0,
        "error": error,
    }))
    .unwrap()
}

fn report(replicas: Vec<ReplicaStatus>, provision: Vec<Provision>) -> NodeReport {
    NodeReport {
        epoch: 1,
        highest_epoch: 1,
        highest_revision: 0,
        leaving: false,
        revision: 1,
        facts: NodeFacts::default(),
        provision,
        weights: None,
        headers: Vec::new(),
        replicas,
    }
}

fn not_installed(error: &str) -> Provision {
    Provision::new(
        "llamacpp".parse().unwrap(),
        ProvisionState::Failed {
            error: error.to_owned(),
            hint: None,
            retry_at: Timestamp(0),
        },
    )
}

/// The last lines of all subjects.
fn lines(progress: &Progress) -> Vec<&str> {
    progress.said.values().map(String::as_str).collect()
}

#[test]
fn an_engine_that_ran_on_is_said_to_be_taken_over() {
    let starting = replica("starting", None);
    let taken = "tiny: its engine still runs from before, and is taken over";
    // How far it is when it is first seen is chance.
    for first in ["starting", "ready"] {
        let mut next = progress(Timestamp(i64::MAX));
        for state in [first, "ready"] {
            let mut status = starting.clone();
            status.state = serde_json::from_value(json!(state)).unwrap();
            next.show(&report(vec![status], vec![]));
        }
        assert_eq!(lines(&next), [taken]);
    }
    let mut same = progress(Timestamp(0));
    same.show(&report(vec![starting], vec![]));
    assert_eq!(lines(&same), ["tiny: starting"]);
}

#[test]
fn a_model_that_failed_is_tried_again_without_a_word_until_it_is_ready() {
    let mut progress = progress(Timestamp(0));
    progress.show(&report(vec![replica("failed", Some("no room"))], vec![]));
    progress.show(&report(vec![replica("fetching", None)], vec![]));
    progress.show(&report(vec![replica("starting", None)], vec![]));
    assert_eq!(lines(&progress), ["tiny: failed: no room"]);
    progress.ready(&"tiny".parse().unwrap());
    progress.show(&report(vec![replica("starting", None)], vec![]));
    assert!(lines(&progress).contains(&"tiny: starting"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_said_once_until_its_reason_changes_or_ten_minutes_have_passed() {
    let model = "big".parse().unwrap();
    let mut told = progress(Timestamp(0));
    let mut said = Vec::new();
    let mut wait = |reason: &str| {
        told.said.clear();
        told.waits(&model, reason);
        said.push(told.said.values().next().cloned());
    };
    let short = |have: &str| format!("big is not placed: memory: needs 9.0 GiB, has {have}");
    wait(&short("1.5 GiB"));
    // Another model has failed, and what it held is free.
    wait(&short("2.25 GiB"));
    wait(&short("900 MiB"));
    wait("big is not placed: there is no node");
    wait(&short("1.5 GiB"));
    tokio::time::advance(SAY_AGAIN_AFTER).await;
    wait(&short("1.5 GiB"));
    let once = |reason: &str| Some(reason.to_owned());
    let expected = [
        once(&short("1.5 GiB")),
        None,
        None,
        once("big is not placed: there is no node"),
        None,
        once(&short("1.5 GiB")),
    ];
    assert_eq!(said, expected);
}

#[test]
fn an_engine_that_is_not_installed_is_told_once() {
    let model = "tiny".parse().unwrap();
    let reason = "tiny is not placed: llamacpp is not installed: no such file";
    let mut told = progress(Timestamp(0));
    told.show(&report(vec![], vec![not_installed("no such file")]));
    told.waits(&model, reason);
    told.failures_of_engines();
    assert_eq!(lines(&told), [reason]);

    // A reason that has nothing to do with it does not hide it.
    let mut told = progress(Timestamp(0));
    told.show(&report(vec![], vec![not_installed("no such file")]));
    told.waits(&model, "tiny is not placed: memory");
    told.failures_of_engines();
    assert!(lines(&told).contains(&"llamacpp: not installed: no such file"));
}

#[test]
fn a_fetch_is_logged_ten_times_at_most() {
    let line = |done| {
        plain(&Item {
            subject: "r".into(),
            text: "m: fetching".into(),
            bytes: Some((Bytes(done), Some(Bytes(1_000)))),
            ended: false,
            step_of: None,
        })
    };
    let lines: BTreeSet<String> = (0..=1_000).map(line).collect();
    assert_eq!(lines.len(), 11);
    assert_eq!(line(437), "m: fetching: 40 % of 1000 B");
}
