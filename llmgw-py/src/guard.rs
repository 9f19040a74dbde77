//! The guard: what it looks for, what it would find, what it did.

use llmgw_core::{
    admin_client::AdminClient,
    api::guard::GuardTry,
    cluster::{guard::Stage, tenancy::LevelPath},
    control::Guarding as _,
    units::Span,
};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{
    convert::{Plain, parsed, plain},
    error::Error,
    runtime::{block, future},
};

/// What is looked for in prompts and answers; `Client.guard` gives it.
#[pyclass(frozen, module = "llmgw")]
#[derive(Debug)]
pub(crate) struct Guard(pub(crate) AdminClient);

/// Each question once; asked by blocking and by awaiting.
impl Guard {
    fn ask_rules(
        &self,
        level: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let level: LevelPath = parsed("level", level)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.rules(&level).await?) })
    }

    fn ask_try_text(
        &self,
        text: String,
        level: &str,
        stage: &str,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let level: LevelPath = parsed("level", level)?;
        let stage: Stage = parsed("stage", stage)?;
        let admin = self.0.clone();
        let request = GuardTry { text, level, stage };
        Ok(async move { plain(&admin.try_text(request).await?) })
    }

    fn ask_decisions(
        &self,
        since: &str,
        limit: u32,
    ) -> Result<impl Future<Output = Result<Plain<Value>, Error>> + Send + use<>, Error> {
        let since: Span = parsed("since", since)?;
        let admin = self.0.clone();
        Ok(async move { plain(&admin.guarded(since.into(), limit).await?) })
    }
}

#[pymethods]
impl Guard {
    /// The rules that hold for a level.
    #[pyo3(signature = (*, level="/"))]
    fn rules<'py>(&self, py: Python<'py>, level: &str) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_rules(level)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (*, level="/"))]
    fn rules_async<'py>(&self, py: Python<'py>, level: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_rules(level)?)
    }

    /// What would be found in a text, and done about it; the text is kept nowhere.
    #[pyo3(signature = (text, *, level="/", stage="input"))]
    fn try_text<'py>(
        &self,
        py: Python<'py>,
        text: String,
        level: &str,
        stage: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_try_text(text, level, stage)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (text, *, level="/", stage="input"))]
    fn try_text_async<'py>(
        &self,
        py: Python<'py>,
        text: String,
        level: &str,
        stage: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_try_text(text, level, stage)?)
    }

    /// The calls of the last `since` that rules matched, the newest first.
    #[pyo3(signature = (*, since="24h", limit=1_000))]
    fn decisions<'py>(
        &self,
        py: Python<'py>,
        since: &str,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_decisions(since, limit)?)?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (*, since="24h", limit=1_000))]
    fn decisions_async<'py>(
        &self,
        py: Python<'py>,
        since: &str,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_decisions(since, limit)?)
    }
}
