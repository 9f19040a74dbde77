//! Tables for people. What is not known is `-`, and never 0.

use std::io::{self, IsTerminal as _};

use llmgw_core::{
    api::{
        admin::{EngineView, JobView, ModelView, NodeView, Origin, OrphanView, ReplicaView},
        orders::{HoldView, TokenView},
    },
    cluster::{
        audit::AuditEntry,
        capacity::Capacity,
        engine::{Provision, ProvisionState, WantedEngine},
        order::HoldScope,
        weights::FetchProgress,
    },
    terminal::one_line,
};

use super::text::{moment, span};
use crate::grid::grid;

/// How long messages may be in their cells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Messages {
    /// So long that the rest of the table has room too; `-o json` and `explain` have them whole.
    Cut,
    /// As long as they are: whoever reads a file or a pipe can search it.
    Whole,
}

pub(super) fn nodes(nodes: &[NodeView]) -> String {
    let row = |node: &NodeView| {
        vec![
            node.hostname.clone(),
            state_of(node),
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

/// What it may be used for, and why not for more.
fn state_of(node: &NodeView) -> String {
    let state = node.state.as_str();
    match &node.state_reason {
        Some(reason) => format!("{state} ({})", Messages::Cut.shown(&one_line(reason))),
        None => state.to_owned(),
    }
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
pub(super) fn engines(engines: &[EngineView], messages: Messages) -> String {
    let mut rows = Vec::new();
    for EngineView {
        name,
        wanted,
        chosen,
        nodes,
    } in engines
    {
        let wish = wanted.as_ref().map_or_else(
            || "not wanted".to_owned(),
            |wanted| {
                let pool = wanted.pool.as_ref();
                let pool = pool.map(|pool| format!(", in pool {pool}"));
                let by = chosen.as_ref().map(|by| format!(", chosen by {}", by.by));
                let (pool, by) = (pool.unwrap_or_default(), by.unwrap_or_default());
                format!("{}{pool}{by}", build(wanted))
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
                messages.shown(&provision.state.describe()),
                messages.shown(&choice),
            ]);
            rows.extend(provision.passed_over.iter().map(|one| {
                let passed = format!("passed over: {}", one.build);
                let blank = String::new;
                vec![
                    blank(),
                    blank(),
                    blank(),
                    passed,
                    messages.shown(&one.reason),
                ]
            }));
        }
    }
    grid(
        &["ENGINE", "WANTED", "NODE", "STATE", "CHOICE, OR WHY NOT"],
        &[],
        rows.into_iter(),
    )
}

/// Who is to have an engine, and how.
pub(super) fn wish(wanted: &WantedEngine) -> String {
    let whose = match &wanted.pool {
        Some(pool) => format!("every node of pool {pool}"),
        None => "every node".to_owned(),
    };
    format!("{whose} is to have {} by {}", wanted.name, build(wanted))
}

fn build(wanted: &WantedEngine) -> String {
    let WantedEngine {
        source, variant, ..
    } = wanted;
    // Only builds in archives have a version that can be chosen.
    let version = match wanted.has_releases() {
        true => format!(" {}", wanted.version()),
        false => String::new(),
    };
    let variant = variant.as_deref().map(|variant| format!(" {variant}"));
    format!("{source}{version}{}", variant.unwrap_or_default())
}

pub(super) fn holds(holds: &[HoldView], messages: Messages) -> String {
    let row = |hold: &HoldView| {
        let scope = match &hold.scope {
            HoldScope::Facility(facility) => format!("facility {facility}"),
            HoldScope::Pool(pool) => format!("pool {pool}"),
            HoldScope::Node(node) => format!("node {node}"),
        };
        vec![
            hold.name.to_string(),
            one_line(&scope),
            hold.until.map_or_else(|| "lifted".to_owned(), moment),
            one_line(&hold.by),
            moment(hold.since),
            or_none(messages.shown(&hold.reason)),
        ]
    };
    grid(
        &["NAME", "WHERE", "UNTIL", "BY", "SINCE", "WHY"],
        &[],
        holds.iter().map(row),
    )
}

pub(super) fn capacities(kept: &[Capacity]) -> String {
    let milliseconds = |time: Option<u32>| known(time.map(|time| format!("{time} ms")));
    let row = |one: &Capacity| {
        let measured = &one.measurement;
        vec![
            one.model.to_string(),
            measured.profile.to_string(),
            measured.concurrency.to_string(),
            measured.tokens_per_second.to_string(),
            milliseconds(measured.time_to_first_token_ms),
            milliseconds(measured.inter_token_ms),
            one_line(&one.measured_by),
            moment(one.measured_at),
        ]
    };
    grid(
        &[
            "MODEL",
            "PROFILE",
            "REQUESTS",
            "TOKENS/S",
            "FIRST TOKEN",
            "INTER-TOKEN",
            "BY",
            "WHEN",
        ],
        &[2, 3],
        kept.iter().map(row),
    )
}

pub(super) fn tokens(tokens: &[TokenView]) -> String {
    let row = |token: &TokenView| {
        vec![
            token.id.to_string(),
            one_line(&token.name),
            token.role.to_string(),
            moment(token.created_at),
        ]
    };
    grid(&["ID", "NAME", "ROLE", "MADE"], &[], tokens.iter().map(row))
}

pub(super) fn models(models: &[ModelView], messages: Messages) -> String {
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
            message.map_or_else(|| UNKNOWN.to_owned(), |message| messages.shown(message)),
        ]
    };
    grid(
        &["NAME", "READY", "STATE", "ALIASES", "ORIGIN", "MESSAGE"],
        &[],
        models.iter().map(row),
    )
}

pub(super) fn replicas(replicas: &[ReplicaView], messages: Messages) -> String {
    let row = |replica: &ReplicaView| {
        let state = replica.state.as_str();
        let message = match (&replica.error, &replica.fetch) {
            (Some(error), _) => messages.shown(error),
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
            held(replica),
            replica.in_flight.to_string(),
            known(replica.endpoint.as_ref()),
            message,
        ]
    };
    grid(
        &[
            "ID",
            "MODEL",
            "PROFILE",
            "STATE",
            "NODE",
            "AGE",
            "MEMORY (MEASURED / SET ASIDE)",
            "CALLS",
            "ENDPOINT",
            "MESSAGE",
        ],
        &[],
        replicas.iter().map(row),
    )
}

pub(super) fn jobs(jobs: &[JobView], messages: Messages) -> String {
    let row = |job: &JobView| {
        vec![
            job.hostname.clone(),
            job.kind.as_str().to_owned(),
            job.subject.clone(),
            job.percent
                .map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent} %")),
            messages.shown(&job.detail),
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

pub(super) fn audit(entries: &[AuditEntry], messages: Messages) -> String {
    let row = |entry: &AuditEntry| {
        vec![
            entry.seq.to_string(),
            moment(entry.at),
            one_line(&entry.actor),
            one_line(&entry.action),
            messages.shown(&entry.subject),
        ]
    };
    grid(
        &["NUMBER", "WHEN", "WHO", "WHAT", "TO WHAT"],
        &[],
        entries.iter().map(row),
    )
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// What a replica was measured to hold, beside what is set aside for it; of its GPUs, what was measured.
fn held(replica: &ReplicaView) -> String {
    let measured = replica.measured.as_ref();
    let main = measured.and_then(|measured| measured.main);
    let mut text = format!("{} / {}", known(main), known(replica.memory));
    for one in measured.iter().flat_map(|measured| &measured.gpus) {
        text.push_str(&format!(", GPU {}: {}", one.gpu, one.memory));
    }
    text
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
    } else if model.max_replicas == 0 {
        ("off", None)
    } else if model.desired == 0 && model.total_replicas == 0 {
        ("on demand", None)
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

// === impl Messages ===

impl Messages {
    /// As standard output wants them.
    pub(super) fn for_stdout() -> Self {
        if io::stdout().is_terminal() {
            Self::Cut
        } else {
            Self::Whole
        }
    }

    /// A message as it stands in its cell.
    pub(super) fn shown(self, message: &str) -> String {
        let most = match self {
            Self::Cut => MAX_MESSAGE,
            Self::Whole => usize::MAX,
        };
        let mut short: String = message.chars().take(most).collect();
        if short.len() < message.len() {
            short.push('…');
        }
        short
    }
}

pub(super) const UNKNOWN: &str = "-";
const NONE: &str = "none";
const MAX_MESSAGE: usize = 100;

#[cfg(test)]
mod tests;
