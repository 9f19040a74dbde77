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
        /// What to reserve there, in bytes.
        memory: u64,
    }
}

view! {
    /// What to do about what is wanted.
    Plan(Planned) {
        /// Replicas to start, by model, then in the order in which they were placed.
        placements: Many<Placement>,
        /// One for each model that lacks replicas, by name: of the trial that failed, or of the last that succeeded.
        reports: Many<Report>,
    }
}

fn read(fleet: &Bound<'_, PyAny>, wanted: &Bound<'_, PyAny>) -> PyResult<(Fleet, Wanted)> {
    Ok((from_python("fleet", fleet)?, from_python("wanted", wanted)?))
}

fn solve(fleet: &Fleet, wanted: &Wanted) -> Plan {
    let (planner::Plan { placements }, reports) = planner::plan(fleet, wanted);
    Plan(Planned {
        placements,
        reports,
    })
}
