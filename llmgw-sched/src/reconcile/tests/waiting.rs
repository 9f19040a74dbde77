//! What is known of a model's way to a replica that serves.

use llmgw_core::{cluster::weights::FetchProgress, route::Progress};

use super::*;

fn progress(cluster: &Cluster) -> Progress {
    let now = seconds(cluster.now);
    standing::progress(&model(1), &cluster.observed, &cluster.memory, now)
}

#[test]
fn a_fetch_tells_how_much_is_there_and_how_long_the_rest_takes() {
    let mut cluster = Cluster::new(1);
    assert_eq!(progress(&cluster), Progress::default(), "nothing has begun");
    cluster.step();
    cluster.report(ReplicaState::Fetching);
    let doing = |doing: &str| Some(doing.to_owned());
    let begun = Progress {
        doing: doing("fetching weights"),
        ..Progress::default()
    };
    assert_eq!(progress(&cluster), begun);
    for node in cluster.observed.nodes.values_mut() {
        for status in Arc::make_mut(node).replicas.values_mut() {
            let source = model(1).weights().sources[0].clone();
            let mut fetch = FetchProgress::new(source, Bytes(43), Some(Bytes(100)));
            fetch.eta_seconds = Some(12);
            status.fetch = Some(fetch);
        }
    }
    let half = Progress {
        percent: Some(43),
        eta: Some(seconds(12)),
        ..begun
    };
    assert_eq!(progress(&cluster), half);
    cluster.report(ReplicaState::Starting);
    assert_eq!(progress(&cluster).doing, doing("starting"));
    cluster.report(ReplicaState::Ready);
    assert_eq!(progress(&cluster), Progress::default());
}

#[test]
fn a_model_that_failed_is_tried_again_at_a_time_that_is_told() {
    let mut cluster = Cluster::new(1);
    cluster.step();
    cluster.report(ReplicaState::Failed);
    cluster.step();
    cluster.report(ReplicaState::Stopped);
    cluster.step();
    let retry_at = cluster.memory.histories.values().next().unwrap().retry_at;
    let now = seconds(cluster.now);
    assert!(retry_at > now && cluster.memory.serving(&"m".parse().unwrap()) == 0);
    assert_eq!(progress(&cluster).eta, Some(retry_at - now));
    cluster.now = retry_at.as_secs() + 1;
    assert_eq!(progress(&cluster).eta, None);
}
