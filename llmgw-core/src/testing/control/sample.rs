//! A small cluster with something of everything, the same in every run.

use std::{collections::BTreeMap, fmt::Debug, str::FromStr, sync::Arc};

use uuid::Uuid;

use super::{Fixture, MemoryControl};
use crate::{
    api::{
        admin::{NodeView, Origin, OrphanView, ReplicaView},
        decision::{Decision, Leaving, Outcome},
        log::{LogEnd, LogEnded},
        usage::UsageView,
    },
    clock::Timestamp,
    cluster::{
        catalog::{ModelDefinition, OneOrMany, ProfileDefinition},
        engine::{PassedOver, Provision, ProvisionState},
        node::{NodeState, Os, Warning},
        replica::{MemoryUse, ReplicaState},
        weights::{FetchProgress, Sha256Digest},
    },
    fingerprint::Fingerprint,
    id::{ModelName, NodeId, ReplicaId},
    reason::Report,
    units::{Bytes, Micros, Tokens},
};

impl MemoryControl {
    /// A small cluster with something of everything: a node that is well, one that is unheard, one whose agent
    /// is too old to say much; a declared model that serves, one that fetches, one that is parked, and one that
    /// fits nowhere.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the definitions are literals of this file"
    )]
    pub fn sample() -> Arc<Self> {
        let memory = Self::default();
        let starter = ModelDefinition {
            description: "the starter model".to_owned(),
            aliases: vec!["tiny".to_owned()],
            ..definition("smollm2-135m", Bytes::mib(700))
        };
        let models = [
            (starter, Origin::Declared),
            (definition("org/qwen:7b", Bytes::gib(9)), Origin::Added),
            (definition("broken", Bytes::gib(1)), Origin::Added),
            (definition("huge", Bytes(400_000_000_000)), Origin::Added),
        ];
        for (definition, origin) in models {
            memory
                .keep(definition, origin)
                .expect("the sample's definitions are right and don't collide");
        }
        memory.park(&ours("broken"), "the engine ended with signal 4 (SIGILL)");
        memory.set_nodes(vec![well(), unheard(), old()]);
        memory.set_replicas(vec![serving(), fetching(), failed()]);
        memory.set_usage(usage());
        memory.set_decisions(decisions());
        memory.set_orphans(orphans());
        memory.write_log(replica_id(1), &["loading model", "server is listening"]);
        memory.write_log(replica_id(3), &["loading tensors"]);
        let ended = LogEnd {
            reason: LogEnded::Failed,
            text: "failed: the engine ended with signal 4 (SIGILL)".to_owned(),
        };
        memory.end_log(replica_id(3), ended);
        Arc::new(memory)
    }

    /// The fixture of [`conformance`](super::conformance) for [`Self::sample`].
    #[must_use]
    pub fn fixture(self: &Arc<Self>) -> Fixture {
        Fixture {
            control: self.control(),
            declared: ours("smollm2-135m"),
            alias: ours("tiny"),
            parked: Some(ours("broken")),
        }
    }
}

fn definition(name: &str, memory: Bytes) -> ModelDefinition {
    ModelDefinition {
        files: Vec::new(),
        name: name.to_owned(),
        description: String::new(),
        aliases: Vec::new(),
        fallbacks: Vec::new(),
        source: OneOrMany::One("file:/models/any.gguf".to_owned()),
        sha256: None,
        size: None,
        replicas: None,
        min_replicas: None,
        max_replicas: None,
        idle_timeout: None,
        profiles: vec![ProfileDefinition::of_memory(memory)],
    }
}

