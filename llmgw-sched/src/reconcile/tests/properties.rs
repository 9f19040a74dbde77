//! Whatever happens, in whatever order.

use std::collections::BTreeSet;

use llmgw_core::cluster::order::{Duty, NodeOrder, Subject};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Happening {
    /// Seconds pass.
    Pass(u64),
    /// Every replica comes up; or every one that is not ready fails.
    Up,
    Crash(usize),
    Silent(usize),
    Heard,
    Ask(usize, u64),
    Calls(usize, u64),
    Duty(usize, Option<(Duty, bool)>),
    Scale(usize, u32, u32),
    Edit(usize),
    Roll(usize, bool),
    Remove(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    let at = 0..6_usize;
    prop_oneof![
        4 => (1..40_u64).prop_map(Happening::Pass),
        4 => Just(Happening::Up),
        1 => at.clone().prop_map(Happening::Crash),
        1 => at.clone().prop_map(Happening::Silent),
        2 => Just(Happening::Heard),
        3 => (at.clone(), 0..9_u64).prop_map(|(at, calls)| Happening::Ask(at, calls)),
        3 => (at.clone(), 0..9_u64).prop_map(|(at, calls)| Happening::Calls(at, calls)),
        2 => (at.clone(), prop_oneof![
            Just(None), Just(Some((Duty::Draining, false))), Just(Some((Duty::Draining, true))),
            Just(Some((Duty::Cordoned, false))),
        ]).prop_map(|(at, duty)| Happening::Duty(at, duty)),
        1 => (at.clone(), 0..3_u32, 0..3_u32).prop_map(|(at, min, more)| Happening::Scale(at, min, min + more)),
        1 => at.clone().prop_map(Happening::Edit),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, force)| Happening::Roll(at, force)),
        1 => at.prop_map(Happening::Remove),
    ]
}

fn definition(at: usize, source: u64, min: u32, max: u32) -> Model {
    serde_json::from_value(serde_json::json!({
        "name": format!("m{at}"), "source": format!("file:/{source}.gguf"), "min_replicas": min, "max_replicas": max,
        "idle_timeout": "20s", "profiles": [{"memory": "3GiB", "parallel": 2}],
    }))
    .unwrap()
}

