//! An engine that runs, watched from outside: until it is ready, while it is, and while it finishes.

use std::{convert::Infallible, io, time::Duration};

use llmgw_core::{
    cluster::replica::{MemoryUse, ReplicaState},
    id::ReplicaId,
};
use tokio::time::Instant;

use super::{
    Failure, Shared,
    ask::Unanswered,
    blocking,
    check::{Checks, Proof},
    gpus::Turn,
    model,
    replica::unknown_engine,
};
use crate::process::{DESCRIPTORS_HINT, Resident, ledger::LedgerEntry};

/// Asks the engine until it is ready, and then on and on; returns when it is not any more. Until it is ready it
/// has its `turn` on the GPUs.
pub(super) async fn serve(
    shared: &Shared,
    entry: &LedgerEntry,
    proof: Proof,
    turn: Option<Turn>,
) -> Failure {
    tokio::select! {
        failure = watch_over(shared, entry, proof, turn) => failure,
        never = keep_log_short(shared, entry) => match never {},
    }
}

async fn watch_over(
    shared: &Shared,
    entry: &LedgerEntry,
    proof: Proof,
    turn: Option<Turn>,
) -> Failure {
    let spec = &entry.spec;
    let Some(engine) = shared.deps.parts.engine(&spec.profile.engine) else {
        return unknown_engine(spec);
    };
    let checks = Checks {
        engine,
        spec,
        port: entry.port,
        within: shared.config.timing.answer_within,
        proof,
    };
    if let Err(failure) = until_ready(shared, entry, &checks).await {
        return failure;
    }
    if let Some(turn) = turn {
        measure(shared, entry, turn).await;
    }
    let (logs, model) = (shared.logs.clone(), spec.model.clone());
    if let Err(error) = blocking(move || logs.failures_are_over(&model)).await {
        tracing::warn!(%error, "the log of an earlier failure could not be put aside");
    }
    tracing::info!(replica = %spec.id, model = %spec.model, port = entry.port, "a replica is ready");
    shared.update(spec.id, |status| {
        status.state = ReplicaState::Ready;
        status.fetch = None;
    });
    tokio::select! {
        failure = until_silent(shared, entry, &checks) => failure,
        never = keep_measuring(shared, entry) => match never {},
    }
}

/// Measures what the replica holds: at once, when its first requests have made it take more, and then seldom, for it is
/// its most that counts.
async fn keep_measuring(shared: &Shared, entry: &LedgerEntry) -> Infallible {
    let (id, gpus) = (entry.spec.id, &entry.spec.gpus);
    let mut pauses = MEASURE_AFTER.into_iter();
    loop {
        match shared.deps.runtime.resident(id).await {
            Ok(Some(Resident { memory, pids })) => {
                let now = MemoryUse {
                    main: Some(memory),
                    gpus: shared.gpus.held(id, gpus, &pids).await,
                };
                shared.update(id, |status| {
                    let most = match &status.measured {
                        Some(before) => before.most(&now),
                        None => now,
                    };
                    status.measured = Some(most);
                });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::info!(replica = %id, %error, "what a replica holds could not be measured");
            }
        }
        tokio::time::sleep(pauses.next().unwrap_or(MEASURE_EVERY)).await;
    }
}

/// Measures and writes down what a replica has taken of its GPUs, and lets the next start begin.
async fn measure(shared: &Shared, entry: &LedgerEntry, turn: Turn) {
    let gpus = &entry.spec.gpus;
    let gpu_memory = shared.gpus.ready(&turn, entry.spec.id, gpus).await;
    drop(turn);
    if gpu_memory.is_empty() {
        return;
    }
    let (ledger, entry) = (shared.ledger.clone(), entry.clone());
    let measured = LedgerEntry {
        gpu_memory,
        ..entry
    };
    if let Err(error) = blocking(move || ledger.write(&measured)).await {
        // The next life of the agent then waits for less memory than it could.
        tracing::warn!(%error, "what a replica has taken of its GPUs could not be written down");
    }
}

/// Cuts the log again and again: an engine may write a gigabyte between two of its health checks.
pub(super) async fn keep_log_short(shared: &Shared, entry: &LedgerEntry) -> Infallible {
    loop {
        tokio::time::sleep(shared.config.timing.check_every.min(LOG_EVERY)).await;
        let (logs, log) = (shared.logs.clone(), entry.log.clone());
        if let Err(error) = blocking(move || logs.trim(&log)).await {
            tracing::warn!(replica = %entry.spec.id, %error, "the engine's log could not be cut");
        }
    }
}

