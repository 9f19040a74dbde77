//! Situations as scripts: what a fleet looks like and what is wanted, and under a line of dashes the whole plan.

use std::{fmt::Write as _, fs, path::Path};

use llmgw_core::reason::render;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    fleet: Fleet,
    wanted: Wanted,
    #[serde(default)]
    policy: PolicyName,
    #[serde(default)]
    evict_after_seconds: Option<u64>,
}

#[test]
fn every_situation_ends_as_its_script_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/planner/tests/situations");
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 8, "{scripts:?}");
    let mut wrong = String::new();
    for path in scripts {
        let script = fs::read_to_string(&path).unwrap();
        let (situation, expected) = script.split_once("\n----\n").expect("a line of dashes");
        // The first lines say in words what the script is about.
        let json: String = situation
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let situation: Situation = serde_json::from_str(&json)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(situation.fleet.check(), [], "{}", path.display());
        let told = told(&situation);
        if told.trim() != expected.trim() {
            write!(wrong, "{}:\n{told}\n", path.display()).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "these plans are not what their scripts say:\n{wrong}"
    );
}

fn told(situation: &Situation) -> String {
    let Situation {
        fleet,
        wanted,
        policy,
        evict_after_seconds,
    } = situation;
    let options = Options {
        policy: *policy,
        evict_after_seconds: *evict_after_seconds,
        ..Options::default()
    };
    let (plan, reports) = plan_with(fleet, wanted, &options);
    let mut text = String::new();
    for placement in &plan.placements {
        let Placement {
            model,
            profile,
            node: _,
            hostname,
            memory,
            gpus,
            shards,
            replaces,
            after,
            waits,
        } = placement;
        write!(text, "place {model} with {profile} on {hostname}, {memory}").unwrap();
        if !gpus.is_empty() {
            write!(text, ", GPUs {gpus:?}").unwrap();
        }
        for (rank, shard) in shards.iter().enumerate() {
            write!(
                text,
                ", shard {rank} on {} {:?}",
                shard.hostname, shard.gpus
            )
            .unwrap();
        }
        if let Some(replica) = replaces {
            write!(text, ", in place of {}", replica.short()).unwrap();
        }
        for replica in after {
            write!(text, ", after {} has ended", replica.short()).unwrap();
        }
        if *waits {
            text.push_str(", once another start has ended");
        }
        text.push('\n');
    }
    for Stop {
        replica,
        model,
        why,
        ..
    } in &plan.stops
    {
        writeln!(text, "stop {} of {model}: {why}", replica.short()).unwrap();
    }
    for report in reports.iter().filter(|report| report.fits.is_none()) {
        writeln!(text, "{}", render::headline(report)).unwrap();
    }
    if text.is_empty() {
        text.push_str("nothing\n");
    }
    text
}
