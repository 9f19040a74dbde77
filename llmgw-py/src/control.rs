//! A control plane over its admin API.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use llmgw_core::{
    admin_client::AdminClient,
    api::{
        log::{LogFrom, LogPart},
        usage::UsageBy,
        whatif::Snapshot,
    },
    cluster::catalog::ModelDefinition,
    control::{Accounts as _, Catalog as _, ControlError, Fleet as _, Logs as _},
    error::Code,
    id::{ModelName, ReplicaId},
    units::Span,
};
use pyo3::prelude::*;

use crate::{
    cluster::{Model, Node, Replica, Summary, Usage},
    convert::{Plain, from_python, to_python},
    error::Error,
    guard::Guard,
    orders::Orders,
    reasons::Explanation,
    runtime::{block, future},
    settings::Settings,
};

/// A control plane, asked over its admin API. Makes no connection until it is asked.
#[pyclass(frozen, module = "llmgw")]
#[derive(Debug)]
pub(crate) struct Client {
    admin: AdminClient,
    url: String,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, token=None, *, token_file=None))]
    fn new(url: String, token: Option<String>, token_file: Option<PathBuf>) -> PyResult<Self> {
        let token = match (token, token_file) {
            (Some(token), None) => token,
            (None, Some(path)) => read_token(&path)?,
            (None, None) => {
                let hint = "pass token=, or token_file= (`admin.token` in the data directory)";
                let error = ControlError::new(Code::InvalidApiKey, "there is no admin token");
                return Err(Error::from(error.with_hint(hint)).into());
            }
            (Some(_), Some(_)) => {
                return Err(Error::invalid("token_file", "token is given as well").into());
            }
        };
        let admin = AdminClient::new(&url, &token).map_err(Error::from)?;
        Ok(Self { admin, url })
    }

    /// The address.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// What holds for the whole cluster, and its own document.
    #[getter]
    fn settings(&self) -> Settings {
        Settings(self.admin.clone())
    }

    /// What is looked for in prompts and answers.
    #[getter]
    fn guard(&self) -> Guard {
        Guard(self.admin.clone())
    }

    /// What is ordered of it, and what is looked up for that.
    #[getter]
    fn orders(&self) -> Orders {
        Orders(self.admin.clone())
    }

    /// The state of the whole in one look.
    fn summary(&self, py: Python<'_>) -> PyResult<Summary> {
        block(py, self.ask_summary())
    }

    /// The same, awaited.
    fn summary_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_summary())
    }

    /// All nodes, by host name.
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<Node>> {
        block(py, self.ask_nodes())
    }

    /// The same, awaited.
    fn nodes_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_nodes())
    }

    /// All that a plan is made from: a dict with `policy`, `fleet` and `models`, as `plan()` takes them.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &block(py, self.ask_snapshot())?.0)
    }

    /// The same, awaited.
    fn snapshot_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_snapshot())
    }

    /// All models, by name.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<Model>> {
        block(py, self.ask_models())
    }

    /// The same, awaited.
    fn models_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_models())
    }

    /// All replicas, or those of a model; an alias will do.
    #[pyo3(signature = (model=None))]
    fn replicas(&self, py: Python<'_>, model: Option<&str>) -> PyResult<Vec<Replica>> {
        block(py, self.ask_replicas(optional(model)?))
    }

    /// The same, awaited.
    #[pyo3(signature = (model=None))]
    fn replicas_async<'py>(
        &self,
        py: Python<'py>,
        model: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_replicas(optional(model)?))
    }

    /// A part of what a replica's engine wrote: its last lines, or what came after a cursor, waited for at most so long.
    #[pyo3(signature = (replica, *, lines=100, after=None, wait="0s"))]
    fn log<'py>(
        &self,
        py: Python<'py>,
        replica: &str,
        lines: u32,
        after: Option<u64>,
        wait: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        to_python(
            py,
            &block(py, self.ask_log(replica, lines, after, wait)?)?.0,
        )
    }

    /// The same, awaited.
    #[pyo3(signature = (replica, *, lines=100, after=None, wait="0s"))]
    fn log_async<'py>(
        &self,
        py: Python<'py>,
        replica: &str,
        lines: u32,
        after: Option<u64>,
        wait: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_log(replica, lines, after, wait)?)
    }

    /// Why a model is placed or not, after a fresh trial; an alias will do.
    fn explain(&self, py: Python<'_>, model: &str) -> PyResult<Explanation> {
        block(py, self.ask_explain(name(model)?))
    }

    /// The same, awaited.
    fn explain_async<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_explain(name(model)?))
    }

    /// Adds a model and gives back its name.
    fn add(&self, py: Python<'_>, definition: &Bound<'_, PyAny>) -> PyResult<String> {
        block(py, self.ask_add(from_python("definition", definition)?))
    }

    /// The same, awaited.
    fn add_async<'py>(
        &self,
        py: Python<'py>,
        definition: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_add(from_python("definition", definition)?))
    }

    /// Defines a model that was added otherwise, and gives back how many of its replicas run on as before until it is
    /// rolled.
    fn replace(&self, py: Python<'_>, definition: &Bound<'_, PyAny>) -> PyResult<usize> {
        block(
            py,
            self.ask_replace(from_python("definition", definition)?)?,
        )
    }

    /// The same, awaited.
    fn replace_async<'py>(
        &self,
        py: Python<'py>,
        definition: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(
            py,
            self.ask_replace(from_python("definition", definition)?)?,
        )
    }

    /// Removes a model, and stops its replicas.
    fn remove(&self, py: Python<'_>, model: &str) -> PyResult<()> {
        block(py, self.ask_remove(name(model)?))
    }

    /// The same, awaited.
    fn remove_async<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_remove(name(model)?))
    }

    /// Lets a parked model be tried again, at once; an alias will do.
    fn retry(&self, py: Python<'_>, model: &str) -> PyResult<()> {
        block(py, self.ask_retry(name(model)?))
    }

    /// The same, awaited.
    fn retry_async<'py>(&self, py: Python<'py>, model: &str) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_retry(name(model)?))
    }

    /// What was used within the last `since`: by model and key, or by what `by` names, such as `level,model,day`.
    #[pyo3(signature = (*, by=None, since="24h"))]
    fn usage(&self, py: Python<'_>, by: Option<&str>, since: &str) -> PyResult<Vec<Usage>> {
        block(py, self.ask_usage(usage_by(by)?, span("since", since)?))
    }

    /// The same, awaited.
    #[pyo3(signature = (*, by=None, since="24h"))]
    fn usage_async<'py>(
        &self,
        py: Python<'py>,
        by: Option<&str>,
        since: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.ask_usage(usage_by(by)?, span("since", since)?))
    }

    fn __repr__(&self) -> String {
        format!("Client({:?})", self.url)
    }
}