async fn until_ready(
    shared: &Shared,
    entry: &LedgerEntry,
    checks: &Checks<'_>,
) -> Result<(), Failure> {
    let timing = &shared.config.timing;
    let path = entry.weights.clone();
    let size = blocking(move || model::size(&path)).await;
    let size = size.unwrap_or_else(|_| entry.spec.weights.size.map_or(0, |size| size.0));
    let patience = timing
        .patience(size)
        .saturating_add(checks.engine.warm_up());
    let begin = Instant::now();
    let mut unasked = Unasked::of(entry.spec.id);
    loop {
        let left = patience.saturating_sub(begin.elapsed());
        // An answer that is on its way at the deadline is waited for: a slow engine is no failed one.
        let Err(problem) = checks.ready(left.max(timing.answer_within)).await else {
            unasked.is_over(shared);
            return Ok(());
        };
        let problem = match problem {
            Unanswered::Engine(problem) => problem,
            // No engine is condemned for what this machine lacks.
            Unanswered::Unasked(error) => {
                unasked.note(shared, &error);
                tokio::time::sleep(timing.start_poll).await;
                continue;
            }
        };
        unasked.is_over(shared);
        if begin.elapsed() >= patience {
            let engine = &entry.spec.profile.engine;
            return Err(Failure {
                error: format!(
                    "{engine} is not ready after {} s: {problem}",
                    patience.as_secs()
                ),
                hint: Some("the end of its log says how far it came".to_owned()),
            });
        }
        tokio::time::sleep(timing.start_poll).await;
    }
}

async fn until_silent(shared: &Shared, entry: &LedgerEntry, checks: &Checks<'_>) -> Failure {
    let timing = &shared.config.timing;
    let mut heard = Instant::now();
    let mut misses = 0;
    let mut worked = cpu_time(shared, entry.spec.id).await;
    let mut unasked = Unasked::of(entry.spec.id);
    loop {
        tokio::time::sleep(timing.check_every).await;
        let problem = match checks.healthy().await {
            Ok(()) => {
                unasked.is_over(shared);
                heard = Instant::now();
                misses = 0;
                continue;
            }
            Err(Unanswered::Unasked(error)) => {
                unasked.note(shared, &error);
                continue;
            }
            Err(Unanswered::Engine(problem)) => problem,
        };
        unasked.is_over(shared);
        misses += 1;
        tracing::info!(replica = %entry.spec.id, misses, problem, "a health check was missed");
        if misses == 1 {
            worked = cpu_time(shared, entry.spec.id).await;
        }
        if misses < MISSES {
            continue;
        }
        // An engine whose every thread serves a long answer can't take the question, and is no dead one.
        let span = timing.check_every * (MISSES - 1);
        let computes = match (cpu_time(shared, entry.spec.id).await, worked) {
            (Some(now), Some(then)) => now.saturating_sub(then) > span / 10,
            // Not known is no proof that it stands still.
            _ => true,
        };
        let busy = computes || checks.busy().await.is_ok_and(|requests| requests > 0);
        if busy && heard.elapsed() < timing.busy_patience {
            misses = 0;
            continue;
        }
        return Failure::new(format!(
            "{} has answered no health check for {} s: {problem}",
            entry.spec.profile.engine,
            heard.elapsed().as_secs(),
        ));
    }
}

/// Processor time of a replica so far; `None` when that can't be told now.
async fn cpu_time(shared: &Shared, id: ReplicaId) -> Option<Duration> {
    let usage = shared.deps.runtime.usage().await.ok()?;
    Some(usage.get(&id).map(|usage| usage.cpu).unwrap_or_default())
}

/// Says once that an engine can't be asked, and takes it back when it can.
#[derive(Debug)]
struct Unasked {
    replica: ReplicaId,
    said: bool,
}

impl Unasked {
    fn of(replica: ReplicaId) -> Self {
        Self {
            replica,
            said: false,
        }
    }

    fn note(&mut self, shared: &Shared, error: &io::Error) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        tracing::warn!(replica = %self.replica, %error, "an engine can't be asked how it is");
        shared.update(self.replica, |status| {
            status.error = Some(format!("its health can't be asked for now: {error}"));
            status.hint = Some(DESCRIPTORS_HINT.to_owned());
        });
    }

    fn is_over(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.said) {
            shared.update(self.replica, |status| {
                status.error = None;
                status.hint = None;
            });
        }
    }
}

/// Lets requests in flight end. The gateway stops sending new ones as soon as it hears of the draining, so that
/// an engine is only believed to be idle when it is twice in a row.
pub(super) async fn drain(shared: &Shared, entry: &LedgerEntry) {
    let timing = &shared.config.timing;
    let Some(engine) = shared.deps.parts.engine(&entry.spec.profile.engine) else {
        return;
    };
    let checks = Checks {
        engine,
        spec: &entry.spec,
        port: entry.port,
        within: timing.answer_within,
        proof: Proof::TokenOrWork,
    };
    let idle = async {
        let mut idle = 0;
        while idle < 2 {
            match checks.busy().await {
                Ok(0) => idle += 1,
                Ok(_) | Err(Unanswered::Unasked(_)) => idle = 0,
                // Who does not say how busy it is can't be waited for.
                Err(Unanswered::Engine(_)) => return,
            }
            tokio::time::sleep(timing.start_poll).await;
        }
    };
    let cut = tokio::select! {
        idle = tokio::time::timeout(timing.drain, idle) => idle.is_err(),
        () = shared.hurry.cancelled() => true,
    };
    if cut {
        tracing::warn!(replica = %entry.spec.id, "requests in flight are cut off");
    }
}

/// Between the first looks at what a replica holds, and between all later ones: a look walks its pages.
const MEASURE_AFTER: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
const MEASURE_EVERY: Duration = Duration::from_secs(600);

/// The engine's log may grow for so long.
const LOG_EVERY: Duration = Duration::from_millis(500);

/// Health checks in a row.
const MISSES: u32 = 3;
