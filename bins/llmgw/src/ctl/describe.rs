//! `describe`: what something is doing, since when, and what comes next.

mod staying;

use clap::ValueEnum;
use llmgw_core::{
    api::{
        admin::{Explanation, JobView, ModelView, NodeView, ReplicaView},
        decision::{Decision, Outcome},
        orders::{HoldView, LogOf, LogView},
    },
    clock::{Clock, SystemClock, Timestamp},
    cluster::{node::NodeState, order::HoldScope, replica::ReplicaState},
    control::Control,
    id::ModelName,
    terminal::{lines as clean, one_line},
};
use serde::Serialize;

use self::staying::Staying;
use super::text::{moment, span};
use crate::{
    failure::{Cause, Failure},
    output::{Format, Shown},
};

/// What can be described.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Kind {
    /// What should run
    Model,
    /// A machine
    Node,
    /// A running copy of a model
    Replica,
}

#[derive(Debug, Serialize)]
struct Model {
    model: ModelView,
    /// The roll that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    roll: Option<u64>,
    replicas: Vec<ReplicaView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    staying: Vec<Staying>,
    jobs: Vec<JobView>,
    decisions: Vec<Decision>,
    logs: Vec<LogView>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: NodeView,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    holds: Vec<HoldView>,
    replicas: Vec<ReplicaView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    staying: Vec<Staying>,
    jobs: Vec<JobView>,
}

#[derive(Debug, Serialize)]
struct Replica {
    replica: ReplicaView,
    #[serde(skip_serializing_if = "Option::is_none")]
    staying: Option<Staying>,
    jobs: Vec<JobView>,
    decisions: Vec<Decision>,
    logs: Vec<LogView>,
}

pub(super) async fn describe(
    control: &Control,
    format: Format,
    kind: Kind,
    name: &str,
) -> Result<Shown, Failure> {
    let now = SystemClock::new().now();
    match kind {
        Kind::Model => {
            let described = model(control, name).await?;
            format.show(&described, |described| of_model(described, now))
        }
        Kind::Node => {
            let described = node(control, name).await?;
            format.show(&described, of_node)
        }
        Kind::Replica => {
            let described = replica(control, name).await?;
            format.show(&described, |described| of_replica(described, now))
        }
    }
}

async fn model(control: &Control, name: &str) -> Result<Model, Failure> {
    let name: ModelName = name
        .parse()
        .map_err(|error| Failure::new(Cause::Usage, format!("{error}")))?;
    let models = control.catalog.models().await?;
    let answers = |view: &ModelView| view.name == name || view.aliases.contains(&name);
    let Some(model) = models.into_iter().find(answers) else {
        return Err(missing("model", name.as_str(), "models"));
    };
    let own = &model.name;
    let lacking = usize::try_from(model.desired).is_ok_and(|want| model.ready_replicas < want);
    let explanation = match lacking {
        true => Some(control.catalog.explain(own).await?),
        false => None,
    };
    let replicas = control.fleet.replicas(Some(own)).await?;
    let staying = staying::staying(control, &replicas, |_| true).await?;
    let jobs = control.jobs.jobs().await?;
    let mut decisions = control.catalog.decisions(Some(own), 0, 1_000).await?;
    let of_rolls = decisions
        .iter()
        .rev()
        .find_map(|decision| match decision.what {
            Outcome::RollBegun { roll } => Some(Some(roll)),
            Outcome::RollEnded { .. } => Some(None),
            _ => None,
        });
    let old = decisions.len().saturating_sub(LAST);
    decisions.drain(..old);
    Ok(Model {
        jobs: jobs
            .into_iter()
            .filter(|job| job.subject == own.as_str())
            .collect(),
        logs: control.fleet.logs(own).await?,
        explanation,
        staying,
        replicas,
        decisions,
        roll: of_rolls.flatten(),
        model,
    })
}

