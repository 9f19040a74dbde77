use std::sync::Arc;

use llmgw_core::{
    api::{agent::NodeReport, decision::RollEnd},
    clock::Timestamp,
    cluster::{
        node::{Memory, NodeFacts, Warning},
        order::{Duty, NodeOrder, StoredOrder},
        replica::ReplicaSpec,
    },
};

use super::{summary::stuck, *};
use crate::{
    conductor::{Conductor, Event, Moment, Setup},
    reconcile::roll::Roll,
};

/// A loop with one model of 4 GiB, and nodes with so much memory that do at once what they are told.
struct Cluster {
    conductor: Conductor,
    nodes: Vec<(NodeId, Bytes, Vec<ReplicaStatus>)>,
    now: u64,
}

impl Cluster {
    fn new(gib: &[u64]) -> Self {
        let model: Model = serde_json::from_value(serde_json::json!({
            "name": "m", "source": "file:/m.gguf", "profiles": [{"memory": "4GiB"}],
        }))
        .unwrap();
        let entry = Entry::declared(model, Timestamp(0));
        let entries = BTreeMap::from([(entry.model.name().clone(), entry)]);
        let nodes = (1..).zip(gib);
        let nodes =
            nodes.map(|(number, gib)| (NodeId::imagined(number), Bytes::gib(*gib), Vec::new()));
        let mut cluster = Self {
            conductor: Conductor::new(Setup {
                entries,
                epoch: 1,
                ..Setup::default()
            }),
            nodes: nodes.collect(),
            now: 0,
        };
        for (node, _, _) in &cluster.nodes {
            let opened = Event::Opened { node: *node };
            cluster.conductor.take_in(opened, Duration::ZERO);
        }
        cluster
    }

    /// A second later: all report, the loop takes a step, and nodes follow.
    fn step(&mut self) {
        self.now += 1;
        let now = Duration::from_secs(self.now);
        for (at, (node, memory, replicas)) in self.nodes.iter().enumerate() {
            let report = report(at, *memory, replicas);
            let report = Box::new(report);
            let node = *node;
            self.conductor.take_in(Event::Report { node, report }, now);
        }
        let moment = Moment {
            now,
            at: Timestamp(0),
            leading: Some(1),
        };
        let mut minted = 0;
        let number = self.now * 100;
        let effects = self.conductor.step(moment, &mut || {
            minted += 1;
            ReplicaId::imagined(number + minted)
        });
        for (node, desired) in effects.desired {
            let of_node = self.nodes.iter_mut().find(|(id, _, _)| *id == node);
            let (_, _, replicas) = of_node.unwrap();
            *replicas = desired.replicas.iter().map(serving).collect();
        }
    }

    fn drain_where_it_serves(&mut self) -> String {
        let serves = |(_, _, replicas): &&(_, _, Vec<_>)| !replicas.is_empty();
        let node = self.nodes.iter().find(serves).unwrap().0;
        let order = StoredOrder {
            order: Order::Node(NodeOrder {
                node,
                duty: Duty::Draining,
                force: false,
                reason: String::new(),
            }),
            by: "test".into(),
            since: Timestamp(0),
        };
        let ordered = Event::Ordered {
            order: Box::new(order),
        };
        let now = Duration::from_secs(self.now);
        self.conductor.take_in(ordered, now);
        self.conductor.state().hostname(node)
    }

    fn stuck(&self) -> Vec<String> {
        let now = Duration::from_secs(self.now);
        stuck(self.conductor.state(), now, None)
            .into_iter()
            .collect()
    }
}

fn serving(spec: &ReplicaSpec) -> ReplicaStatus {
    ReplicaStatus {
        spec: spec.clone(),
        state: ReplicaState::Ready,
        since: Timestamp(0),
        endpoint: Some("127.0.0.1:1".to_owned()),
        fetch: None,
        measured: None,
        error: None,
        hint: None,
        log_tail: Vec::new(),
    }
}

