//! An engine that crashes whenever it is started.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    crowd::{Outcome, stream},
    fleet::{Fleet, SIZE, settings},
    process::http,
};

#[test]
fn an_engine_that_crashes_five_times_is_parked_and_shown_and_comes_back_after_retry_real_engine() {
    let mut fleet = Fleet::start(&settings("steady", 1, 512), &[("a", "1GiB")]);
    fleet.until("the declared model serves", |fleet| {
        fleet.ready("steady").len() == 1
    });
    // Half of a model: the engine sees that only when it loads it.
    let weights = fleet.path().join("broken.gguf");
    let whole = fs::read(of_size(&fleet.path(), SIZE).unwrap()).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    let file = fleet.path().join("broken.yaml");
    let definition = format!(
        "name: broken\nsource: file:{}\nreplicas: 1\n\
         profiles: [{{memory: 448MiB, context: 512, parallel: 2}}]\n",
        weights.display()
    );
    fs::write(&file, definition).unwrap();
    fleet.ctl(&["add", "-f", file.to_str().unwrap()]);

    // Long before, it is told what the engine says.
    fleet.until("its first failure can be read", |fleet| {
        fleet.ctl(&["logs", "broken"]).contains(ENGINE_SAYS)
    });
    assert!(!is_parked(&fleet), "it is tried again");
    // The engine has said it before it has ended, and failed by that.
    fleet.until("its first failure is described", |fleet| {
        let described = fleet.ctl(&["describe", "model", "broken"]);
        described.contains(ENGINE_SAYS)
    });
    fleet.until("it is parked", is_parked);
    shown(&fleet);
    refused(&fleet);
    // It stands over a restart, with why.
    fleet.restart_server();
    fleet.until("it is known to be parked", is_parked);
    fleet.until("the other model was taken over", |fleet| {
        fleet.ready("steady").len() == 1
    });
    shown(&fleet);
    refused(&fleet);
    let outcome = stream((fleet.clients(), &fleet.key()), "steady", 4);
    assert!(matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
    assert_eq!(fleet.engines().len(), 1, "it is not tried again");

    fs::write(&weights, &whole).unwrap();
    fleet.ctl(&["retry", "broken"]);
    fleet.until("it serves", |fleet| fleet.ready("broken").len() == 1);
    let outcome = stream((fleet.clients(), &fleet.key()), "broken", 4);
    assert!(matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
    let status = fleet.ctl(&["status"]);
    assert!(!status.contains("parked"), "{status}");
    let models = fleet.seen(&["models"]);
    let broken = models
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "broken");
    let broken = broken.unwrap();
    assert_eq!(
        (&broken["parked"], &broken["failures"]),
        (&false.into(), &0.into())
    );
    fleet.end();
}

fn is_parked(fleet: &Fleet) -> bool {
    let models = fleet.seen(&["models"]);
    let models = models.as_array().cloned().unwrap_or_default();
    let mut models = models.iter();
    models.any(|one| one["name"] == "broken" && one["parked"] == true && one["failures"] == 5)
}

/// Wherever one may look, it is shown, and why; and where a log is shown, it is that of the first failure.
fn shown(fleet: &Fleet) {
    for (asked, told) in [
        (&["status"][..], "broken is parked after 5 failures"),
        (&["status"], "llmgw ctl retry broken"),
        (&["models"], "parked"),
        (&["explain", "broken"], "is not tried again"),
        (&["describe", "model", "broken"], "broken is parked"),
        (&["describe", "model", "broken"], ENGINE_SAYS),
        (&["logs", "broken"], ENGINE_SAYS),
    ] {
        let answer = fleet.ctl(asked);
        eprintln!("$ llmgw ctl {}\n{answer}", asked.join(" "));
        assert!(
            answer.contains(told),
            "ctl {asked:?} lacks {told:?}:\n{answer}"
        );
    }
    let metrics = metrics(fleet);
    for told in [
        "llmgw_model_parked{model=\"broken\"} 1",
        "llmgw_model_parked{model=\"steady\"} 0",
        "llmgw_model_consecutive_failures{model=\"broken\"} 5",
    ] {
        assert!(metrics.contains(told), "no {told}:\n{metrics}");
    }
}

fn metrics(fleet: &Fleet) -> String {
    let output = std::process::Command::new("curl")
        .args(["-sS", "--max-time", "20", "-H"])
        .arg(format!("Authorization: Bearer {}", fleet.token()))
        .arg(format!("http://{}/metrics", fleet.admin()))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A client is told at once, and why.
fn refused(fleet: &Fleet) {
    let begun = Instant::now();
    let bearer = format!("Authorization: Bearer {}", fleet.key());
    let url = format!("http://{}/v1/chat/completions", fleet.clients());
    let body = r#"{"model": "broken", "messages": [{"role": "user", "content": "hi"}]}"#;
    let (status, answer) = http(&["-H", &bearer, "-d", body, &url]);
    eprintln!("{:?}: {status} {answer}", begun.elapsed());
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &"model_parked".into())
    );
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
}

/// A file of exactly that many bytes.
fn of_size(directory: &Path, size: u64) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().ok()?);
        if kind.is_dir() {
            return of_size(&path, size);
        }
        let is_it = kind.is_file() && entry.metadata().ok()?.len() == size;
        is_it.then_some(path)
    })
}

/// What llama.cpp says of a file that ends too early.
const ENGINE_SAYS: &str = "corrupted or incomplete";
