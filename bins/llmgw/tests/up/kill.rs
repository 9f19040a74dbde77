//! `kill -9` at any moment is survived by the next start.

use std::{
    collections::BTreeSet,
    fs,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use super::harness::{Contact, Home, http};

/// What a killed llmgw had promised.
#[derive(Default)]
struct Promised {
    /// Models whose addition was acknowledged.
    models: BTreeSet<String>,
    /// Calls that were answered more than a second before the kill.
    answered: u64,
}

#[test]
fn twenty_kills_at_random_moments_are_each_followed_by_a_good_start_real_engine() {
    let home = Home::new();
    let mut promised = Promised::default();
    // Any moments will do, and the same ones every time make a failure easy to see again.
    let mut random = Random(0x5eed);
    for round in 0..20 {
        let mut up = home.up(|_| {});
        match round {
            // While the engine is installed and the weights are fetched.
            0..5 => up.run_for(Duration::from_millis(600 + 1_400 * round)),
            // While it starts.
            5..13 => up.run_for(Duration::from_millis(random.below(1_500))),
            // While it serves.
            _ => {
                up.ready();
                serve(&up, &home, round, random.below(2_000), &mut promised);
            }
        }
        up.kill();

        let mut next = home.up(|_| {});
        next.ready();
        hold(&next, &home, round, &promised);
        if round % 3 == 0 {
            assert!(next.terminate().success(), "round {round}");
            assert_eq!(home.processes(), Vec::<String>::new(), "round {round}");
        } else {
            // Its engine is left to the next start.
            next.kill();
        }
    }
    let mut last = home.up(|_| {});
    last.ready();
    assert!(last.terminate().success());
    assert_eq!(home.processes(), Vec::<String>::new());
}

/// Calls and adds models until the moment of the kill, and notes what was promised.
fn serve(up: &Contact, home: &Home, round: u64, millis: u64, promised: &mut Promised) {
    let end = Instant::now() + Duration::from_millis(millis);
    let answered = Mutex::new(Vec::new());
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                if call(up, home) {
                    answered.lock().unwrap().push(Instant::now());
                }
            }
        });
        scope.spawn(|| {
            for number in 0.. {
                if Instant::now() >= end {
                    break;
                }
                let name = format!("giant-{round}-{number}");
                if up.add_giant(&name, &home.path()).status.success() {
                    acknowledged.lock().unwrap().push(name);
                }
            }
        });
    });
    let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
    let answered = answered.into_inner().unwrap();
    let old = answered.iter().filter(|at| **at <= long_ago).count();
    promised.answered += u64::try_from(old).unwrap();
    promised.models.extend(acknowledged.into_inner().unwrap());
}

/// What a good start is: it serves, with one engine, and has kept every promise.
fn hold(up: &Contact, home: &Home, round: u64, promised: &Promised) {
    assert!(call(up, home), "round {round}: it serves");
    let mut engines = home.engines();
    // Each has a launcher beside it, which reaps what it leaves.
    engines.retain(|line| !line.contains(" llmgw-launcher "));
    assert_eq!(engines.len(), 1, "round {round}: {engines:?}");
    let replicas = up.ctl_json(&["replicas"]);
    assert_eq!(
        replicas.as_array().unwrap().len(),
        1,
        "round {round}: {replicas}"
    );
    let models = up.ctl_json(&["models"]);
    let names: BTreeSet<String> = models
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["name"].as_str().unwrap().to_owned())
        .collect();
    let lost: Vec<&String> = promised.models.difference(&names).collect();
    assert!(
        lost.is_empty(),
        "round {round}: acknowledged and lost: {lost:?}"
    );
    let usage = up.ctl_json(&["usage"]);
    let kept: u64 = usage
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["requests"].as_u64().unwrap())
        .sum();
    assert!(
        kept >= promised.answered,
        "round {round}: {kept} of {} kept",
        promised.answered
    );
}

fn call(up: &Contact, home: &Home) -> bool {
    let key = fs::read_to_string(home.key_file()).unwrap();
    let bearer = format!("Authorization: Bearer {}", key.trim());
    let url = format!("{}/v1/chat/completions", up.address());
    let body = r#"{"model": "smollm2-135m", "max_tokens": 4,
                   "messages": [{"role": "user", "content": "hi"}]}"#;
    let (status, answer) = http(&["-H", &bearer, "-d", body, &url]);
    status == 200
        && answer["usage"]["completion_tokens"]
            .as_u64()
            .is_some_and(|n| n > 0)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