async fn node(control: &Control, name: &str) -> Result<Node, Failure> {
    let nodes = control.fleet.nodes().await?;
    let named = |node: &NodeView| node.hostname == name || node.id.to_string() == name;
    let Some(node) = nodes.into_iter().find(named) else {
        return Err(missing("node", name, "nodes"));
    };
    let replicas = control.fleet.replicas(None).await?;
    let staying = staying::staying(control, &replicas, |replica| replica.node == node.id).await?;
    let jobs = control.jobs.jobs().await?;
    let mut holds = control.holds.holds().await?;
    holds.retain(|hold| match &hold.scope {
        HoldScope::Node(held) => *held == node.id,
        HoldScope::Facility(name) => node.labels.get("facility") == Some(name),
        HoldScope::Pool(name) => node.pools.contains(name),
    });
    Ok(Node {
        holds,
        staying,
        replicas: replicas
            .into_iter()
            .filter(|replica| replica.node == node.id)
            .collect(),
        jobs: jobs.into_iter().filter(|job| job.node == node.id).collect(),
        node,
    })
}

async fn replica(control: &Control, name: &str) -> Result<Replica, Failure> {
    let replicas = control.fleet.replicas(None).await?;
    let named =
        |replica: &ReplicaView| replica.id.short() == name || replica.id.to_string() == name;
    let Some(replica) = replicas.iter().find(|replica| named(replica)).cloned() else {
        return Err(missing("replica", name, "replicas"));
    };
    let mut staying = staying::staying(control, &replicas, |one| one.id == replica.id).await?;
    let jobs = control.jobs.jobs().await?;
    let model = Some(&replica.model);
    let decisions = control.catalog.decisions(model, 0, 1_000).await?;
    let logs = control.fleet.logs(&replica.model).await?;
    let short = replica.id.short();
    let about = |decision: &Decision| decision.what.why().contains(&short);
    Ok(Replica {
        jobs: jobs
            .into_iter()
            .filter(|job| job.id.ends_with(&replica.id.to_string()))
            .collect(),
        decisions: decisions.into_iter().filter(about).collect(),
        logs: logs
            .into_iter()
            .filter(|log| log.replica == Some(replica.id))
            .collect(),
        staying: staying.pop(),
        replica,
    })
}

fn missing(kind: &str, name: &str, list: &str) -> Failure {
    Failure::new(
        Cause::NotFound,
        format!("there is no {kind} {}", one_line(name)),
    )
    .with_hint(format!("`llmgw ctl {list}` lists those there are"))
}

