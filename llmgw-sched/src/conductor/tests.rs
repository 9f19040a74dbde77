use llmgw_core::{
    cluster::{
        engine::{Provision, ProvisionState},
        node::{Memory as NodeMemory, NodeFacts},
        replica::ReplicaState,
    },
    units::Bytes,
};

use super::*;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn entry(name: &str) -> Entry {
    let model = serde_json::from_value(serde_json::json!({
        "name": name, "source": "file:/m.gguf", "profiles": [{"memory": "1GiB"}],
    }));
    Entry::added(model.unwrap(), Timestamp(0))
}

fn report() -> NodeReport {
    NodeReport {
        revision: 0,
        epoch: 0,
        highest_epoch: 0,
        highest_revision: 0,
        leaving: false,
        facts: NodeFacts {
            hostname: "box".into(),
            memory: Some(NodeMemory {
                total: Bytes::gib(8),
                allocatable: Bytes::gib(8),
            }),
            ..NodeFacts::default()
        },
        provision: vec![Provision::new(
            "llamacpp".parse().unwrap(),
            ProvisionState::Installed {
                version: "1".into(),
                variant: "path".into(),
            },
        )],
        replicas: Vec::new(),
        weights: None,
        headers: Vec::new(),
    }
}

/// A conductor that leads, and a node that it may use.
struct Alone {
    conductor: Conductor,
    node: NodeId,
    minted: u64,
}

impl Alone {
    fn new(models: &[&str]) -> Self {
        let entries = models.iter().map(|name| entry(name));
        let setup = Setup {
            entries: entries
                .map(|entry| (entry.model.name().clone(), entry))
                .collect(),
            epoch: 3,
            ..Setup::default()
        };
        Self {
            conductor: Conductor::new(setup),
            node: NodeId::imagined(1),
            minted: 0,
        }
    }

    fn take_in(&mut self, event: Event) {
        self.conductor.take_in(event, seconds(1));
    }

    fn open(&mut self) {
        self.take_in(Event::Opened { node: self.node });
    }

    fn hear(&mut self, report: NodeReport) {
        let report = Box::new(report);
        self.take_in(Event::Report {
            node: self.node,
            report,
        });
    }

    fn step(&mut self, leading: Option<u64>) -> Effects {
        self.step_at(1, leading)
    }

    fn step_at(&mut self, second: u64, leading: Option<u64>) -> Effects {
        let moment = Moment {
            now: seconds(second),
            at: Timestamp(0),
            leading,
        };
        let minted = &mut self.minted;
        self.conductor.step(moment, &mut || {
            *minted += 1;
            ReplicaId::imagined(*minted)
        })
    }
}

#[test]
fn a_node_is_told_nothing_before_it_has_said_what_it_runs() {
    let mut alone = Alone::new(&["m"]);
    alone.open();
    assert!(alone.step(Some(3)).desired.is_empty());
    alone.hear(report());
    let told = alone.step(Some(3)).desired;
    assert_eq!(told.len(), 1);
    let (node, desired) = &told[0];
    assert_eq!(*node, alone.node);
    assert_eq!((desired.epoch, desired.revision), (3, 1));
    assert_eq!(desired.replicas[0].id, ReplicaId::imagined(1));
}

#[test]
fn what_a_node_was_told_is_told_again_only_to_a_new_session() {
    let mut alone = Alone::new(&["m"]);
    alone.open();
    alone.hear(report());
    assert_eq!(alone.step(Some(3)).desired.len(), 1);
    alone.hear(report());
    assert!(alone.step(Some(3)).desired.is_empty());
    alone.open();
    alone.hear(report());
    let again = alone.step(Some(3)).desired;
    assert_eq!(again[0].1.revision, 2, "an agent takes no lower one");
}

#[test]
fn who_does_not_lead_decides_and_orders_nothing_and_answers_all_the_same() {
    let mut alone = Alone::new(&["m"]);
    alone.open();
    alone.hear(report());
    let model: ModelName = "m".parse().unwrap();
    let ticket = Ticket(7);
    alone.take_in(Event::Asked { model, ticket });
    for leading in [None, Some(4)] {
        let effects = alone.step(leading);
        assert!(effects.desired.is_empty());
        assert!(effects.notes.is_empty());
        if leading.is_none() {
            assert_eq!(effects.answers.len(), 1);
            assert_eq!(effects.answers[0].0, ticket);
            assert!(effects.answers[0].1.is_some());
        }
    }
    assert_eq!(alone.minted, 0);
}

#[test]
fn routes_are_said_when_they_change() {
    let mut alone = Alone::new(&["m"]);
    alone.open();
    alone.hear(report());
    let placed = alone.step(Some(3));
    assert!(placed.routes.is_some());
    assert!(alone.step(Some(3)).routes.is_none());
    let spec = placed.desired[0].1.replicas[0].clone();
    let ready = ReplicaStatus {
        measured: None,
        spec,
        state: ReplicaState::Ready,
        since: Timestamp(0),
        endpoint: Some("127.0.0.1:9".into()),
        fetch: None,
        error: None,
        hint: None,
        log_tail: Vec::new(),
    };
    alone.hear(NodeReport {
        replicas: vec![ready],
        ..report()
    });
    let routes = alone.step(Some(3)).routes.unwrap();
    assert_eq!(routes[0].endpoints.len(), 1);
}

#[test]
fn an_agent_that_has_followed_a_later_epoch_is_told_of_and_an_impossible_one_is_not_believed() {
    let mut alone = Alone::new(&[]);
    alone.hear(NodeReport {
        highest_epoch: 9,
        ..report()
    });
    assert_eq!(alone.step(Some(3)).outranked, Some(9));
    assert_eq!(alone.step(Some(3)).outranked, None);
    alone.hear(NodeReport {
        highest_epoch: u64::MAX,
        ..report()
    });
    let effects = alone.step(Some(3));
    assert_eq!(effects.outranked, None);
    assert!(matches!(effects.notes[..], [Note::ImpossibleEpoch { .. }]));
}

#[test]
fn a_node_that_does_not_work_towards_what_it_was_told_is_told_again() {
    let mut alone = Alone::new(&["m"]);
    alone.open();
    alone.hear(report());
    let told = alone.step(Some(3)).desired;
    assert!(alone.step_at(4, Some(3)).desired.is_empty());
    let again = alone.step_at(6, Some(3)).desired;
    assert_eq!(
        again, told,
        "the same, so that one that followed it does no more"
    );
    assert!(alone.step_at(7, Some(3)).desired.is_empty());
    let revision = told[0].1.revision;
    let spec = told[0].1.replicas[0].clone();
    alone.hear(NodeReport {
        revision,
        epoch: 3,
        replicas: vec![ReplicaStatus {
            measured: None,
            spec,
            state: ReplicaState::Starting,
            since: Timestamp(0),
            endpoint: None,
            fetch: None,
            error: None,
            hint: None,
            log_tail: Vec::new(),
        }],
        ..report()
    });
    assert!(alone.step_at(14, Some(3)).desired.is_empty());
}

#[test]
fn who_leads_again_has_the_models_as_the_store_has_them() {
    let mut alone = Alone::new(&["m", "gone"]);
    let changed = Entry::added(entry("m").model, Timestamp(5));
    alone.take_in(Event::Leading {
        orders: Default::default(),
        epoch: 4,
        entries: vec![changed.clone(), entry("new")],
        raised: false,
    });
    let known = &alone.conductor.state().entries;
    let names: Vec<&str> = known.keys().map(ModelName::as_str).collect();
    assert_eq!(names, ["m", "new"]);
    assert_eq!(known[changed.model.name()], changed);
}
