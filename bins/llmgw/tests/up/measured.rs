//! `llmgw bench` against a running `llmgw up`.

use std::{fs, process::Command};

use serde_json::Value;

use super::harness::{Home, LLMGW};

#[test]
fn a_model_is_measured_until_it_misses_its_goal_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();
    let (address, key) = (up.address(), home.key_file());
    let drawing = home.path().join("bench.svg");
    let bench = |more: &[&str]| {
        let mut command = Command::new(LLMGW);
        command.args([
            "bench",
            "smollm2-135m",
            "--url",
            &address,
            "--step",
            "500ms",
        ]);
        command.args([
            "--answer-tokens",
            "4",
            "--prompt-tokens",
            "16",
            "-o",
            "json",
        ]);
        command.arg("--api-key-file").arg(&key).args(more);
        command.output().unwrap()
    };
    let generous = ["--first-token", "10m", "--between-tokens", "10m"];
    let data = home.data_dir();
    let admin = up.admin().to_owned();
    let kept = [
        "--record",
        "--profile",
        "default",
        "--admin-url",
        &admin,
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let plot = ["--most", "2", "--plot", drawing.to_str().unwrap()];
    let measured = bench(&[&generous[..], &plot, &kept].concat());
    assert_eq!(measured.status.code(), Some(0), "{measured:?}");
    let answer: Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(answer["capacity"]["concurrency"], 2, "{answer}");
    assert_eq!(answer["bounded"], false, "{answer}");
    let levels = answer["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 2, "{answer}");
    for level in levels {
        assert_eq!(level["errors"], 0, "{level}");
        assert!(
            level["tokens_per_second"].as_f64().unwrap() > 0.0,
            "{level}"
        );
    }
    assert!(fs::read_to_string(&drawing).unwrap().contains("tokens/s"));

    let capacities = up.ctl_json(&["capacity"]);
    assert_eq!(capacities[0]["model"], "smollm2-135m", "{capacities}");
    assert_eq!(capacities[0]["profile"], "default", "{capacities}");
    assert_eq!(capacities[0]["concurrency"], 2, "{capacities}");

    // Nothing answers within a millisecond.
    let missed = bench(&["--first-token", "1ms"]);
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    let answer: Value = serde_json::from_slice(&missed.stdout).unwrap();
    assert_eq!(answer["capacity"], Value::Null, "{answer}");

    // A key that is wrong is said, and nothing is measured.
    fs::write(&key, "sk-wrong").unwrap();
    let refused = bench(&[]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("401"), "{said}");
    assert!(!said.contains("sk-wrong"), "{said}");
    assert!(up.terminate().success());
}
