//! What changes would do, before anything is done.

use llmgw_core::api::whatif::{self, Change};
use llmgw_sched::{
    fleet::Fleet,
    planner::{Options, Wanted},
};
use pyo3::prelude::*;

use crate::{
    convert::from_python,
    error::Error,
    reasons::Report,
    runtime,
    sched::read,
    view::{Many, view},
};

/// Says what changes would do to a snapshot of a fleet; asks no cluster and changes nothing.
#[pyfunction]
pub(crate) fn what_if(
    py: Python<'_>,
    fleet: &Bound<'_, PyAny>,
    wanted: &Bound<'_, PyAny>,
    changes: &Bound<'_, PyAny>,
) -> PyResult<Outcome> {
    let (fleet, wanted) = read(fleet, wanted)?;
    let changes: Vec<Change> = from_python("changes", changes)?;
    Ok(py.detach(|| solve(&fleet, &wanted, &changes))?)
}

/// The same, on a thread of its own.
#[pyfunction]
pub(crate) fn what_if_async<'py>(
    py: Python<'py>,
    fleet: &Bound<'py, PyAny>,
    wanted: &Bound<'py, PyAny>,
    changes: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (fleet, wanted) = read(fleet, wanted)?;
    let changes: Vec<Change> = from_python("changes", changes)?;
    let work = runtime::compute(move || solve(&fleet, &wanted, &changes));
    runtime::future(py, async move { work.await? })
}

view! {
    /// A replica that begins.
    Start(whatif::Start) {
        /// The model.
        model: String,
        /// How it runs.
        profile: String,
        /// The id of the node.
        node: String,
        /// What people call that node.
        hostname: String,
        /// The numbers of the GPUs there.
        gpus: Many<u32>,
    }
}

view! {
    /// A replica that ends in one place and begins in another.
    Move(whatif::Move) {
        /// The one that ends.
        replica: String,
        /// What people call its node.
        origin: String,
        /// The one that begins.
        to: Start,
    }

    /// Why: `edited`, `drained` or `lost`.
    #[getter]
    fn why(&self) -> String {
        self.0.why.to_string()
    }
}

view! {
    /// A replica that ends.
    Ending(whatif::Stop) {
        /// Which.
        replica: String,
        /// What it serves.
        model: String,
        /// What people call its node.
        hostname: String,
    }

    /// Why: `surplus`, `removed`, `edited`, `drained`, `lost` or `evicted`.
    #[getter]
    fn why(&self) -> String {
        self.0.why.to_string()
    }
}

view! {
    /// What changes would do.
    Outcome(whatif::Outcome) {
        /// Replicas that end here and begin there.
        moves: Many<Move>,
        /// Replicas that begin.
        starts: Many<Start>,
        /// Replicas that end.
        stops: Many<Ending>,
        /// Models that would lack replicas and don't now, with the reasons.
        unplaceable: Many<Report>,
        /// Models that lack replicas now, and would still.
        lacking_already: Many<String>,
        /// Models that could have one more replica now, and could not then.
        last_slots: Many<String>,
    }
}

fn solve(fleet: &Fleet, wanted: &Wanted, changes: &[Change]) -> Result<Outcome, Error> {
    llmgw_sched::whatif::what_if(fleet, wanted, changes, &Options::default())
        .map(Outcome)
        .map_err(|wrong| Error::invalid(&wrong.field, &wrong.problem))
}