/// What agents hold: they end what they are not told to run, and report what they have.
struct World {
    cluster: Cluster,
    silent: BTreeSet<NodeId>,
    states: BTreeMap<ReplicaId, ReplicaState>,
    edits: u64,
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster::new(1);
        cluster.intent.models.clear();
        for (at, (min, max)) in [(1, 1), (0, 2), (2, 2), (1, 3)].into_iter().enumerate() {
            let model = definition(at, 0, min, max);
            cluster.intent.models.insert(model.name().clone(), model);
        }
        for _ in 0..3 {
            cluster = cluster.and_node().0;
        }
        cluster.memory.settle = seconds(3);
        Self {
            cluster,
            silent: BTreeSet::new(),
            states: BTreeMap::new(),
            edits: 0,
        }
    }

    fn node(&self, at: usize) -> NodeId {
        let nodes: Vec<&NodeId> = self.cluster.observed.nodes.keys().collect();
        *nodes[at % nodes.len()]
    }

    fn replica(&self, at: usize) -> Option<ReplicaId> {
        let ids: Vec<&ReplicaId> = self.cluster.memory.assignments.keys().collect();
        (!ids.is_empty()).then(|| *ids[at % ids.len()])
    }

    fn happen(&mut self, happening: &Happening) {
        let name = |at: usize| -> ModelName { format!("m{}", at % 4).parse().unwrap() };
        match happening {
            Happening::Pass(span) => {
                for _ in 0..*span {
                    self.cluster.now += 1;
                    self.second();
                }
            }
            Happening::Up => {
                for state in self.states.values_mut() {
                    *state = ReplicaState::Ready;
                }
            }
            Happening::Crash(at) => {
                if let Some(id) = self.replica(*at) {
                    self.states.insert(id, ReplicaState::Failed);
                }
            }
            Happening::Silent(at) => {
                self.silent.insert(self.node(*at));
            }
            Happening::Heard => self.silent.clear(),
            Happening::Ask(at, waiting) => {
                let observed = &mut self.cluster.observed;
                observed.ask(&name(*at), seconds(self.cluster.now));
                observed.asked.get_mut(&name(*at)).unwrap().waiting = *waiting;
            }
            Happening::Calls(at, calls) => {
                if let Some(id) = self.replica(*at) {
                    self.cluster.observed.outstanding.insert(id, *calls);
                }
            }
            Happening::Duty(at, duty) => {
                let node = self.node(*at);
                match duty {
                    Some((duty, force)) => self.cluster.order(Order::Node(NodeOrder {
                        node,
                        duty: *duty,
                        reason: String::new(),
                        force: *force,
                    })),
                    None => {
                        let orders = Arc::make_mut(&mut self.cluster.intent.orders);
                        orders.lift(&Subject::Node(node));
                    }
                }
            }
            Happening::Scale(at, min, max) => {
                let model = definition(at % 4, self.edits, *min, *max);
                self.cluster
                    .intent
                    .models
                    .insert(model.name().clone(), model);
            }
            Happening::Edit(at) => {
                self.edits += 1;
                if let Some(model) = self.cluster.intent.models.get(&name(*at)) {
                    let scaling = model.scaling();
                    let model = definition(at % 4, self.edits, scaling.min(), scaling.max());
                    self.cluster
                        .intent
                        .models
                        .insert(model.name().clone(), model);
                }
            }
            Happening::Roll(at, force) => {
                self.edits += 1;
                self.cluster.order(Order::Roll {
                    model: name(*at),
                    number: self.edits,
                    force: *force,
                });
            }
            Happening::Remove(at) => {
                self.cluster.intent.models.remove(&name(*at));
            }
        }
        self.second();
    }

    /// Agents report, the loop steps, and what it decided is looked at.
    fn second(&mut self) {
        let cluster = &mut self.cluster;
        for (id, node) in &mut cluster.observed.nodes {
            let node = Arc::make_mut(node);
            if self.silent.contains(id) {
                continue;
            }
            node.heard_at = seconds(cluster.now);
            let given = cluster.memory.assignments.values();
            node.replicas = given
                .filter(|given| given.node == *id)
                .map(|given| {
                    let state = self
                        .states
                        .entry(given.spec.id)
                        .or_insert(ReplicaState::Starting);
                    (
                        given.spec.id,
                        status(ReplicaSpec::clone(&given.spec), *state),
                    )
                })
                .collect();
        }
        let before = cluster.memory.clone();
        let actions = cluster.step();
        let ready = |memory: &Memory, model: &ModelName| -> BTreeSet<ReplicaId> {
            let given = memory.assignments.iter();
            given
                .filter(|(id, given)| {
                    given.spec.model == *model
                        && cluster.observed.nodes[&given.node]
                            .replicas
                            .get(id)
                            .map(|status| status.state)
                            == Some(ReplicaState::Ready)
                })
                .map(|(id, _)| *id)
                .collect()
        };
        for action in &actions {
            match action {
                Action::Drain { replica, why } => {
                    let Some(given) = before.assignments.get(replica) else {
                        continue;
                    };
                    let busy = cluster
                        .observed
                        .outstanding
                        .get(replica)
                        .is_some_and(|calls| *calls > 0);
                    // By force the last that serves may go: where that was ordered, and while nothing starts for it.
                    let orders = &cluster.intent.orders;
                    let (forced, others) = match why {
                        Why::MovedByForce => (orders.forces_drain(given.node), 0),
                        Why::RolledByForce => {
                            let after = cluster.memory.assignments.iter();
                            let drains = after.filter(|(id, other)| {
                                *id != replica
                                    && other.spec.model == given.spec.model
                                    && other.draining.is_some()
                            });
                            (orders.forces_roll(&given.spec.model), drains.count())
                        }
                        _ => (true, 0),
                    };
                    assert!(forced, "nobody forced it: {action:?}");
                    assert_eq!(others, 0, "more than one at a time: {action:?}");
                    if matches!(why, Why::Idle | Why::LessLoad) {
                        assert!(!busy, "at work and taken for idle: {action:?}");
                        assert!(
                            ready(&before, &given.spec.model).contains(replica),
                            "loading: {action:?}"
                        );
                    }
                    if matches!(
                        why,
                        Why::Moved | Why::Rolled | Why::LessLoad | Why::BackedOut
                    ) {
                        let left = ready(&cluster.memory, &given.spec.model);
                        let left = left
                            .iter()
                            .filter(|id| cluster.memory.assignments[*id].draining.is_none());
                        let was = ready(&before, &given.spec.model).contains(replica);
                        // Those that served in its place may make room for another model in the same step: that is no
                        // move, and may leave none.
                        let swapped = actions.iter().any(|other| match other {
                            Action::Drain {
                                replica,
                                why: Why::RoomFor(_),
                            } => before
                                .assignments
                                .get(replica)
                                .is_some_and(|other| other.spec.model == given.spec.model),
                            _ => false,
                        });
                        assert!(
                            !was || swapped || left.count() > 0,
                            "the last that serves: {actions:?}"
                        );
                    }
                }
                Action::Place { model, .. } => {
                    let parked = before
                        .histories
                        .get(model)
                        .is_some_and(|history| history.parked);
                    let unparked = actions
                        .iter()
                        .any(|other| matches!(other, Action::Unpark { .. }));
                    assert!(!parked || unparked, "parked: {action:?}");
                }
                Action::EndRoll { model, .. } => {
                    let orders = Arc::make_mut(&mut cluster.intent.orders);
                    orders.lift(&Subject::Roll(model.clone()));
                }
                Action::Park { model, parked } => {
                    let order = Order::Park {
                        model: model.clone(),
                        parked: parked.clone(),
                    };
                    Arc::make_mut(&mut cluster.intent.orders).put(StoredOrder {
                        order,
                        by: "loop".into(),
                        since: Timestamp(0),
                    });
                }
                Action::Unpark { model } => {
                    let orders = Arc::make_mut(&mut cluster.intent.orders);
                    orders.lift(&Subject::Park(model.clone()));
                }
                _ => {}
            }
        }
        let now = seconds(cluster.now);
        let fleet = fleet(&cluster.intent, &cluster.observed, &cluster.memory, now);
        for node in &fleet.nodes {
            assert!(node.memory_reserved() <= Bytes::gib(8), "{actions:?}");
        }
    }
}

