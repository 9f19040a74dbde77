//! The life of one replica.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::Duration,
};

use llmgw_core::{
    cluster::{
        engine::custom::StopSignal,
        replica::{ReplicaSpec, ReplicaState},
    },
    id::ReplicaId,
};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use super::{
    Failure, Shared, blocking,
    check::Proof,
    gpus::Turn,
    model,
    serve::{drain, keep_log_short, serve},
};
use crate::{
    engine::{InstalledEngine, LaunchRequest},
    process::{Exit, Limits, ProcessError, ProcessStart, ledger::LedgerEntry, log},
};

/// What a replica's task is to do.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) spec: ReplicaSpec,
    pub(super) origin: Origin,
    /// Says that the replica is not asked for any more.
    pub(super) stop: CancellationToken,
}

/// Where a replica's process comes from.
#[derive(Debug)]
pub(super) enum Origin {
    /// It is to be started.
    New,
    /// An earlier life of the agent has started it.
    Adopted(Box<LedgerEntry>),
}

/// Why a life has ended.
#[derive(Debug)]
enum End {
    /// The replica is not asked for any more.
    Asked,
    /// The agent ends, and the engine goes on.
    Detached,
    /// It went wrong.
    Failed(Failure),
}

/// Runs the replica until its end, and cleans up after it.
pub(super) async fn run(shared: &Shared, order: Order) {
    let id = order.spec.id;
    let mut entry = None;
    let end = live(shared, &order, &mut entry).await;
    match end {
        End::Detached => {}
        End::Asked => {
            let was_ready = shared
                .statuses
                .borrow()
                .get(&id)
                .is_some_and(|status| status.state == ReplicaState::Ready);
            shared.update(id, |status| status.state = ReplicaState::Draining);
            match &entry {
                Some(entry) => {
                    let ending = async {
                        if was_ready {
                            drain(shared, entry).await;
                        }
                        ask_to_end(shared, entry).await;
                        stop(shared, &order.spec).await;
                    };
                    tokio::select! {
                        () = ending => {}
                        never = keep_log_short(shared, entry) => match never {},
                    }
                }
                None => stop(shared, &order.spec).await,
            }
            shared.update(id, |status| {
                status.state = ReplicaState::Stopped;
                status.endpoint = None;
                status.error = None;
                status.hint = None;
            });
        }
        End::Failed(failure) => {
            tracing::warn!(
                replica = %id,
                model = %order.spec.model,
                error = failure.error,
                "a replica has failed",
            );
            stop(shared, &order.spec).await;
            let tail = match entry {
                Some(entry) => keep_log(shared, entry).await,
                None => Vec::new(),
            };
            shared.update(id, |status| {
                status.state = ReplicaState::Failed;
                status.endpoint = None;
                status.error = Some(failure.error);
                status.hint = failure.hint;
                status.log_tail = tail;
            });
        }
    }
}

async fn live(shared: &Shared, order: &Order, started: &mut Option<LedgerEntry>) -> End {
    let spec = &order.spec;
    let (entry, proof, turn) = match &order.origin {
        Origin::Adopted(entry) => (entry.as_ref().clone(), Proof::TokenOrWork, None),
        Origin::New => {
            let prepared = async {
                let (engine, weights) = parts(shared, spec).await?;
                Ok((engine, weights, turn(shared, spec).await))
            };
            let (engine, weights, turn) = tokio::select! {
                biased;
                end = ended(shared, order) => return end,
                prepared = prepared => match prepared {
                    Ok(prepared) => prepared,
                    Err(failure) => return End::Failed(failure),
                },
            };
            // Not given up half-way: a process must not be started without being written down.
            match launch(shared, spec, &engine, weights).await {
                Ok(entry) => (entry, Proof::Token, Some(turn)),
                Err(failure) => return End::Failed(failure),
            }
        }
    };
    let entry: &LedgerEntry = started.insert(entry);
    shared.update(spec.id, |status| {
        status.state = ReplicaState::Starting;
        status.endpoint = Some(endpoint(entry.port));
    });
    tokio::select! {
        biased;
        end = ended(shared, order) => end,
        exit = shared.deps.runtime.wait(spec.id) => End::Failed(exit_failure(spec, exit)),
        failure = serve(shared, entry, proof, turn) => End::Failed(failure),
    }
}

