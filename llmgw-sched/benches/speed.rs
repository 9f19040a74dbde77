//! How long decisions take, and how that grows with the fleet: time of one core.
//!
//! `cargo xtask bench speed [--nodes 100,1000]`. What is asked for: on 5,000 nodes with 8 GPUs each a replica in
//! under a millisecond, 10,000 replicas from nothing in under 5 seconds, and the full reasons of a model that fits
//! nowhere, over 4 profiles, in under 50 milliseconds.

use std::{collections::BTreeMap, time::Duration};

use clap::Parser;
use llmgw_core::{
    cluster::{catalog::Model, engine::ProvisionState},
    id::NodeId,
    units::{Bytes, Cores},
};
use llmgw_sched::{
    fleet::{Fleet, FleetGpu, FleetNode, Phase},
    planner::{
        Wanted,
        demand::Classes,
        plan,
        policy::{PolicyName, Scale},
        score::Ties,
        trial,
        working::Working,
    },
};
use serde_json::{Value, json};

/// How long decisions take
#[derive(Debug, Parser)]
struct Args {
    /// The sizes of the fleet
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 5_000, 10_000])]
    nodes: Vec<u32>,
    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let models = models()?;
    let replicas: u32 = models.iter().map(Model::replicas).sum();
    say(&format!(
        "{:>7}  {:>14}  {:>14}  {:>14}  {:>16}  {:>12}",
        "nodes",
        "one replica",
        "one, p99",
        "one, cold",
        format!("{replicas} from none"),
        "explanation"
    ));
    for nodes in args.nodes {
        let fleet = fleet(nodes)?;
        let wanted = Wanted {
            models: models.clone(),
        };
        let (median, slow) = one_by_one(&fleet, &wanted);
        let cold = cold(&fleet, &models);
        let (all, placed) = timed(|| plan(&fleet, &wanted).0.placements.len());
        let large = unplaceable()?;
        let (explained, rejections) = timed(|| trial(&fleet, &large).rejections.len());
        say(&format!(
            "{nodes:>7}  {:>14}  {:>14}  {:>14}  {:>16}  {:>12}   {placed} placed, {rejections} rejections",
            shown(median),
            shown(slow),
            shown(cold),
            shown(all),
            shown(explained)
        ));
    }
    Ok(())
}

/// A thousand decisions in a fleet that fills up: the median, and what one in a hundred exceeds.
fn one_by_one(fleet: &Fleet, wanted: &Wanted) -> (Duration, Duration) {
    let sorted = fleet.sorted();
    let mut classes = Classes::of(&sorted);
    let policy = PolicyName::default().policy(wanted.mix(&mut classes), Scale::of(&sorted));
    let mut working = Working::new(&sorted, classes, policy, &Ties::HashOfId);
    let mut times = Vec::new();
    for round in 0..1_000 {
        let Some(model) = wanted.models.get(round % wanted.models.len()) else {
            break;
        };
        let Some(profile) = model.profiles().first() else {
            break;
        };
        let (time, ()) = timed(|| {
            let ask = working.ask(Some(model), profile);
            if let Some(spot) = working.best(&ask) {
                working.take(&ask, spot, Phase::Ready);
            }
        });
        times.push(time);
    }
    times.sort_unstable();
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    (at(50), at(99))
}

/// A whole plan for one replica, from the snapshot on: the median over the models.
fn cold(fleet: &Fleet, models: &[Model]) -> Duration {
    let mut times: Vec<Duration> = models
        .iter()
        .take(15)
        .filter_map(|model| {
            let mut definition = serde_json::to_value(model).ok()?;
            *definition.get_mut("replicas")? = 1.into();
            let wanted = Wanted {
                models: vec![serde_json::from_value(definition).ok()?],
            };
            Some(timed(|| plan(fleet, &wanted).0.placements.len()).0)
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Nodes with eight GPUs, of four kinds.
fn fleet(nodes: u32) -> anyhow::Result<Fleet> {
    let installed = ProvisionState::Installed {
        version: "1".to_owned(),
        variant: "path".to_owned(),
    };
    let nodes = (0..nodes).map(|number| {
        let kinds = [
            ("L4", 24, 48),
            ("A100", 80, 96),
            ("H100", 80, 128),
            ("H200", 141, 192),
        ];
        let (class, memory, cores) = kinds[usize::try_from(number % 4)?];
        let gpus = (0..8).map(|index| FleetGpu {
            index,
            class: Some(class.to_owned()),
            memory: Some(Bytes::gib(memory)),
            in_use: false,
            fault: None,
        });
        Ok(FleetNode {
            memory_allocatable: Some(Bytes::gib(512)),
            cpu: Some(Cores::whole(cores)),
            disk_free: Some(Bytes::gib(4_000)),
            gpus: Some(gpus.collect()),
            engines: BTreeMap::from([("llamacpp".parse()?, installed.clone())]),
            ..FleetNode::named(
                NodeId::from_uuid(uuid::Uuid::from_u128(u128::from(number) + 1)),
                format!("gpu-{number}"),
            )
        })
    });
    Ok(Fleet {
        nodes: nodes.collect::<anyhow::Result<_>>()?,
        ..Fleet::default()
    })
}

/// Forty models, 250 replicas each: parts of GPUs, whole ones, several, some without.
fn models() -> anyhow::Result<Vec<Model>> {
    let model = |number: u32| {
        let memory = format!("{}GiB", 4 + number * 7 % 40);
        let gpus = match number % 5 {
            0 => json!({"count": 1, "memory": format!("{}GiB", 6 + number % 17)}),
            1 => json!({"count": 1}),
            2 => json!({"count": 2, "memory": "60GiB", "class": ["A100", "H100", "H200"]}),
            3 => json!({"count": 1, "memory": "40GiB"}),
            _ => Value::Null,
        };
        let mut profile = json!({"memory": memory, "cpu": 1 + number % 6});
        if let Some(profile) = profile.as_object_mut().filter(|_| !gpus.is_null()) {
            profile.insert("gpus".to_owned(), gpus);
        }
        Ok(serde_json::from_value(json!({
            "name": format!("m{number}"), "source": "file:/m.gguf", "replicas": 250, "profiles": [profile],
        }))?)
    };
    (0..40).map(model).collect()
}

/// Fits nowhere, each way for another reason.
fn unplaceable() -> anyhow::Result<Model> {
    Ok(serde_json::from_value(json!({
        "name": "huge", "source": "file:/m.gguf", "profiles": [
            {"name": "gpu", "memory": "8GiB", "gpus": {"count": 8, "memory": "200GiB"}},
            {"name": "class", "memory": "8GiB", "gpus": {"count": 1, "class": "B300"}, "labels": {"zone": "x"}},
            {"name": "many", "memory": "8GiB", "cpu": 500, "gpus": {"count": 16}},
            {"name": "cpu", "memory": "4TiB"},
        ],
    }))?)
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = now();
    let result = work();
    (now().saturating_sub(started), result)
}

fn shown(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1_000.0)
}

/// The time that this thread has worked: others on the same core count for nothing.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "a benchmark shows what it measured")]
fn say(text: &str) {
    println!("{text}");
}