/// Few in each run of all tests; as many as `PROPTEST_CASES` says for whoever wants to look longer.
#[expect(
    clippy::disallowed_methods,
    reason = "a test takes no flags, and proptest has this name for it"
)]
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn what_must_never_happen_never_does_and_the_loop_comes_to_rest(
        happenings in proptest::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::new();
        for happening in &happenings {
            world.happen(happening);
        }
        // Faults end: everybody is heard, nothing is at work, and what is started comes up.
        world.silent.clear();
        world.cluster.observed.outstanding.clear();
        for asked in world.cluster.observed.asked.values_mut() {
            asked.waiting = 0;
        }
        let mut quiet = 0;
        for _ in 0..500 {
            world.cluster.now += 1;
            for state in world.states.values_mut() {
                *state = ReplicaState::Ready;
            }
            let before = world.cluster.memory.assignments.clone();
            world.second();
            let given = |all: &BTreeMap<ReplicaId, Assignment>| -> Vec<(ReplicaId, bool)> {
                all.iter().map(|(id, given)| (*id, given.draining.is_some())).collect()
            };
            quiet = if given(&before) == given(&world.cluster.memory.assignments) { quiet + 1 } else { 0 };
        }
        prop_assert!(quiet > 150, "it does not come to rest: {quiet}");
    }
}
