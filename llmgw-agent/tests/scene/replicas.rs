//! Replicas that are served by the stand-in engine.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_agent::{
    engine::{Engine, InstalledEngine, Launch, engine},
    process::ledger::{Ledger, LedgerEntry},
    supervise::{
        Failure, NoGpuMemory, PORTS, Parts, SuperviseConfig, SuperviseDeps, Supervisor, Timing,
    },
};
use llmgw_core::{
    clock::SystemClock,
    cluster::{
        catalog::{Needs, Profile},
        replica::{ReplicaSpec, ReplicaState, ReplicaStatus},
        weights::{FetchProgress, Source, Weights},
    },
    fingerprint::Fingerprint,
    id::{EngineName, ReplicaId},
    units::{Bytes, Tokens},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::scene::{self, Home, PATIENCE};

/// Hands out the stand-in engine, and the files that specs name.
#[derive(Debug)]
pub(crate) struct StandIn {
    /// Said while an engine is waited for.
    pub(crate) trouble: Mutex<Option<Failure>>,
    /// Waited for by whoever wants an engine.
    pub(crate) gate: Semaphore,
    /// What getting weights fails with.
    pub(crate) no_weights: Mutex<Option<Failure>>,
}

impl StandIn {
    pub(crate) fn open() -> Arc<Self> {
        Self::with_permits(Semaphore::MAX_PERMITS)
    }

    pub(crate) fn closed() -> Arc<Self> {
        Self::with_permits(0)
    }

    fn with_permits(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            trouble: Mutex::default(),
            gate: Semaphore::new(permits),
            no_weights: Mutex::default(),
        })
    }
}

#[async_trait]
impl Parts for StandIn {
    fn engine(&self, name: &EngineName) -> Option<Arc<dyn Engine>> {
        engine(name)
    }

    async fn installed(
        &self,
        name: &EngineName,
        waiting: &(dyn Fn(Failure) + Send + Sync),
    ) -> Result<InstalledEngine, Failure> {
        let trouble = self.trouble.lock().unwrap().clone();
        if let Some(trouble) = trouble {
            waiting(trouble);
        }
        self.gate.acquire().await.unwrap().forget();
        Ok(InstalledEngine {
            name: name.clone(),
            version: "4711".into(),
            variant: "stand-in".into(),
            launch: Launch::Program {
                program: scene::engine(),
            },
        })
    }

    async fn weights(
        &self,
        weights: &Weights,
        progress: &(dyn Fn(FetchProgress) + Send + Sync),
    ) -> Result<PathBuf, Failure> {
        if let Some(failure) = self.no_weights.lock().unwrap().clone() {
            return Err(failure);
        }
        let source = weights.sources[0].clone();
        let Source::File { path } = &source else {
            panic!("the tests' weights are files");
        };
        let path = PathBuf::from(path);
        progress(FetchProgress::new(source.clone(), Bytes(1), Some(Bytes(1))));
        Ok(path)
    }
}

impl Home {
    /// A new life of the agent, as far as replicas are concerned.
    pub(crate) fn supervisor(&self, parts: Arc<StandIn>, timing: Timing) -> Supervisor {
        let config = SuperviseConfig {
            data_dir: self.path().to_owned(),
            timing,
            ports: PORTS,
        };
        let deps = SuperviseDeps {
            runtime: Arc::new(self.runtime()),
            parts,
            clock: Arc::new(SystemClock::new()),
            gpu_memory: Arc::new(NoGpuMemory),
        };
        config.build(deps).unwrap()
    }

    /// A replica whose engine does as `plan` says.
    pub(crate) fn spec(&self, plan: Value) -> ReplicaSpec {
        let path = self.plan(plan).to_string_lossy().into_owned();
        ReplicaSpec {
            id: ReplicaId::generate(),
            model: "tests/stand-in".parse().unwrap(),
            profile: Profile {
                name: "default".parse().unwrap(),
                engine: "llamacpp".parse().unwrap(),
                memory: Bytes::mib(100),
                context: Tokens(512),
                parallel: 1,
                needs: Needs::default(),
            },
            weights: Weights {
                sources: vec![Source::File { path }],
                sha256: None,
                size: None,
                files: Vec::new(),
            },
            fingerprint: Fingerprint(1),
            gpus: Vec::new(),
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::open(self.path().join("replicas")).unwrap()
    }

    pub(crate) fn entries(&self) -> Vec<LedgerEntry> {
        self.ledger().load().unwrap()
    }
}

/// Waits until the replica is reported in this state.
pub(crate) async fn reported(
    supervisor: &Supervisor,
    id: ReplicaId,
    state: ReplicaState,
) -> ReplicaStatus {
    let mut statuses = supervisor.statuses();
    let found = statuses.wait_for(|all| all.get(&id).is_some_and(|one| one.state == state));
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(all) => all.unwrap()[&id].clone(),
        Err(_) => panic!("never {state:?}: {:?}", supervisor.statuses().borrow()),
    }
}

/// Waits until nothing is reported of the replica any more.
pub(crate) async fn forgotten(supervisor: &Supervisor, id: ReplicaId) {
    let mut statuses = supervisor.statuses();
    let gone = statuses.wait_for(|all| !all.contains_key(&id));
    if tokio::time::timeout(PATIENCE, gone).await.is_err() {
        panic!("not forgotten: {:?}", supervisor.statuses().borrow());
    }
}

/// Short where waiting is part of the test, long where it would be its failure.
pub(crate) fn timing() -> Timing {
    Timing {
        start_base: PATIENCE,
        start_per_step: Duration::ZERO,
        start_poll: Duration::from_millis(10),
        check_every: Duration::from_millis(500),
        answer_within: PATIENCE,
        busy_patience: PATIENCE,
        drain: PATIENCE,
        grace: Duration::from_millis(500),
        gpu_back: Duration::from_secs(1),
    }
}