fn report(at: usize, memory: Bytes, replicas: &[ReplicaStatus]) -> NodeReport {
    let installed = ProvisionState::Installed {
        version: "1".into(),
        variant: "cpu".into(),
    };
    NodeReport {
        revision: 0,
        epoch: 0,
        highest_epoch: 0,
        highest_revision: 0,
        leaving: false,
        facts: NodeFacts {
            hostname: format!("box-{}", at + 1),
            memory: Some(Memory {
                total: memory,
                allocatable: memory,
            }),
            ..NodeFacts::default()
        },
        provision: vec![Provision::new("llamacpp".parse().unwrap(), installed)],
        replicas: replicas.to_vec(),
        weights: None,
        headers: Vec::new(),
    }
}

#[test]
fn a_drain_that_has_no_other_place_is_told_with_what_comes_nearest() {
    let mut cluster = Cluster::new(&[8, 3]);
    cluster.step();
    cluster.step();
    assert_eq!(cluster.stuck(), [""; 0], "nothing is drained yet");
    let drained = cluster.drain_where_it_serves();
    cluster.step();
    let expected = format!(
        "{drained} is draining and keeps m: no room for its successor. Nearest: box-2 with default: memory: needs 4.0 \
         GiB, has 3.0 GiB free, short by 1.0 GiB; `llmgw ctl drain {drained} --force` stops it first"
    );
    assert_eq!(cluster.stuck(), std::slice::from_ref(&expected));
    // Whoever asks about the model is told too, and not of other models.
    let held_up = |name: &str| {
        let now = Duration::from_secs(cluster.now);
        held_up(cluster.conductor.state(), &name.parse().unwrap(), now)
    };
    assert_eq!(held_up("m"), [expected]);
    assert_eq!(held_up("n"), [""; 0]);
}

#[test]
fn a_drain_that_goes_on_is_not_told() {
    let mut cluster = Cluster::new(&[8, 8]);
    cluster.step();
    cluster.step();
    let drained = cluster.drain_where_it_serves();
    for _ in 0..6 {
        cluster.step();
        assert_eq!(cluster.stuck(), [""; 0]);
    }
    let serves: Vec<String> = cluster
        .nodes
        .iter()
        .filter(|(_, _, replicas)| !replicas.is_empty())
        .map(|(node, _, _)| cluster.conductor.state().hostname(*node))
        .collect();
    assert_eq!(serves.len(), 1);
    assert_ne!(serves, [drained], "it has moved");
}

#[test]
fn a_warning_that_many_nodes_have_is_told_once() {
    let warned = |hostname: &str, texts: &[&str]| {
        let warning = |text: &&str| Warning {
            code: "any".into(),
            text: (*text).to_owned(),
        };
        let facts = NodeFacts {
            hostname: hostname.to_owned(),
            warnings: texts.iter().map(warning).collect(),
            ..NodeFacts::default()
        };
        Arc::new(ObservedNode {
            heard_at: Duration::ZERO,
            left: false,
            revision: 0,
            facts,
            provision: Vec::new(),
            replicas: BTreeMap::new(),
            weights: None,
        })
    };
    let nodes = [
        warned("d", &["no cgroups"]),
        warned("b", &["no AVX2", "no cgroups"]),
        warned("a", &["no cgroups"]),
        warned("c", &["no cgroups", "swap is in use", "swap is in use"]),
        warned(
            "e",
            &[
                "swap is in use",
                "the group /sys/e has no memory controller",
            ],
        ),
        warned("f", &["the group /sys/f has no memory controller"]),
    ];
    assert_eq!(
        warnings::told_once(nodes.iter()),
        [
            "4 nodes (a, b, c and 1 more): no cgroups",
            "b: no AVX2",
            "2 nodes (c, e): swap is in use",
            "2 nodes (e, f): the group … has no memory controller",
        ]
    );
}

#[test]
fn a_roll_after_one_that_ended_has_another_number() {
    let mut cluster = Cluster::new(&[8]);
    cluster.step();
    let mut snapshot = cluster.conductor.state().clone();
    let model: ModelName = "m".parse().unwrap();
    assert_eq!(snapshot.next_roll(&model), 1);
    let roll = Roll {
        number: 1,
        since: Duration::ZERO,
        replaced: 1,
        failures: 0,
        last_error: None,
        ended: Some(RollEnd::Done { replaced: 1 }),
    };
    snapshot.memory.rolls.insert(model.clone(), roll);
    // The order for the first is lifted by now.
    assert_eq!(snapshot.next_roll(&model), 2);
}