fn of_model(described: &Model, now: Timestamp) -> String {
    let Model {
        model,
        roll,
        replicas,
        explanation,
        staying,
        jobs,
        decisions,
        logs,
    } = described;
    let ModelView {
        name,
        ready_replicas,
        desired,
        ..
    } = model;
    let doing = if model.parked {
        "is parked, and not tried again by itself".to_owned()
    } else if model.max_replicas == 0 {
        "is switched off".to_owned()
    } else if *desired == 0 && replicas.is_empty() {
        "waits for a request".to_owned()
    } else if *ready_replicas == 0 {
        format!("does not serve yet: 0 of {desired} ready")
    } else {
        format!("serves with {ready_replicas} of {desired}")
    };
    let stays = |replica: &&ReplicaView| replica.state != ReplicaState::Draining;
    let stale = replicas.iter().filter(|replica| replica.stale);
    let stale = stale.filter(stays).count();
    let mut text = format!("{name} {doing}\n");
    let last = decisions.last();
    if let Some(last) = last {
        let ago = span(now.since(last.last_at).as_secs());
        let (verb, why) = (last.what.verb(), last.what.why());
        text.push_str(&format!("Since  {ago} ago: {verb}: {why}\n"));
    }
    // What is on its way lacks nothing.
    let begins: Vec<&ReplicaView> = replicas.iter().filter(|one| begins(one)).collect();
    let has_all = usize::try_from(*desired).is_ok_and(|want| ready_replicas + begins.len() >= want);
    let explanation = explanation.as_ref().filter(|_| !has_all);
    let next = if model.parked {
        format!("nothing, until `llmgw ctl retry {name}`, or until its definition is another")
    } else if model.max_replicas == 0 {
        format!("nothing, until `llmgw ctl scale {name} --min 1`")
    } else if let Some(job) = jobs.first() {
        format!("{} on {}", job.detail, job.hostname)
    } else if let Some(explanation) = explanation {
        explanation.headline.clone()
    } else if let Some(first) = begins.first() {
        let (id, state) = (first.id.short(), first.state.as_str());
        format!("{id} is {state} on {}", first.hostname)
    } else if *desired == 0 {
        "a request starts it".to_owned()
    } else if let Some(first) = staying.first() {
        first.to_string()
    } else if let Some(roll) = roll {
        format!(
            "roll {roll} is under way: {stale} of its replicas run as it was defined before, and go one by one"
        )
    } else if stale > 0 {
        format!(
            "`llmgw ctl roll {name}` replaces {stale} of its replicas, which run as it was defined before"
        )
    } else {
        "nothing: it has all that it should have".to_owned()
    };
    text.push_str(&format!("Next   {next}\n"));
    if let Some(error) = &model.last_error {
        let failures = model.failures;
        text.push_str(&format!("Error  {error} ({failures} in a row)\n"));
    }
    text.push_str(&format!(
        "Scale  {} to {}, idle after {}\n",
        model.min_replicas, model.max_replicas, model.idle_timeout_text
    ));
    text.push_str(&of_staying(staying, explanation));
    text.push_str(&lines("Replicas", replicas.iter().map(line_of)));
    text.push_str(&lines(
        "Decisions",
        decisions.iter().rev().map(|one| decided(one, now)),
    ));
    text.push_str(&of_logs(logs));
    clean(&text)
}

fn of_node(described: &Node) -> String {
    let Node {
        node,
        holds,
        replicas,
        staying,
        jobs,
    } = described;
    let state = match node.state {
        NodeState::Ready => "takes what is placed",
        NodeState::Cordoned => "keeps what it has, and gets nothing new",
        NodeState::Draining => "gives away what it has",
        NodeState::Lost => "is not heard",
        NodeState::Pending => "waits to be let in",
    };
    let mut text = format!("{} {state}\n", node.hostname);
    if let Some(reason) = &node.state_reason {
        text.push_str(&format!("Why    {reason}\n"));
    }
    for hold in holds {
        let (name, reason) = (&hold.name, &hold.reason);
        let why = if reason.is_empty() {
            String::new()
        } else {
            format!(": {reason}")
        };
        text.push_str(&format!(
            "Held   by {name}{why}: nothing is placed or moved until `llmgw ctl holds lift {name}`, or until it ends\n"
        ));
    }
    text.push_str(&format!("Heard  {} ago\n", span(node.last_seen_ago)));
    let next = match (jobs.first(), node.state) {
        (_, NodeState::Draining) if !staying.is_empty() => {
            let waiting = staying.len();
            let leaving = replicas.len().saturating_sub(waiting);
            let ending = match leaving {
                0 => String::new(),
                ending => format!("; {ending} more are ending"),
            };
            format!("{waiting} replicas leave, each when what it waits for has come{ending}")
        }
        (Some(job), _) => format!("{}: {}", job.subject, job.detail),
        (None, NodeState::Draining) if replicas.is_empty() => "nothing: it is empty".to_owned(),
        (None, NodeState::Draining) => format!("{} replicas are ending", replicas.len()),
        (None, NodeState::Lost) => {
            "what it ran is placed elsewhere, or taken back when it is heard".to_owned()
        }
        (None, _) => "nothing is under way".to_owned(),
    };
    text.push_str(&format!("Next   {next}\n"));
    text.push_str(&of_staying(staying, None));
    text.push_str(&lines(
        "Engines",
        node.provision
            .iter()
            .map(|one| format!("{} {}", one.engine, one.state.describe())),
    ));
    text.push_str(&lines(
        "Warnings",
        node.warnings.iter().map(|warning| warning.text.clone()),
    ));
    text.push_str(&lines("Replicas", replicas.iter().map(line_of)));
    clean(&text)
}

