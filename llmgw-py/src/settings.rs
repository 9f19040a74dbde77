//! What holds for the whole cluster: shown, written, tried, brought back.

use llmgw_core::{admin_client::AdminClient, control::Settings as _};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{
    convert::{Plain, plain},
    error::Error,
    runtime::{block, future},
};

/// What holds for the whole cluster; `Client.settings` gives it.
#[pyclass(frozen, module = "llmgw")]
#[derive(Debug)]
pub(crate) struct Settings(pub(crate) AdminClient);

/// Each question once; asked by blocking and by awaiting.
impl Settings {
    fn ask_in_force(&self) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.settings().await?) }
    }

    fn ask_document(
        &self,
        version: Option<u64>,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.document(version).await?) }
    }

    fn ask_history(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.history(before, limit).await?) }
    }

    fn ask_put(
        &self,
        document: String,
        base: Option<u64>,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.put(document, base).await?) }
    }

    fn ask_roll_back(
        &self,
        version: u64,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.roll_back(version).await?) }
    }

    fn ask_try_out(
        &self,
        document: String,
    ) -> impl Future<Output = Result<Plain<Value>, Error>> + Send + use<> {
        let admin = self.0.clone();
        async move { plain(&admin.try_out(document).await?) }
    }
}

#[pymethods]
impl Settings {
    /// What holds, and which version of the document is in force.
    fn in_force<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_in_force())?.into_pyobject(py)
    }

    /// The same, awaited.
    fn in_force_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_in_force())
    }

    /// The document, or this version of it, as it was written.
    #[pyo3(signature = (version=None))]
    fn document<'py>(&self, py: Python<'py>, version: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_document(version))?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (version=None))]
    fn document_async<'py>(
        &self,
        py: Python<'py>,
        version: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_document(version))
    }

    /// Its versions, the newest first.
    #[pyo3(signature = (*, before=None, limit=1_000))]
    fn history<'py>(
        &self,
        py: Python<'py>,
        before: Option<u64>,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_history(before, limit))?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (*, before=None, limit=1_000))]
    fn history_async<'py>(
        &self,
        py: Python<'py>,
        before: Option<u64>,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_history(before, limit))
    }

    /// Takes a document in the place of the one before, if `base` is still the newest; it is in force at once.
    #[pyo3(signature = (document, *, base=None))]
    fn put<'py>(
        &self,
        py: Python<'py>,
        document: String,
        base: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_put(document, base))?.into_pyobject(py)
    }

    /// The same, awaited.
    #[pyo3(signature = (document, *, base=None))]
    fn put_async<'py>(
        &self,
        py: Python<'py>,
        document: String,
        base: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_put(document, base))
    }

    /// Brings the text of an earlier version back, as a new one; 0 for a document that says nothing.
    fn roll_back<'py>(&self, py: Python<'py>, version: u64) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_roll_back(version))?.into_pyobject(py)
    }

    /// The same, awaited.
    fn roll_back_async<'py>(&self, py: Python<'py>, version: u64) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_roll_back(version))
    }

    /// What a document would come to, and what the planner would do; changes nothing.
    fn try_out<'py>(&self, py: Python<'py>, document: String) -> PyResult<Bound<'py, PyAny>> {
        block(py, self.ask_try_out(document))?.into_pyobject(py)
    }

    /// The same, awaited.
    fn try_out_async<'py>(&self, py: Python<'py>, document: String) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_try_out(document))
    }
}
