//! What operators order of a control plane, and what they look up for that, as plain data in the words of the admin API.

mod asking;

use llmgw_core::admin_client::AdminClient;
use pyo3::prelude::*;

use crate::runtime::{block, future};

/// What is ordered of a control plane; `Client.orders` gives it.
#[pyclass(frozen, module = "llmgw")]
#[derive(Debug)]
pub(crate) struct Orders(pub(crate) AdminClient);

#[pymethods]
impl Orders {
    /// Engines: which are wanted, who chose them so, how far each node is.
    fn engines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_engines())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn engines_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_engines())
    }

    /// Has every node get an engine so, over what the settings say; gives what they are told.
    #[pyo3(signature = (name, *, version=None, source=None, variant=None))]
    fn choose_engine<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        version: Option<String>,
        source: Option<String>,
        variant: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_choose_engine(name, version, source, variant)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (name, *, version=None, source=None, variant=None))]
    fn choose_engine_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        version: Option<String>,
        source: Option<String>,
        variant: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_choose_engine(name, version, source, variant)?)
    }

    /// Takes the choice of an engine back; gives what the settings say of it.
    fn unset_engine<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_unset_engine(name)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn unset_engine_async<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_unset_engine(name)?)
    }

    /// Runs a model between so many replicas; gives what is in force.
    #[pyo3(signature = (model, *, min_replicas=None, max_replicas=None, idle_timeout=None))]
    fn scale<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        min_replicas: Option<u32>,
        max_replicas: Option<u32>,
        idle_timeout: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(
            py,
            self.ask_scale(model, min_replicas, max_replicas, idle_timeout)?,
        )?
        .into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (model, *, min_replicas=None, max_replicas=None, idle_timeout=None))]
    fn scale_async<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        min_replicas: Option<u32>,
        max_replicas: Option<u32>,
        idle_timeout: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(
            py,
            self.ask_scale(model, min_replicas, max_replicas, idle_timeout)?,
        )
    }

    /// Replaces the stale replicas of a model, one after the other.
    #[pyo3(signature = (model, *, force=false))]
    fn roll<'py>(&self, py: Python<'py>, model: &str, force: bool) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_roll(model, force)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (model, *, force=false))]
    fn roll_async<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        force: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_roll(model, force)?)
    }

    /// Uses a node, named by host name or id, otherwise; gives what is in force.
    #[pyo3(signature = (node, state, *, reason="", force=false))]
    fn use_node<'py>(
        &self,
        py: Python<'py>,
        node: &str,
        state: &str,
        reason: &str,
        force: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_use_node(node, state, reason, force)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (node, state, *, reason="", force=false))]
    fn use_node_async<'py>(
        &self,
        py: Python<'py>,
        node: &str,
        state: &str,
        reason: &str,
        force: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_use_node(node, state, reason, force)?)
    }

    /// Goes on without the nodes that fell silent at once; gives what was frozen.
    fn thaw<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_thaw())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn thaw_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_thaw())
    }

    /// Where nothing is placed or moved.
    fn holds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_holds())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn holds_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_holds())
    }

    /// Places and moves nothing in a facility, in a pool or on a node; one of that name is replaced.
    #[pyo3(signature = (name, *, facility=None, pool=None, node=None, reason="", lasts=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn hold<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        facility: Option<String>,
        pool: Option<String>,
        node: Option<&str>,
        reason: &str,
        lasts: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(
            py,
            self.ask_hold(name, facility, pool, node, reason, lasts)?,
        )?
        .into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (name, *, facility=None, pool=None, node=None, reason="", lasts=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn hold_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        facility: Option<String>,
        pool: Option<String>,
        node: Option<&str>,
        reason: &str,
        lasts: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(
            py,
            self.ask_hold(name, facility, pool, node, reason, lasts)?,
        )
    }

    /// Lifts a hold.
    fn lift<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_lift(name)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn lift_async<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_lift(name)?)
    }

    /// What models were measured to do.
    fn capacities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_capacities())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn capacities_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_capacities())
    }

    /// Keeps a measurement of a model; gives it as it is kept.
    fn record_capacity<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        measurement: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_record_capacity(model, measurement)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn record_capacity_async<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        measurement: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_record_capacity(model, measurement)?)
    }

    /// API keys, without their secrets.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_keys())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn keys_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_keys())
    }

    /// Makes an API key; its secret is in the answer, and never shown again.
    #[pyo3(signature = (name, *, level="/", expires_in=None, limits=None))]
    fn create_key<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        level: &str,
        expires_in: Option<&str>,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_create_key(name, level, expires_in, limits)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (name, *, level="/", expires_in=None, limits=None))]
    fn create_key_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        level: &str,
        expires_in: Option<&str>,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_create_key(name, level, expires_in, limits)?)
    }

    /// Limits an API key so from now on, in the place of all that was limited for it alone.
    #[pyo3(signature = (key, *, limits=None))]
    fn limit_key<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_limit_key(key, limits)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (key, *, limits=None))]
    fn limit_key_async<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_limit_key(key, limits)?)
    }

    /// Revokes an API key.
    fn revoke_key<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_revoke_key(key)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn revoke_key_async<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_revoke_key(key)?)
    }

    /// Organisations, teams and projects, and what is limited there; `/` is the cluster itself.
    fn levels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_levels())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn levels_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_levels())
    }

    /// Makes an organisation, a team of one, or a project of a team.
    #[pyo3(signature = (level, *, limits=None))]
    fn create_level<'py>(
        &self,
        py: Python<'py>,
        level: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_create_level(level, limits)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (level, *, limits=None))]
    fn create_level_async<'py>(
        &self,
        py: Python<'py>,
        level: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_create_level(level, limits)?)
    }

    /// Limits a level so, in the place of all that was limited there.
    #[pyo3(signature = (level, *, limits=None))]
    fn limit_level<'py>(
        &self,
        py: Python<'py>,
        level: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_limit_level(level, limits)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (level, *, limits=None))]
    fn limit_level_async<'py>(
        &self,
        py: Python<'py>,
        level: &str,
        limits: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_limit_level(level, limits)?)
    }

    /// Removes a level that no key and no other level is in.
    fn remove_level<'py>(&self, py: Python<'py>, level: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_remove_level(level)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn remove_level_async<'py>(&self, py: Python<'py>, level: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_remove_level(level)?)
    }

    /// What models cost, and have cost, for a million tokens in millionths of the cluster's currency.
    fn prices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_prices())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn prices_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_prices())
    }

    /// Has a model cost so much from now on, for a million tokens in millionths of the cluster's currency.
    #[pyo3(signature = (model, *, prompt, completion, cached=None))]
    fn set_price<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        prompt: i64,
        completion: i64,
        cached: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_set_price(model, prompt, completion, cached)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (model, *, prompt, completion, cached=None))]
    fn set_price_async<'py>(
        &self,
        py: Python<'py>,
        model: &str,
        prompt: i64,
        completion: i64,
        cached: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_set_price(model, prompt, completion, cached)?)
    }

    /// Admin tokens with roles, without their secrets.
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_tokens())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn tokens_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_tokens())
    }

    /// Makes an admin token; its secret is in the answer, and never shown again.
    #[pyo3(signature = (name, *, role="viewer"))]
    fn create_token<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        role: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_create_token(name, role)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (name, *, role="viewer"))]
    fn create_token_async<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        role: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_create_token(name, role)?)
    }

    /// Revokes an admin token.
    fn revoke_token<'py>(&self, py: Python<'py>, token: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_revoke_token(token)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn revoke_token_async<'py>(&self, py: Python<'py>, token: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_revoke_token(token)?)
    }

    /// Long work that is under way.
    fn jobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_jobs())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn jobs_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_jobs())
    }

    /// What was ordered, by whom: the entries after a number.
    #[pyo3(signature = (*, after=0, limit=1_000))]
    fn audit<'py>(&self, py: Python<'py>, after: u64, limit: u32) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_audit(after, limit))?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (*, after=0, limit=1_000))]
    fn audit_async<'py>(
        &self,
        py: Python<'py>,
        after: u64,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_audit(after, limit))
    }

    /// What was decided, on a model or on all: after a number.
    #[pyo3(signature = (model=None, *, after=0, limit=1_000))]
    fn decisions<'py>(
        &self,
        py: Python<'py>,
        model: Option<&str>,
        after: u64,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_decisions(model, after, limit)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (model=None, *, after=0, limit=1_000))]
    fn decisions_async<'py>(
        &self,
        py: Python<'py>,
        model: Option<&str>,
        after: u64,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_decisions(model, after, limit)?)
    }

    /// What the engines of a model said last.
    fn logs<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_logs(model)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn logs_async<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_logs(model)?)
    }

    /// Weights on disks that no model refers to.
    fn orphans<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_orphans())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn orphans_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_orphans())
    }

    /// Removes such weights from every node that lists them; gives those, with why some stay.
    fn collect<'py>(&self, py: Python<'py>, digests: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_collect(digests)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    fn collect_async<'py>(
        &self,
        py: Python<'py>,
        digests: Vec<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_collect(digests)?)
    }

    #[expect(clippy::unused_self, reason = "Python asks an object")]
    fn __repr__(&self) -> String {
        "Orders()".to_owned()
    }
}