fn of_replica(described: &Replica, now: Timestamp) -> String {
    let Replica {
        replica,
        staying,
        jobs,
        decisions,
        logs,
    } = described;
    let mut text = format!(
        "{} of {} is {} on {}\n",
        replica.id.short(),
        replica.model,
        replica.state.as_str(),
        replica.hostname
    );
    let since = match replica.state_since {
        Some(since) => format!("{} ({})", span(now.since(since).as_secs()), moment(since)),
        None => format!("{} at most", span(replica.age_seconds)),
    };
    text.push_str(&format!("Since  {since}\n"));
    let next = match (replica.state, jobs.first()) {
        (_, Some(job)) => job.detail.clone(),
        _ if staying.is_some() => staying.iter().map(ToString::to_string).collect(),
        (ReplicaState::Placing, _) => "its node has to hear of it".to_owned(),
        (ReplicaState::Provisioning, _) => "its engine has to be installed".to_owned(),
        (ReplicaState::Fetching, _) => "its weights have to come".to_owned(),
        (ReplicaState::Starting, _) => "it has to give a first token".to_owned(),
        (ReplicaState::Ready, _) if replica.stale => format!(
            "nothing, until `llmgw ctl roll {}`: its definition has changed since it was started",
            replica.model
        ),
        (ReplicaState::Ready, _) => "nothing: it serves".to_owned(),
        (ReplicaState::Draining, _) => {
            format!("it stops when its {} calls have ended", replica.in_flight)
        }
        (ReplicaState::Failed, _) => "another is placed, unless its model is parked".to_owned(),
        (ReplicaState::Lost, _) => "it is taken back when its node is heard".to_owned(),
        (ReplicaState::Stopped | ReplicaState::Unknown, _) => "nothing".to_owned(),
    };
    text.push_str(&format!("Next   {next}\n"));
    if let Some(error) = &replica.error {
        text.push_str(&format!("Error  {error}\n"));
    }
    text.push_str(&format!("Calls  {}\n", replica.in_flight));
    text.push_str(&of_staying(staying.as_slice(), None));
    text.push_str(&lines(
        "Decisions",
        decisions.iter().rev().map(|one| decided(one, now)),
    ));
    text.push_str(&of_logs(logs));
    clean(&text)
}

/// Whether a replica is on its way to serve.
fn begins(replica: &ReplicaView) -> bool {
    !matches!(
        replica.state,
        ReplicaState::Ready
            | ReplicaState::Draining
            | ReplicaState::Failed
            | ReplicaState::Stopped
            | ReplicaState::Lost
            | ReplicaState::Unknown
    )
}

/// What engines said last, for `logs` and for those who look closer.
fn of_logs(logs: &[LogView]) -> String {
    let mut text = String::new();
    for log in logs {
        let whose = match (log.of, &log.replica, &log.hostname) {
            (LogOf::FirstFailure, _, _) => "the first failure".to_owned(),
            (_, Some(replica), Some(hostname)) => format!("{} on {hostname}", replica.short()),
            _ => "a replica".to_owned(),
        };
        let error = log.error.as_deref().map(|error| format!(": {error}"));
        let error = error.unwrap_or_default();
        let lines_of = log.lines.iter().cloned();
        text.push_str(&lines(&format!("Log of {whose}{error}"), lines_of));
    }
    text
}

/// What is to leave a draining node and does not yet, with what each waits for and what would help.
fn of_staying(staying: &[Staying], lacking: Option<&Explanation>) -> String {
    let waits = lines("Waits", staying.iter().map(ToString::to_string));
    let mut help: Vec<String> = staying.iter().flat_map(Staying::remedies).collect();
    let tried = lacking.filter(|one| one.report.fits.is_none());
    let tried = tried.into_iter().flat_map(|one| &one.report.remedies);
    help.extend(tried.map(|remedy| format!("{}: {remedy}", remedy.when())));
    help.sort();
    help.dedup();
    let help = lines("What would help (each was tried)", help.into_iter());
    format!("{waits}{help}")
}