fn well() -> NodeView {
    NodeView {
        id: node_id(1),
        hostname: "alpha".to_owned(),
        state: NodeState::Ready,
        state_reason: None,
        probed: true,
        labels: BTreeMap::from([("facility".to_owned(), "north".to_owned())]),
        pools: Vec::new(),
        os: Some(Os {
            id: "debian".to_owned(),
            version: Some("12".to_owned()),
        }),
        arch: "x86_64".to_owned(),
        cpu_cores: Some(16),
        cpu_features: Some(vec!["avx2".to_owned()]),
        mgmt_addr: Some("10.0.0.11".to_owned()),
        gpu_total: Some(0),
        gpu_free: Some(0),
        gpu_classes: Some(Vec::new()),
        unhealthy_gpus: Some(Vec::new()),
        fabrics: Some(Vec::new()),
        memory_total: Some(Bytes::gib(32)),
        memory_gb: Some(32),
        memory_allocatable: Some(Bytes::gib(28)),
        memory_reserved: Bytes::gib(10),
        disk_free: Some(Bytes::gib(120)),
        disk_free_gb: Some(120),
        disk_total: Some(Bytes::gib(480)),
        disk_total_gb: Some(480),
        engines: Vec::new(),
        provision: vec![Provision {
            engine: ours("llamacpp"),
            state: ProvisionState::Installed {
                version: "10991".to_owned(),
                variant: "wheel".to_owned(),
            },
            choice: Some("wheel: no path was named".to_owned()),
            passed_over: vec![PassedOver {
                build: "b10991 vulkan".to_owned(),
                reason: "SIGILL while loading".to_owned(),
            }],
            warnings: Vec::new(),
        }],
        warnings: Vec::new(),
        last_seen_ago: 2,
        agent_version: "0.1.0".to_owned(),
        replicas: 2,
        models_on_disk: Some(vec![ours("smollm2-135m")]),
    }
}

fn unheard() -> NodeView {
    NodeView {
        id: node_id(2),
        hostname: "beta".to_owned(),
        state: NodeState::Lost,
        memory_allocatable: Some(Bytes::gib(12)),
        memory_reserved: Bytes::ZERO,
        engines: Vec::new(),
        provision: vec![Provision::new(
            ours("llamacpp"),
            ProvisionState::Failed {
                error: "pip: no matching distribution".to_owned(),
                hint: Some("is the index reachable?".to_owned()),
                retry_at: Timestamp(1_790_000_000_000),
            },
        )],
        warnings: vec![Warning {
            code: "no_avx2".to_owned(),
            text: "the processor lacks AVX2".to_owned(),
        }],
        last_seen_ago: 400,
        replicas: 1,
        ..well()
    }
}

/// Unknown is absent.
fn old() -> NodeView {
    NodeView {
        id: node_id(3),
        hostname: "gamma".to_owned(),
        state: NodeState::Ready,
        state_reason: None,
        probed: false,
        labels: BTreeMap::new(),
        pools: Vec::new(),
        os: None,
        arch: "aarch64".to_owned(),
        cpu_cores: None,
        cpu_features: None,
        mgmt_addr: None,
        gpu_total: None,
        gpu_free: None,
        gpu_classes: None,
        unhealthy_gpus: None,
        fabrics: None,
        memory_total: None,
        memory_gb: None,
        memory_allocatable: None,
        memory_reserved: Bytes::ZERO,
        disk_free: None,
        disk_free_gb: None,
        disk_total: None,
        disk_total_gb: None,
        engines: Vec::new(),
        provision: Vec::new(),
        warnings: Vec::new(),
        last_seen_ago: 1,
        agent_version: "0.0.9".to_owned(),
        replicas: 0,
        models_on_disk: None,
    }
}

fn serving() -> ReplicaView {
    ReplicaView {
        id: replica_id(1),
        model: ours("smollm2-135m"),
        profile: ours("default"),
        pool: None,
        stale: false,
        state: ReplicaState::Ready,
        node: node_id(1),
        hostname: "alpha".to_owned(),
        endpoint: Some("127.0.0.1:40001".to_owned()),
        age_seconds: 7_400,
        memory: Some(Bytes::mib(700)),
        measured: Some(MemoryUse {
            main: Some(Bytes::mib(412)),
            gpus: Vec::new(),
        }),
        state_since: None,
        idle_seconds: -1,
        shards: Vec::new(),
        in_flight: 3,
        error: None,
        log_tail: Vec::new(),
        fetch: None,
    }
}

fn fetching() -> ReplicaView {
    ReplicaView {
        id: replica_id(2),
        model: ours("org/qwen:7b"),
        state: ReplicaState::Fetching,
        endpoint: None,
        age_seconds: 95,
        measured: None,
        state_since: None,
        idle_seconds: -1,
        shards: Vec::new(),
        in_flight: 0,
        fetch: Some(FetchProgress {
            bytes_per_second: Some(Bytes::mib(12)),
            eta_seconds: Some(512),
            ..FetchProgress::new(
                ours("hf:org/qwen/q4.gguf"),
                Bytes::gib(2),
                Some(Bytes::gib(8)),
            )
        }),
        ..serving()
    }
}

