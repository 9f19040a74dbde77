//! `llmgw up`: control plane and agent in one process.

mod greeting;
mod progress;

use std::{collections::BTreeMap, io::ErrorKind, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use llmgw_agent::{
    agent::{Agent, AgentConfig, AgentError, Connector, PipeConnector},
    process::{inherited, launcher::Launcher},
};
use llmgw_core::{
    api::agent::NodeReport,
    clock::{Clock, SystemClock, Timestamp},
    cluster::engine::{EngineSource, WantedEngine},
    error::{Chain, Coded},
    id::EngineName,
    route::{RouteTable, Waiting},
};
use llmgw_sched::controller::Admission;
use llmgw_server::{
    args::{ServerArgs, Surroundings},
    fault::Fault,
    first_key::FirstKey,
    lifecycle::Running,
    signals,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    greeting::{Greeting, KeyIs},
    progress::Progress,
};
use crate::failure::{Cause, Failure};

/// Run everything in one process: control plane, agent, and a first model
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs until a signal comes.
pub(crate) async fn run(args: UpArgs) -> Result<(), Failure> {
    let UpArgs { server } = args;
    let since = clock().now();
    let settings = server.settings(true)?;
    refuse_missing_programs(&settings.engines)?;
    let api_key_file = server.api_key_file.clone();
    let config = server.into_config(Surroundings {
        cluster_listen: None,
        store: None,
        settle: Duration::ZERO,
        starter: true,
    })?;
    let agent_dir = config.data_dir.join("agent");
    let built = config.build().await?;
    let key = key_is(built.first_key(), api_key_file);
    let agent = Agent::build(agent_config(agent_dir, &settings.engines), clock())
        .map_err(|error| agent_failure(&error))?;
    let reports = agent.observer();
    let hurry = agent.hurry();

    let stop = signals::stop_on_signal()?;
    let running = built.start()?;
    let stop_agent = CancellationToken::new();
    let tasks = TaskTracker::new();
    let mut agent_task = tasks.spawn(agent.run(pipe_to(&running), stop_agent.clone()));
    tasks.close();

    let greeting = Greeting {
        address: running.listen(),
        admin: running.admin_listen(),
        data_dir: running.data().path().to_owned(),
        key,
    };
    let serving = async {
        until_served(&running, reports, greeting, since).await?;
        std::future::pending().await
    };
    // Without its agent nothing is started or watched any more: that is an end too, and not a silent one.
    let (told, early) = tokio::select! {
        () = stop.asked() => (Ok(()), None),
        told = serving => (told, None),
        () = running.broken() => (Err(Fault::Broken), None),
        ended = &mut agent_task => (Ok(()), Some(ended)),
    };

    progress::say(&running.farewell());
    running.drain_until_insisted(&stop).await;
    stop_agent.cancel();
    let ended = match early {
        Some(ended) => ended,
        None => {
            let insisted = async {
                stop.insisted().await;
                hurry.cancel();
            };
            tokio::select! {
                ended = &mut agent_task => ended,
                () = insisted => agent_task.await,
            }
        }
    };
    running.finish().await;
    let told: Result<(), Fault> = told;
    told?;
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(agent_failure(&error)),
        Err(_) => Err(Failure::new(Cause::Refused, "the agent ended badly")),
    }
}

/// Shows what happens until a model is served, then greets; goes on for models that come later.
async fn until_served(
    running: &Running,
    mut reports: watch::Receiver<NodeReport>,
    greeting: Greeting,
    since: Timestamp,
) -> Result<(), Fault> {
    let mut routes = running.controller().routes();
    let mut progress = Progress::new(since);
    let mut key_told = false;
    let mut tried = false;
    loop {
        progress.show(&reports.borrow_and_update());
        let table: Arc<RouteTable> = Arc::clone(&routes.borrow_and_update());
        let mut loading = false;
        for route in table.models() {
            let name = &route.name;
            match (&route.endpoints[..], &route.waiting) {
                ([_, ..], _) => {
                    progress.ready(name);
                    if !tried {
                        tried = true;
                        progress.clear();
                        tell_key(running, &greeting, &mut key_told)?;
                        greeting.try_it(name.as_str());
                    }
                }
                (
                    [],
                    Waiting::Unplaceable(reason) | Waiting::Parked(reason) | Waiting::Off(reason),
                ) => {
                    progress.waits(name, reason);
                    // Nobody should wait for a model to learn how to ask why it does not come.
                    tell_key(running, &greeting, &mut key_told)?;
                }
                ([], Waiting::Loading(doing)) => {
                    loading = true;
                    progress.doing(name.as_str(), doing);
                }
            }
        }
        // A model that is still on its way will say why it does not come.
        if !loading {
            progress.failures_of_engines();
        }
        let changed = tokio::select! {
            changed = reports.changed() => changed,
            changed = routes.changed() => changed,
        };
        if changed.is_err() {
            return Ok(());
        }
    }
}

/// Tells the key, the first time.
fn tell_key(running: &Running, greeting: &Greeting, told: &mut bool) -> Result<(), Fault> {
    if std::mem::replace(told, true) {
        return Ok(());
    }
    greeting.tell_key();
    running.data().forget_first_key()
}

fn key_is(first: &FirstKey, file: Option<PathBuf>) -> KeyIs {
    match (first, file) {
        (FirstKey::Show(secret), _) => KeyIs::Shown(secret.expose().to_owned()),
        (FirstKey::InFile, Some(file)) => KeyIs::InFile(file),
        (FirstKey::InFile | FirstKey::ShownBefore, _) => KeyIs::ShownBefore,
    }
}

/// The agent runs here, so that a program that it is to use must be here.
fn refuse_missing_programs(engines: &BTreeMap<EngineName, WantedEngine>) -> Result<(), Fault> {
    for (name, wanted) in engines {
        let EngineSource::Path(path) = &wanted.source else {
            continue;
        };
        let is_program = name.as_str() == "llamacpp";
        let problem = match std::fs::metadata(path) {
            Ok(metadata) if is_program == metadata.is_file() => continue,
            Ok(_) if is_program => "it is no program".to_owned(),
            Ok(_) => "it is not the directory of a Python environment".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "there is no such file".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Fault::Settings {
            origin: format!("engines.{name}.path: {path}"),
            problem,
            hint: Some(
                if is_program {
                    "name a llama-server program of this machine, or leave `path` out to have one installed"
                } else {
                    "name the directory in which bin/python is, or leave `path` out to have one made"
                }
                .to_owned(),
            ),
        });
    }
    Ok(())
}

fn agent_config(data_dir: PathBuf, engines: &BTreeMap<EngineName, WantedEngine>) -> AgentConfig {
    let paths = engines
        .iter()
        .filter_map(|(name, wanted)| match &wanted.source {
            EngineSource::Path(path) => Some((name.clone(), PathBuf::from(path))),
            EngineSource::Auto
            | EngineSource::Github
            | EngineSource::Mirror(_)
            | EngineSource::Wheel
            | EngineSource::Lock(_)
            | EngineSource::Custom(_) => None,
        });
    AgentConfig {
        engine_paths: paths.collect(),
        environment: inherited(std::env::vars_os()),
        launcher: Some(Launcher::this_program()),
        ..AgentConfig::new(data_dir)
    }
}

/// The agent's way to a control plane in the same process.
fn pipe_to(running: &Running) -> impl Connector {
    let handle = running.controller().clone();
    PipeConnector::new(move |stream| handle.accept(stream, Admission::Anyone))
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn agent_failure(error: &AgentError) -> Failure {
    let failure = Failure::new(Cause::Refused, Chain(error).to_string());
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