/// Each question once; asked by blocking and by awaiting.
impl Client {
    fn ask_summary(&self) -> impl Future<Output = Result<Summary, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(Summary(admin.summary().await?)) }
    }

    fn ask_nodes(&self) -> impl Future<Output = Result<Vec<Node>, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(admin.nodes().await?.into_iter().map(Node).collect()) }
    }

    fn ask_snapshot(&self) -> impl Future<Output = Result<Plain<Snapshot>, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(Plain(admin.snapshot().await?)) }
    }

    fn ask_models(&self) -> impl Future<Output = Result<Vec<Model>, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(admin.models().await?.into_iter().map(Model).collect()) }
    }

    fn ask_replicas(
        &self,
        model: Option<ModelName>,
    ) -> impl Future<Output = Result<Vec<Replica>, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move {
            let replicas = admin.replicas(model.as_ref()).await?;
            Ok(replicas.into_iter().map(Replica).collect())
        }
    }

    fn ask_log(
        &self,
        replica: &str,
        lines: u32,
        after: Option<u64>,
        wait: &str,
    ) -> Result<impl Future<Output = Result<Plain<LogPart>, Error>> + Send + use<>, Error> {
        let replica: ReplicaId = replica
            .parse()
            .map_err(|error| Error::invalid("replica", &format!("{error}")))?;
        let from = after.map_or(LogFrom::Last(lines), LogFrom::After);
        let wait: Duration = span("wait", wait)?.into();
        let admin = self.admin.clone();
        Ok(async move { Ok(Plain(admin.read_log(replica, from, wait).await?)) })
    }

    fn ask_explain(
        &self,
        model: ModelName,
    ) -> impl Future<Output = Result<Explanation, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(Explanation(admin.explain(&model).await?)) }
    }

    fn ask_add(
        &self,
        definition: ModelDefinition,
    ) -> impl Future<Output = Result<String, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(admin.add(definition).await?.to_string()) }
    }

    fn ask_replace(
        &self,
        definition: ModelDefinition,
    ) -> Result<impl Future<Output = Result<usize, Error>> + Send + use<>, Error> {
        let name = name(&definition.name)?;
        let admin = self.admin.clone();
        Ok(async move { Ok(admin.replace(&name, definition).await?.stale) })
    }

    fn ask_remove(
        &self,
        model: ModelName,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(admin.remove(&model).await?) }
    }

    fn ask_retry(
        &self,
        model: ModelName,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move { Ok(admin.retry(&model).await?) }
    }

    fn ask_usage(
        &self,
        by: UsageBy,
        since: Span,
    ) -> impl Future<Output = Result<Vec<Usage>, Error>> + Send + use<> {
        let admin = self.admin.clone();
        async move {
            let usage = admin.usage(by, since.into()).await?;
            Ok(usage.into_iter().map(Usage).collect())
        }
    }
}

fn usage_by(by: Option<&str>) -> Result<UsageBy, Error> {
    let by = by.map(|text| {
        text.parse()
            .map_err(|error| Error::invalid("by", &format!("{error}")))
    });
    Ok(by.transpose()?.unwrap_or_default())
}

fn span(field: &str, text: &str) -> Result<Span, Error> {
    text.parse()
        .map_err(|error| Error::invalid(field, &format!("{error}")))
}

/// Reads a token from a file that holds nothing else.
fn read_token(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
        .map_err(|error| {
            Error::invalid(
                "token_file",
                &format!("reading {}: {error}", path.display()),
            )
        })?;
    Ok(text.trim().to_owned())
}

fn name(model: &str) -> Result<ModelName, Error> {
    model
        .parse()
        .map_err(|error| Error::invalid("model", &format!("{error}")))
}

fn optional(model: Option<&str>) -> Result<Option<ModelName>, Error> {
    model.map(name).transpose()
}

/// A token is a line; what is longer is something else.
const MAX_TOKEN_FILE: u64 = 4096;