/// Waits until this replica may change what its GPUs hold, and measures what they hold before.
async fn turn(shared: &Shared, spec: &ReplicaSpec) -> Turn {
    let problems = shared.gpus.problems();
    let waiting = spec
        .gpus
        .iter()
        .find_map(|gpu| problems.borrow().get(gpu).copied());
    if let Some(problem) = waiting {
        say(shared, spec.id, Some(problem.into()));
    }
    let turn = shared.gpus.turn(&spec.gpus).await;
    shared.gpus.begin(&turn, &spec.gpus).await;
    say(shared, spec.id, None);
    turn
}

/// Says what hinders a replica, or that nothing does any more.
fn say(shared: &Shared, id: ReplicaId, problem: Option<Failure>) {
    let (error, hint) = match problem {
        Some(Failure { error, hint }) => (Some(error), hint),
        None => (None, None),
    };
    shared.update(id, |status| {
        status.error = error;
        status.hint = hint;
    });
}

async fn ended(shared: &Shared, order: &Order) -> End {
    tokio::select! {
        biased;
        () = order.stop.cancelled() => End::Asked,
        () = shared.detach.cancelled() => End::Detached,
    }
}

async fn parts(shared: &Shared, spec: &ReplicaSpec) -> Result<(InstalledEngine, PathBuf), Failure> {
    let waiting = |failure: Failure| say(shared, spec.id, Some(failure));
    let engine = shared
        .deps
        .parts
        .installed(&spec.profile.engine, &waiting)
        .await?;
    shared.update(spec.id, |status| {
        status.state = ReplicaState::Fetching;
        status.error = None;
        status.hint = None;
    });
    let progress = |progress| shared.update(spec.id, |status| status.fetch = Some(progress));
    let weights = shared.deps.parts.weights(&spec.weights, &progress).await?;
    shared.deps.parts.proven(&engine, spec, &weights).await?;
    Ok((engine, weights))
}

/// Writes down what will be started, starts it, writes down which process it is.
async fn launch(
    shared: &Shared,
    spec: &ReplicaSpec,
    installed: &InstalledEngine,
    weights: PathBuf,
) -> Result<LedgerEntry, Failure> {
    let engine = shared.deps.parts.engine(&spec.profile.engine);
    let engine = engine.ok_or_else(|| unknown_engine(spec))?;
    let (name, form) = (engine.name().clone(), engine.weights());
    let weights = blocking(move || Ok(model::fitting(&name, form, &weights)));
    let weights = weights
        .await
        .map_err(|error| Failure::new(format!("looking at the weights: {error}")))?
        .map_err(|problem| Failure::of(&problem))?;
    let card = shared.deps.parts.card(&spec.gpus);
    let ports = Arc::clone(&shared.ports);
    let port = blocking(move || {
        ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .choose()
    })
    .await;
    let port = port.map_err(|error| Failure::new(format!("choosing a port: {error}")))?;
    let request = LaunchRequest {
        engine: installed,
        spec,
        weights: &weights,
        port,
        card,
    };
    engine
        .check(&request)
        .map_err(|problem| Failure::of(&problem))?;
    let command = engine.command(&request);
    let mut env = command.env;
    // Whatever the engine is, it sees no GPU that another replica was given.
    env.extend(shared.deps.parts.visible_gpus(&spec.gpus));
    let disk = |error: std::io::Error| Failure {
        error: format!("writing the ledger: {error}"),
        hint: Some("look for room on the disk of the data directory".to_owned()),
    };
    let live = shared.roster().workers.keys().copied().collect();
    let (logs, model, id) = (shared.logs.clone(), spec.model.clone(), spec.id);
    let log = blocking(move || logs.begin(&model, id, &live))
        .await
        .map_err(disk)?;
    let mut entry = LedgerEntry {
        spec: spec.clone(),
        engine_version: installed.version.clone(),
        weights,
        port,
        log,
        process: None,
        gpu_memory: BTreeMap::new(),
    };
    let (ledger, intent) = (shared.ledger.clone(), entry.clone());
    blocking(move || ledger.write(&intent))
        .await
        .map_err(disk)?;
    let start = ProcessStart {
        replica: spec.id,
        program: command.program,
        args: command.args,
        env,
        log: entry.log.clone(),
        limits: Limits::of_memory(spec.profile.memory),
    };
    let process = shared.deps.runtime.start(&start).await;
    entry.process = Some(process.map_err(|error| Failure::of(&error))?);
    let (ledger, fact) = (shared.ledger.clone(), entry.clone());
    blocking(move || ledger.write(&fact)).await.map_err(disk)?;
    Ok(entry)
}

