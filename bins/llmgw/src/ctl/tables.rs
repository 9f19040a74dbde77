//! Tables for people. What is not known is `-`, and never 0.

use llmgw_core::{
    api::admin::{
        EngineView, JobView, KeyView, ModelView, NodeView, Origin, OrphanView, ReplicaView,
        UsageView,
    },
    cluster::{
        audit::AuditEntry,
        engine::{Provision, ProvisionState},
        weights::FetchProgress,
    },
};

use super::text::{moment, span};
use crate::{failure::one_line, grid::grid};

pub(super) fn nodes(nodes: &[NodeView]) -> String {
    let row = |node: &NodeView| {
        vec![
            node.hostname.clone(),
            node.state.as_str().to_owned(),
            known(node.cpu_cores),
            format!(
                "{} / {}",
                node.memory_reserved,
                known(node.memory_allocatable)
            ),
            known(node.disk_free),
            gpus(node),
            engines_of(node),
            node.replicas.to_string(),
            warnings(node),
            format!("{} ago", span(node.last_seen_ago)),
            node.agent_version.clone(),
        ]
    };
    grid(
        &[
            "NAME",
            "STATE",
            "CORES",
            "MEMORY (RESERVED / USABLE)",
            "DISK FREE",
            "GPUS",
            "ENGINES",
            "REPLICAS",
            "WARNINGS",
            "SEEN",
            "AGENT",
        ],
        &[],
        nodes.iter().map(row),
    )
}

/// How many there are, of which class, and how many of them are broken.
fn gpus(node: &NodeView) -> String {
    let Some(total) = node.gpu_total else {
        return UNKNOWN.to_owned();
    };
    let mut text = total.to_string();
    let classes = node.gpu_classes.as_deref().unwrap_or_default();
    if !classes.is_empty() {
        text = format!("{text} {}", classes.join(", "));
    }
    match node.unhealthy_gpus.as_deref().unwrap_or_default().len() {
        0 => text,
        broken => format!("{text}, {broken} broken"),
    }
}

/// A row for each node, and below it one for each build that it passed over.
pub(super) fn engines(engines: &[EngineView]) -> String {
    let mut rows = Vec::new();
    for EngineView {
        name,
        wanted,
        nodes,
    } in engines
    {
        let wish = wanted.as_ref().map_or_else(
            || "not wanted".to_owned(),
            |wanted| {
                let variant = wanted
                    .variant
                    .as_deref()
                    .map(|variant| format!(" {variant}"));
                format!(
                    "{} {}{}",
                    wanted.source,
                    wanted.version(),
                    variant.unwrap_or_default()
                )
            },
        );
        if nodes.is_empty() {
            let none = || UNKNOWN.to_owned();
            rows.push(vec![name.to_string(), wish.clone(), none(), none(), none()]);
        }
        for node in nodes {
            let provision = &node.provision;
            let choice = provision
                .choice
                .clone()
                .unwrap_or_else(|| UNKNOWN.to_owned());
            rows.push(vec![
                name.to_string(),
                wish.clone(),
                node.hostname.clone(),
                shortened(&provision.state.describe()),
                shortened(&choice),
            ]);
            rows.extend(provision.passed_over.iter().map(|one| {
                let passed = format!("passed over: {}", one.build);
                let blank = String::new;
                vec![blank(), blank(), blank(), passed, shortened(&one.reason)]
            }));
        }
    }
    grid(
        &["ENGINE", "WANTED", "NODE", "STATE", "CHOICE, OR WHY NOT"],
        &[],
        rows.into_iter(),
    )
}

pub(super) fn models(models: &[ModelView]) -> String {
    let row = |model: &ModelView| {
        let aliases: Vec<&str> = model.aliases.iter().map(|alias| alias.as_str()).collect();
        let (state, message) = standing(model);
        vec![
            model.name.to_string(),
            format!("{}/{}", model.ready_replicas, model.desired),
            state.to_owned(),
            or_none(aliases.join(",")),
            match model.origin {
                Origin::Declared => "declared".to_owned(),
                Origin::Added => "added".to_owned(),
            },
            message.map_or_else(|| UNKNOWN.to_owned(), shortened),
        ]
    };
    grid(
        &["NAME", "READY", "STATE", "ALIASES", "ORIGIN", "MESSAGE"],
        &[],
        models.iter().map(row),
    )
}

pub(super) fn replicas(replicas: &[ReplicaView]) -> String {
    let row = |replica: &ReplicaView| {
        let state = replica.state.as_str();
        let message = match (&replica.error, &replica.fetch) {
            (Some(error), _) => shortened(error),
            (None, Some(fetch)) => progress(fetch),
            (None, None) => UNKNOWN.to_owned(),
        };
        vec![
            replica.id.short(),
            replica.model.to_string(),
            replica.profile.to_string(),
            if replica.stale {
                format!("{state}, stale")
            } else {
                state.to_owned()
            },
            replica.hostname.clone(),
            span(replica.age_seconds),
            replica.in_flight.to_string(),
            known(replica.endpoint.as_ref()),
            message,
        ]
    };
    grid(
        &[
            "ID", "MODEL", "PROFILE", "STATE", "NODE", "AGE", "CALLS", "ENDPOINT", "MESSAGE",
        ],
        &[],
        replicas.iter().map(row),
    )
}

