//! Plans and what changes would do, for people.

use llmgw_core::{
    api::whatif::{Move, Outcome, Start, Stop},
    id::{ModelName, ReplicaId},
    reason::{Report, render},
    terminal::lines,
};
use llmgw_sched::planner::{self, Placement};

use super::Planned;
use crate::grid::grid;

/// What to do about what is wanted.
pub(super) fn planned(planned: &Planned) -> String {
    let Planned {
        placements,
        stops,
        reports,
    } = planned;
    let mut parts = Vec::new();
    if placements.is_empty() && stops.is_empty() {
        parts.push("Nothing is to start or to stop.\n".to_owned());
    }
    if !placements.is_empty() {
        let headings = ["MODEL", "PROFILE", "NODE", "GPUS", "MEMORY", "REMARK"];
        let rows = placements.iter().map(placement);
        parts.push(titled("Starts:", &grid(&headings, &[], rows)));
    }
    if !stops.is_empty() {
        let row = |stop: &planner::Stop| {
            let replica = replica(stop.replica);
            vec![replica, stop.model.to_string(), stop.why.to_string()]
        };
        let table = grid(&["REPLICA", "MODEL", "WHY"], &[], stops.iter().map(row));
        parts.push(titled("Stops:", &table));
    }
    let lacking = reports.iter().filter(|report| report.fits.is_none());
    parts.extend(lacking.map(explained));
    parts.join("\n")
}

/// What changes would do.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    let Outcome {
        moves,
        starts,
        stops,
        unplaceable,
        lacking_already,
        last_slots,
    } = outcome;
    let mut parts = Vec::new();
    if outcome.is_nothing() {
        parts.push("Nothing would change.\n".to_owned());
    }
    if !moves.is_empty() {
        let headings = ["REPLICA", "MODEL", "FROM", "TO", "PROFILE", "GPUS", "WHY"];
        let table = grid(&headings, &[], moves.iter().map(moved));
        parts.push(titled("Moves:", &table));
    }
    if !starts.is_empty() {
        let headings = ["MODEL", "PROFILE", "NODE", "GPUS"];
        let table = grid(&headings, &[], starts.iter().map(start));
        parts.push(titled("Starts:", &table));
    }
    if !stops.is_empty() {
        let headings = ["REPLICA", "MODEL", "NODE", "WHY"];
        let table = grid(&headings, &[], stops.iter().map(stop));
        parts.push(titled("Stops:", &table));
    }
    if !unplaceable.is_empty() {
        let reasons: Vec<String> = unplaceable.iter().map(explained).collect();
        parts.push(titled("Would lack replicas:", &reasons.join("\n")));
    }
    let mut lines = String::new();
    if !lacking_already.is_empty() {
        lines.push_str(&format!(
            "Lack replicas now, and would still: {}\n",
            names(lacking_already)
        ));
    }
    if !last_slots.is_empty() {
        lines.push_str(&format!(
            "Could have one more replica now, and could not then: {}\n",
            names(last_slots)
        ));
    }
    if !lines.is_empty() {
        parts.push(lines);
    }
    parts.join("\n")
}

fn placement(placement: &Placement) -> Vec<String> {
    let (mut nodes, mut used) = (placement.hostname.clone(), gpus(&placement.gpus));
    if !placement.shards.is_empty() {
        let shards = placement.shards.iter();
        let hosts: Vec<&str> = shards
            .clone()
            .map(|shard| shard.hostname.as_str())
            .collect();
        let all: Vec<String> = shards.map(|shard| gpus(&shard.gpus)).collect();
        (nodes, used) = (hosts.join(" + "), all.join(" + "));
    }
    let remark = if let Some(old) = placement.replaces {
        format!("instead of {}", replica(old))
    } else if !placement.after.is_empty() {
        let ends: Vec<String> = placement.after.iter().map(|id| replica(*id)).collect();
        format!("once {} ended", ends.join(" and "))
    } else if placement.waits {
        "once another start on its GPU ended".to_owned()
    } else {
        NONE.to_owned()
    };
    vec![
        placement.model.to_string(),
        placement.profile.to_string(),
        nodes,
        used,
        placement.memory.to_string(),
        remark,
    ]
}

fn moved(moved: &Move) -> Vec<String> {
    vec![
        replica(moved.replica),
        moved.to.model.to_string(),
        moved.origin.clone(),
        moved.to.hostname.clone(),
        moved.to.profile.to_string(),
        gpus(&moved.to.gpus),
        moved.why.to_string(),
    ]
}

fn start(start: &Start) -> Vec<String> {
    vec![
        start.model.to_string(),
        start.profile.to_string(),
        start.hostname.clone(),
        gpus(&start.gpus),
    ]
}

fn stop(stop: &Stop) -> Vec<String> {
    vec![
        replica(stop.replica),
        stop.model.to_string(),
        stop.hostname.clone(),
        stop.why.to_string(),
    ]
}

fn explained(report: &Report) -> String {
    lines(&render::explanation(report))
}

/// One that was only just planned has no id that anybody knows.
fn replica(id: ReplicaId) -> String {
    match u64::try_from(id.as_uuid().as_u128()) {
        Ok(_) => "planned".to_owned(),
        Err(_) => id.short(),
    }
}

fn gpus(gpus: &[u32]) -> String {
    if gpus.is_empty() {
        return NONE.to_owned();
    }
    let numbers: Vec<String> = gpus.iter().map(u32::to_string).collect();
    numbers.join(",")
}

fn names(models: &[ModelName]) -> String {
    let names: Vec<&str> = models.iter().map(ModelName::as_str).collect();
    names.join(", ")
}

fn titled(title: &str, text: &str) -> String {
    format!("{title}\n{text}")
}

const NONE: &str = "-";
