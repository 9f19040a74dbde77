//! Models on demand that share the room for one of them.

use super::*;

/// Two models on demand, and room for one.
fn sharing() -> Cluster {
    let mut cluster = Cluster::new(1);
    cluster.intent.models.clear();
    for name in ["a", "b"] {
        let model: Model = serde_json::from_value(serde_json::json!({
            "name": name, "source": "file:/m.gguf", "min_replicas": 0,
            "profiles": [{"memory": "5GiB", "parallel": 4}],
        }))
        .unwrap();
        cluster.intent.models.insert(model.name().clone(), model);
    }
    cluster
}

fn ask(cluster: &mut Cluster, model: &str, waiting: u64) {
    let model = model.parse().unwrap();
    let now = seconds(cluster.now);
    cluster.observed.ask(&model, now);
    cluster.observed.asked.get_mut(&model).unwrap().waiting = waiting;
}

fn serving(cluster: &Cluster) -> Vec<&str> {
    let given = cluster.memory.assignments.values();
    given.map(|given| given.spec.model.as_str()).collect()
}

#[test]
fn an_idle_model_makes_room_once_it_has_had_its_turn() {
    let mut cluster = sharing();
    cluster.now += 1;
    ask(&mut cluster, "a", 0);
    cluster.run(2);
    assert_eq!(serving(&cluster), ["a"]);
    cluster.now += 1;
    ask(&mut cluster, "b", 1);
    cluster.run(20);
    assert_eq!(serving(&cluster), ["a"], "it has not been there for long");
    let actions = cluster.run(14);
    let drained = actions.iter().filter_map(|action| match action {
        Action::Drain { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert_eq!(
        drained.collect::<Vec<_>>(),
        [Why::RoomFor("b".parse().unwrap())]
    );
    assert_eq!(serving(&cluster), ["b"]);
    ask(&mut cluster, "b", 0);
    // Nobody asks for the first one: it does not come back.
    let actions = cluster.run(60);
    assert_eq!(serving(&cluster), ["b"], "{actions:?}");
}

#[test]
fn a_model_keeps_its_room_for_as_long_as_is_set() {
    let mut cluster = sharing();
    cluster.intent.pacing = Pacing {
        min_residency: seconds(90),
        max_wait: seconds(5),
        ..Pacing::default()
    };
    cluster.now += 1;
    ask(&mut cluster, "a", 0);
    cluster.run(2);
    ask(&mut cluster, "b", 1);
    cluster.run(80);
    assert_eq!(serving(&cluster), ["a"]);
    cluster.run(15);
    assert_eq!(serving(&cluster), ["b"]);
}

#[test]
fn two_models_with_work_for_ever_take_turns_and_neither_waits_for_long() {
    let mut cluster = sharing();
    let names = ["a", "b"];
    let mut longest = [0_u64; 2];
    let mut waited = [0_u64; 2];
    let mut swaps = 0;
    for _ in 0..1_000 {
        cluster.now += 1;
        cluster.observed.outstanding.clear();
        cluster.report(ReplicaState::Ready);
        for (at, name) in names.iter().enumerate() {
            let given = cluster.memory.assignments.iter();
            let ready = given
                .filter(|(_, given)| given.spec.model.as_str() == *name && given.draining.is_none())
                .map(|(id, _)| *id)
                .next();
            match ready {
                Some(id) => {
                    cluster.observed.outstanding.insert(id, 4);
                    ask(&mut cluster, name, 0);
                    waited[at] = 0;
                }
                None => {
                    ask(&mut cluster, name, 4);
                    waited[at] += 1;
                    longest[at] = longest[at].max(waited[at]);
                }
            }
        }
        let actions = cluster.step();
        let room = actions.iter().filter(|action| {
            matches!(
                action,
                Action::Drain {
                    why: Why::RoomFor(_),
                    ..
                }
            )
        });
        swaps += room.count();
    }
    assert!(longest.iter().all(|longest| *longest <= 45), "{longest:?}");
    assert!((15..=34).contains(&swaps), "{swaps}");
}

#[test]
fn what_was_made_room_for_gets_it_whatever_else_asks() {
    let mut cluster = sharing();
    cluster.now += 1;
    ask(&mut cluster, "a", 0);
    cluster.run(40);
    cluster.now += 1;
    ask(&mut cluster, "b", 1);
    cluster.report(ReplicaState::Ready);
    let actions = cluster.step();
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Drain { .. })),
        "{actions:?}"
    );
    // The one that goes is asked for again before the other has its place.
    ask(&mut cluster, "a", 9);
    let actions = cluster.run(5);
    assert_eq!(serving(&cluster), ["b"], "{actions:?}");
}