/// Lets an engine that can end itself do so, for as long as processes may take to end when they are asked.
async fn ask_to_end(shared: &Shared, entry: &LedgerEntry) {
    let id = entry.spec.id;
    let engine = shared.deps.parts.engine(&entry.spec.profile.engine);
    let (Some(signal), Some(process)) = (
        engine.and_then(|engine| engine.stop_signal()),
        &entry.process,
    ) else {
        return;
    };
    if let Err(error) = process.signal(signal_of(signal)) {
        tracing::warn!(replica = %id, %error, "an engine can't be asked to end");
        return;
    }
    let ended = shared.deps.runtime.wait(id);
    if tokio::time::timeout(shared.config.timing.grace, ended)
        .await
        .is_err()
    {
        tracing::info!(replica = %id, "an engine does not end by itself");
    }
}

fn signal_of(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Usr1 => Signal::USR1,
        StopSignal::Usr2 => Signal::USR2,
    }
}

/// Ends the whole tree, however long that takes, waits until the memory of its GPUs is back, and then strikes the
/// replica from the ledger: what still runs still holds memory, and must not be reported as stopped.
async fn stop(shared: &Shared, spec: &ReplicaSpec) {
    let id = spec.id;
    let grace = shared.config.timing.grace;
    while let Err(error) = end_tree(shared, id, grace).await {
        let failure = Failure::of(&error);
        tracing::error!(replica = %id, error = failure.error, "a replica's processes do not end");
        say(shared, id, Some(failure));
        tokio::time::sleep(grace).await;
    }
    let late = |problem| {
        let failure = Failure::from(problem);
        tracing::error!(replica = %id, error = failure.error, "a replica has ended, and its memory has not");
        say(shared, id, Some(failure));
    };
    let patience = shared.config.timing.gpu_back;
    let closing = shared.closing.cancelled();
    shared
        .gpus
        .end(id, &spec.gpus, patience, &late, closing)
        .await;
    shared.strike(id).await;
}

/// Ends the tree, without asking when there is a hurry.
async fn end_tree(shared: &Shared, id: ReplicaId, grace: Duration) -> Result<(), ProcessError> {
    let runtime = &shared.deps.runtime;
    tokio::select! {
        ended = runtime.stop(id, grace) => ended,
        () = shared.hurry.cancelled() => runtime.stop(id, Duration::ZERO).await,
    }
}

async fn keep_log(shared: &Shared, entry: LedgerEntry) -> Vec<String> {
    let logs = shared.logs.clone();
    let kept = blocking(move || {
        let tail = log::tail(&entry.log);
        logs.keep_first_failure(&entry.spec.model, &entry.log)?;
        Ok(tail)
    });
    kept.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the log of a failure could not be kept");
        Vec::new()
    })
}

fn exit_failure(spec: &ReplicaSpec, exit: Result<Exit, ProcessError>) -> Failure {
    let engine = &spec.profile.engine;
    let exit = match exit {
        Ok(exit) => exit,
        Err(error) => return Failure::of(&error),
    };
    let hint = match exit {
        Exit::Signal(4) => Some("this build uses instructions that the processor lacks"),
        Exit::Signal(9) => Some(
            "the kernel does this when memory runs out: give the profile more memory, or less context",
        ),
        Exit::Memory(_) => Some("give the profile more memory, or less context"),
        _ => None,
    };
    Failure {
        error: format!("{engine} {exit}"),
        hint: hint.map(str::to_owned),
    }
}

pub(super) fn unknown_engine(spec: &ReplicaSpec) -> Failure {
    let engine = &spec.profile.engine;
    Failure::new(format!("this release knows no engine named {engine}"))
}

fn endpoint(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