fn line_of(replica: &ReplicaView) -> String {
    let stale = if replica.stale { ", stale" } else { "" };
    let (id, state, hostname) = (
        replica.id.short(),
        replica.state.as_str(),
        &replica.hostname,
    );
    let error = replica.error.as_deref().map(|error| format!(": {error}"));
    let error = error.unwrap_or_default();
    format!("{id} {state}{stale} on {hostname}{error}")
}

fn decided(decision: &Decision, now: Timestamp) -> String {
    let ago = span(now.since(decision.last_at).as_secs());
    format!(
        "{ago} ago: {}: {}",
        decision.what.verb(),
        decision.what.why()
    )
}

fn lines(heading: &str, lines: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (index, line) in lines.enumerate() {
        if index == 0 {
            text.push_str(&format!("\n{heading}:\n"));
        }
        text.push_str(&format!("  {}\n", one_line(&line)));
    }
    text
}

/// The last decisions tell the story; `decisions` has them all.
const LAST: usize = 10;

#[cfg(test)]
mod tests {
    use llmgw_core::testing::control::MemoryControl;

    use super::*;

    async fn described(kind: Kind, name: &str) -> String {
        let control = MemoryControl::sample().control();
        let shown = describe(&control, Format::Table, kind, name).await;
        shown.unwrap().answer().to_owned()
    }

    #[tokio::test]
    async fn a_parked_model_says_so_and_what_would_help() {
        let text = described(Kind::Model, "broken").await;
        assert!(
            text.starts_with("broken is parked, and not tried again by itself\n"),
            "{text}"
        );
        assert!(
            text.contains("Next   nothing, until `llmgw ctl retry broken`"),
            "{text}"
        );
        assert!(
            text.contains("Log of r-00000003 on beta: the engine ended"),
            "{text}"
        );
        assert!(text.contains("  loading tensors\n"), "{text}");
    }

    #[tokio::test]
    async fn what_fits_nowhere_says_why_next() {
        let text = described(Kind::Model, "huge").await;
        assert!(
            text.starts_with("huge does not serve yet: 0 of 1 ready\n"),
            "{text}"
        );
        assert!(
            text.contains("Next   huge is not placed: 3 nodes"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn an_alias_stands_for_its_model() {
        let text = described(Kind::Model, "tiny").await;
        assert!(
            text.starts_with("smollm2-135m serves with 1 of 1\n"),
            "{text}"
        );
        assert!(text.contains("Next   nothing: it has all"), "{text}");
    }

    #[tokio::test]
    async fn a_node_that_is_held_says_so() {
        let control = MemoryControl::sample().control();
        let hold = serde_json::json!({
            "name": "audit", "scope": {"facility": "north"}, "reason": "inventory",
        });
        let hold = serde_json::from_value(hold).unwrap();
        control.holds.hold(hold).await.unwrap();
        let shown = describe(&control, Format::Table, Kind::Node, "alpha").await;
        let text = shown.unwrap().answer().to_owned();
        assert!(text.contains("\nHeld   by audit: inventory: "), "{text}");
    }

    #[tokio::test]
    async fn nodes_and_replicas_say_what_they_do_and_what_is_next() {
        let text = described(Kind::Node, "beta").await;
        assert!(text.starts_with("beta is not heard\n"), "{text}");
        let text = described(Kind::Replica, "r-00000002").await;
        assert!(
            text.starts_with("r-00000002 of org/qwen:7b is fetching on alpha\n"),
            "{text}"
        );
        assert!(text.contains("Next   2.0 GiB of 8.0 GiB (25 %)"), "{text}");
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_found() {
        let control = MemoryControl::sample().control();
        for kind in [Kind::Model, Kind::Node, Kind::Replica] {
            let failure = describe(&control, Format::Table, kind, "nobody").await;
            assert_eq!(failure.unwrap_err().cause, Cause::NotFound);
        }
    }
}
