//! An agent that has no file descriptor left: what it can't see is neither dead nor ended.
//!
//! The only test of this file, for the limit that it sets is the whole process's.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/replicas.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod replicas;
#[path = "scene/home.rs"]
mod scene;

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use llmgw_agent::{
    process::{ProcessRuntime as _, native::NativeRuntime},
    supervise::{Ending, Supervisor, Timing},
};
use llmgw_core::{
    cluster::replica::{ReplicaState, ReplicaStatus},
    id::ReplicaId,
};
use replicas::{StandIn, forgotten, reported, timing};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scene::{Home, PATIENCE};
use serde_json::json;

#[tokio::test]
async fn without_descriptors_no_engine_is_condemned_and_none_is_left_behind() {
    let home = Home::new();
    let timing = Timing {
        check_every: Duration::from_millis(20),
        drain: Duration::from_millis(200),
        ..timing()
    };
    let supervisor = home.supervisor(StandIn::open(), timing);
    let runtime: NativeRuntime = home.runtime();
    let spec = home.spec(json!({"children": ["session"]}));
    supervisor.converge(std::slice::from_ref(&spec));
    reported(&supervisor, spec.id, ReplicaState::Ready).await;
    let tree = home.processes(2).await;

    let leader = home.entries().remove(0).process.unwrap();
    runtime.adopt(spec.id, &leader).await.unwrap();

    let hoard = Hoard::new();
    let status = troubled(&supervisor, spec.id, ReplicaState::Ready).await;
    assert!(status.hint.unwrap().contains("ulimit -n"));
    // Not seen is not ended. (A descriptor comes free now and then.)
    for process in &tree {
        assert!(process.is_alive().unwrap_or(true));
    }
    assert!(runtime.usage().await.is_err());
    assert!(runtime.leftovers().await.is_err());
    assert!(
        runtime
            .stop(ReplicaId::generate(), timing.grace)
            .await
            .is_err()
    );
    // Many times the misses that condemn an engine that does not answer.
    tokio::time::sleep(timing.check_every * 20).await;
    assert_eq!(
        supervisor.statuses().borrow()[&spec.id].state,
        ReplicaState::Ready
    );

    drop(hoard);
    let mut statuses = supervisor.statuses();
    let well = statuses.wait_for(|all| all[&spec.id].error.is_none());
    tokio::time::timeout(PATIENCE, well).await.unwrap().unwrap();
    assert!(tree.iter().all(|process| process.is_alive().unwrap()));

    let hoard = Hoard::new();
    supervisor.converge(&[]);
    // It can't be ended yet, and is not said to have ended.
    troubled(&supervisor, spec.id, ReplicaState::Draining).await;
    drop(hoard);
    forgotten(&supervisor, spec.id).await;
    assert!(tree.iter().all(|process| !process.is_alive().unwrap()));
    supervisor.shutdown(Ending::StopEngines).await;
}

/// Waits until the replica is reported in this state with an error.
async fn troubled(supervisor: &Supervisor, id: ReplicaId, state: ReplicaState) -> ReplicaStatus {
    let mut statuses = supervisor.statuses();
    let found = statuses.wait_for(|all| {
        all.get(&id)
            .is_some_and(|one| one.state == state && one.error.is_some())
    });
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(all) => all.unwrap()[&id].clone(),
        Err(_) => panic!("no trouble: {:?}", supervisor.statuses().borrow()),
    }
}

/// Takes every descriptor, also those that come free, until it is dropped.
struct Hoard {
    released: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hoard {
    fn new() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: Some(128),
            ..limit
        };
        setrlimit(Resource::Nofile, low).unwrap();
        let released = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&released);
        let (full, filled) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            while !until.load(Ordering::Relaxed) {
                match File::open("/dev/null") {
                    Ok(file) => held.push(file),
                    Err(_) => {
                        full.send(()).ok();
                        thread::yield_now();
                    }
                }
            }
        });
        filled.recv().unwrap();
        Self {
            released,
            thread: Some(thread),
        }
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}
