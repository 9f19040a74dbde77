//! Where models go, and why not.

use llmgw_core::reason;
use llmgw_sched::{
    fleet::Fleet,
    planner::{self, Wanted},
};
use pyo3::prelude::*;
use serde::Serialize;

use crate::{
    convert::from_python,
    error::Error,
    reasons::Report,
    runtime,
    view::{Many, view},
};

/// Places what is wanted and not there yet, on a snapshot of a fleet; asks no cluster and changes nothing.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    fleet: &Bound<'_, PyAny>,
    wanted: &Bound<'_, PyAny>,
) -> PyResult<Plan> {
    let (fleet, wanted) = read(fleet, wanted)?;
    Ok(py.detach(|| solve(&fleet, &wanted)))
}

/// The same, on a thread of its own.
#[pyfunction]
pub(crate) fn plan_async<'py>(
    py: Python<'py>,
    fleet: &Bound<'py, PyAny>,
    wanted: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (fleet, wanted) = read(fleet, wanted)?;
    runtime::future(py, runtime::compute(move || solve(&fleet, &wanted)))
}

/// A plan, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Planned {
    placements: Vec<planner::Placement>,
    stops: Vec<planner::Stop>,
    reports: Vec<reason::Report>,
}

view! {
    /// A replica to start.
    Placement(planner::Placement) {
        /// The model.
        model: String,
        /// How to run it.
        profile: String,
        /// The id of the node.
        node: String,
        /// What people call that node.
        hostname: String,
        /// What to reserve there of main memory, in bytes.
        memory: u64,
        /// The numbers of the GPUs there.
        gpus: Many<u32>,
        /// The replica on a draining node whose place it takes.
        replaces: Option<String>,
        /// Replicas that have to end before there is room.
        after: Many<String>,
        /// Whether another start on one of its GPUs has to end first.
        waits: bool,
    }
}

view! {
    /// A replica to stop.
    Stop(planner::Stop) {
        /// Which.
        replica: String,
        /// Its model.
        model: String,
        /// The id of the node where it runs.
        node: String,
    }

    /// Why: `surplus`, `drained`, or `room for MODEL`.
    #[getter]
    fn why(&self) -> String {
        self.0.why.to_string()
    }
}

view! {
    /// What to do about what is wanted.
    Plan(Planned) {
        /// Replicas to start, by model, then in the order in which they were placed.
        placements: Many<Placement>,
        /// Replicas to stop, by model, the first to stop first.
        stops: Many<Stop>,
        /// One for each model that lacks replicas, by name: of the trial that failed, or of the last that succeeded.
        reports: Many<Report>,
    }
}

pub(crate) fn read(
    fleet: &Bound<'_, PyAny>,
    wanted: &Bound<'_, PyAny>,
) -> PyResult<(Fleet, Wanted)> {
    let fleet: Fleet = from_python("fleet", fleet)?;
    if let Some(wrong) = fleet.check().first() {
        return Err(Error::invalid(&format!("fleet.{}", wrong.field), &wrong.problem).into());
    }
    let wanted: Wanted = from_python("wanted", wanted)?;
    if let Some(wrong) = wanted.check(&fleet).first() {
        return Err(Error::invalid(&format!("wanted.{}", wrong.field), &wrong.problem).into());
    }
    let wanted = wanted.as_it_runs(&fleet);
    Ok((fleet, wanted))
}

fn solve(fleet: &Fleet, wanted: &Wanted) -> Plan {
    let (planner::Plan { placements, stops }, reports) = planner::plan(fleet, wanted);
    Plan(Planned {
        placements,
        stops,
        reports,
    })
}
