//! Python data to checked Rust data, and back.

use llmgw_core::error::Code;
use pyo3::{intern, prelude::*, types::PyDict};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::error::Error;

/// Reads a `T` from Python data of the kind that JSON has; an error names the field, beginning with `name`.
pub(crate) fn from_python<T: DeserializeOwned>(
    name: &str,
    data: &Bound<'_, PyAny>,
) -> Result<T, Error> {
    let text = dump(data).map_err(|error| {
        let problem = error.value(data.py()).to_string();
        Error::invalid(name, &problem)
    })?;
    // By way of a `Value`: positions in a text that no one wrote would only confuse.
    let value: Value =
        serde_json::from_str(&text).map_err(|error| Error::invalid(name, &error.to_string()))?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().to_string();
        if path == "." {
            Error::invalid(name, &problem)
        } else {
            Error::invalid(&format!("{name}.{path}"), &problem)
        }
    })
}

/// Gives `data` as Python has it: a dict, a list, a str, an int, a float, a bool or None.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    data: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(data)
        .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    json(py)?.call_method1(intern!(py, "loads"), (text,))
}

/// What Python gets as plain data.
#[derive(Debug)]
pub(crate) struct Plain<T>(pub(crate) T);

impl<'py, T: Serialize> IntoPyObject<'py> for Plain<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        to_python(py, &self.0)
    }
}

/// `Name(field=value, …)` with the fields that are there.
pub(crate) fn repr(py: Python<'_>, name: &str, data: &impl Serialize) -> PyResult<String> {
    let fields = to_python(py, data)?.cast_into::<PyDict>()?;
    let fields: Vec<String> = fields
        .iter()
        .map(|(field, value)| Ok(format!("{field}={}", value.repr()?)))
        .collect::<PyResult<_>>()?;
    Ok(format!("{name}({})", fields.join(", ")))
}

fn dump(data: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = data.py();
    let options = PyDict::new(py);
    options.set_item(intern!(py, "allow_nan"), false)?;
    json(py)?
        .call_method(intern!(py, "dumps"), (data,), Some(&options))?
        .extract()
}

fn json(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "json"))
}

/// An answer as plain data.
pub(crate) fn plain(answer: &impl Serialize) -> Result<Plain<Value>, Error> {
    serde_json::to_value(answer)
        .map(Plain)
        .map_err(|error| Error::new(Code::Internal, error.to_string()))
}

/// Reads a name or another short text; an error names the argument.
pub(crate) fn parsed<T>(field: &str, text: &str) -> Result<T, Error>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error| Error::invalid(field, &format!("{error}")))
}