fn failed() -> ReplicaView {
    ReplicaView {
        id: replica_id(3),
        model: ours("broken"),
        stale: true,
        state: ReplicaState::Failed,
        node: node_id(2),
        hostname: "beta".to_owned(),
        endpoint: None,
        age_seconds: 200_000,
        measured: None,
        state_since: None,
        idle_seconds: -1,
        shards: Vec::new(),
        in_flight: 0,
        error: Some("the engine ended with signal 4 (SIGILL)".to_owned()),
        log_tail: vec!["loading tensors".to_owned()],
        ..serving()
    }
}

fn usage() -> Vec<UsageView> {
    vec![
        UsageView {
            at: Some(Timestamp(1_750_000_000_123)),
            level: "acme/search".parse().ok(),
            model: Some(ours("org/qwen:7b")),
            cached_tokens: Tokens(1_000),
            cost_micros: Micros(2_540),
            key: Some("key-1".to_owned()),
            requests: 12,
            errors: 0,
            prompt_tokens: Tokens(3_400),
            completion_tokens: Tokens(560),
            last_at: Some(Timestamp(1_750_000_000_123)),
            ..UsageView::default()
        },
        UsageView {
            at: Some(Timestamp(1_750_000_000_123)),
            level: "/".parse().ok(),
            model: Some(ours("smollm2-135m")),
            cached_tokens: Tokens(0),
            cost_micros: Micros(0),
            key: Some("key-1".to_owned()),
            requests: 1_024,
            errors: 7,
            prompt_tokens: Tokens(1_234_567),
            completion_tokens: Tokens(89_012),
            last_at: Some(Timestamp(1_750_000_000_122)),
            ..UsageView::default()
        },
    ]
}

/// Weights that may go, and weights that have to stay for now.
fn orphans() -> Vec<OrphanView> {
    let old = OrphanView {
        sha256: Sha256Digest([0xab; 32]),
        node: node_id(1),
        hostname: "alpha".to_owned(),
        name: "old-q4.gguf".to_owned(),
        size: Bytes::gib(4),
        last_used: Some(Timestamp(1_790_000_000_000)),
        collecting: false,
        kept: None,
    };
    let held = OrphanView {
        sha256: Sha256Digest([0xcd; 32]),
        name: "removed-q8.gguf".to_owned(),
        size: Bytes::gib(9),
        last_used: None,
        kept: Some("a replica on alpha still runs on them".to_owned()),
        ..old.clone()
    };
    vec![old, held]
}

/// A model that was placed, one that can't be, one that was placed and failed, and the last decision on one that was
/// removed.
fn decisions() -> Vec<Decision> {
    let placed = |replica| Outcome::Placed {
        replica,
        profile: ours("default"),
        node: node_id(1),
        hostname: "alpha".to_owned(),
        gpus: Vec::new(),
    };
    let report = Report {
        model: ours("huge"),
        nodes: 0,
        profiles: 1,
        replicas: 1,
        missing: 1,
        fits: None,
        rejections: Vec::new(),
        summary: Vec::new(),
        nearest: None,
        pending: None,
        remedies: Vec::new(),
    };
    let failed = Outcome::Failed {
        replica: replica_id(3),
        error: "the engine ended with signal 4 (SIGILL)".to_owned(),
    };
    let removed = Outcome::Stopped {
        replica: replica_id(4),
        why: Leaving::ModelRemoved,
    };
    vec![
        decided(1, ours("smollm2-135m"), placed(replica_id(1))),
        Decision {
            again: 41,
            last_at: Timestamp(1_790_000_060_000),
            ..decided(
                2,
                ours("huge"),
                Outcome::NotPlaced {
                    report: Box::new(report),
                },
            )
        },
        decided(3, ours("broken"), placed(replica_id(3))),
        decided(4, ours("broken"), failed),
        decided(6, ours("gone"), removed),
    ]
}

fn decided(number: u64, model: ModelName, what: Outcome) -> Decision {
    Decision {
        number,
        at: Timestamp(1_790_000_000_000),
        epoch: 1,
        inputs: Fingerprint(number),
        policy: "scarcity".to_owned(),
        model,
        what,
        again: 0,
        last_at: Timestamp(1_790_000_000_000),
    }
}

fn node_id(number: u128) -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(number))
}

fn replica_id(number: u128) -> ReplicaId {
    ReplicaId::from_uuid(Uuid::from_u128(number))
}

#[expect(clippy::expect_used, reason = "every text is a literal of this file")]
fn ours<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a literal of this file is well formed")
}