pub(super) fn keys(keys: &[KeyView]) -> String {
    let row = |key: &KeyView| {
        vec![
            key.id.to_string(),
            one_line(&key.name),
            moment(key.created_at),
        ]
    };
    grid(&["ID", "NAME", "MADE"], &[], keys.iter().map(row))
}

pub(super) fn jobs(jobs: &[JobView]) -> String {
    let row = |job: &JobView| {
        vec![
            job.hostname.clone(),
            job.kind.as_str().to_owned(),
            job.subject.clone(),
            job.percent
                .map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent} %")),
            shortened(&job.detail),
        ]
    };
    grid(
        &["NODE", "KIND", "SUBJECT", "DONE", "DETAIL"],
        &[],
        jobs.iter().map(row),
    )
}

pub(super) fn orphans(orphans: &[OrphanView]) -> String {
    let row = |one: &OrphanView| {
        let state = match &one.kept {
            Some(why) => format!("stays: {why}"),
            None if one.collecting => "is being removed".to_owned(),
            None => "may go".to_owned(),
        };
        vec![
            one.hostname.clone(),
            one.sha256.to_string(),
            one_line(&one.name),
            one.size.to_string(),
            one.last_used.map_or_else(|| UNKNOWN.to_owned(), moment),
            one_line(&state),
        ]
    };
    grid(
        &["NODE", "SHA256", "NAME", "SIZE", "LAST USED", "STATE"],
        &[],
        orphans.iter().map(row),
    )
}

pub(super) fn audit(entries: &[AuditEntry]) -> String {
    let row = |entry: &AuditEntry| {
        vec![
            entry.seq.to_string(),
            moment(entry.at),
            one_line(&entry.actor),
            one_line(&entry.action),
            shortened(&entry.subject),
        ]
    };
    grid(
        &["NUMBER", "WHEN", "WHO", "WHAT", "TO WHAT"],
        &[],
        entries.iter().map(row),
    )
}

pub(super) fn usage(usage: &[UsageView]) -> String {
    let row = |used: &UsageView| {
        vec![
            used.model.to_string(),
            used.key.clone(),
            used.requests.to_string(),
            used.errors.to_string(),
            used.prompt_tokens.to_string(),
            used.completion_tokens.to_string(),
        ]
    };
    grid(
        &[
            "MODEL",
            "KEY",
            "REQUESTS",
            "ERRORS",
            "PROMPT TOKENS",
            "COMPLETION TOKENS",
        ],
        &[2, 3, 4, 5],
        usage.iter().map(row),
    )
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        NONE.to_owned()
    } else {
        text
    }
}

fn warnings(node: &NodeView) -> String {
    let codes: Vec<&str> = node
        .warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect();
    if codes.is_empty() && !node.probed {
        return UNKNOWN.to_owned();
    }
    or_none(codes.join(","))
}

fn engines_of(node: &NodeView) -> String {
    let one = |provision: &Provision| {
        let engine = &provision.engine;
        match &provision.state {
            ProvisionState::Pending => format!("{engine} pending"),
            ProvisionState::Waiting { .. } => format!("{engine} waiting"),
            ProvisionState::Installing {
                percent: Some(percent),
                ..
            } => format!("{engine} installing {percent} %"),
            ProvisionState::Installing { percent: None, .. } => format!("{engine} installing"),
            ProvisionState::Installed { version, .. } => format!("{engine} {version}"),
            ProvisionState::Failed { .. } => format!("{engine} failed"),
            ProvisionState::Unknown => format!("{engine} unknown"),
        }
    };
    // A node that was not looked at has engines that nobody knows, and not none.
    if node.provision.is_empty() && !node.probed {
        return UNKNOWN.to_owned();
    }
    let all: Vec<String> = node.provision.iter().map(one).collect();
    or_none(all.join(", "))
}

fn standing(model: &ModelView) -> (&'static str, Option<&str>) {
    let error = model.last_error.as_deref();
    let missing =
        usize::try_from(model.desired).is_ok_and(|desired| model.ready_replicas < desired);
    if model.parked {
        ("parked", error)
    } else if let Some(why) = &model.unplaceable {
        ("unplaceable", Some(why))
    } else if !missing {
        ("ready", None)
    } else if model.total_replicas > 0 {
        ("starting", error)
    } else {
        ("waiting", error)
    }
}

fn progress(fetch: &FetchProgress) -> String {
    let mut text = match (fetch.percent(), fetch.bytes_total) {
        (Some(percent), Some(total)) => format!("{percent} % of {total}"),
        _ => format!("{} fetched", fetch.bytes_done),
    };
    match (
        fetch.stalled_since,
        fetch.bytes_per_second,
        fetch.eta_seconds,
    ) {
        (Some(since), _, _) => text.push_str(&format!(", stalled since {}", moment(since))),
        (None, Some(rate), Some(eta)) => {
            text.push_str(&format!(", {rate}/s, ~{} left", span(eta)));
        }
        (None, Some(rate), None) => text.push_str(&format!(", {rate}/s")),
        (None, None, _) => {}
    }
    text
}

/// A message that leaves room for the rest of the table; `-o json` and `explain` have it whole.
pub(super) fn shortened(message: &str) -> String {
    let mut short: String = message.chars().take(MAX_MESSAGE).collect();
    if short.len() < message.len() {
        short.push('…');
    }
    short
}

const UNKNOWN: &str = "-";
const NONE: &str = "none";
const MAX_MESSAGE: usize = 100;

#[cfg(test)]
mod tests;
