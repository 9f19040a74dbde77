//! What the frozen classes have in common: each shows one value of the core, field by field.

use std::collections::BTreeMap;

use llmgw_core::{
    clock::Timestamp,
    cluster::tenancy::LevelPath,
    id::{EngineName, ModelName, NodeId, ProfileName, ReplicaId},
    reason::{Amount, Check},
    units::{Bytes, Micros, Tokens},
};
use pyo3::{prelude::*, types::PyTuple};

/// Says how a value of the core looks in Python.
pub(crate) trait Show<T> {
    /// The value as Python has it.
    fn show(&self) -> T;
}

/// A list that can't be changed: a Python tuple.
#[derive(Clone, Debug)]
pub(crate) struct Many<T>(Vec<T>);

/// Either kind of an [`Amount`].
#[derive(Clone, Debug, IntoPyObject)]
pub(crate) enum Quantity {
    Bytes(u64),
    Text(String),
}

/// Makes a frozen class over a value of the core: a getter for each field, `to_dict`, `==` and `repr`.
macro_rules! view {
    (
        $(#[$doc:meta])*
        $name:ident($core:ty) {
            $($(#[$field_doc:meta])* $field:ident: $shown:ty,)*
        }
        $($more:tt)*
    ) => {
        $(#[$doc])*
        #[pyo3::pyclass(frozen, eq, module = "llmgw")]
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) $core);

        #[pyo3::pymethods]
        impl $name {
            $(
                $(#[$field_doc])*
                #[getter]
                fn $field(&self) -> $shown {
                    $crate::view::Show::show(&self.0.$field)
                }
            )*

            /// The same as a dict, in the words of the admin API; what is not known is left out.
            fn to_dict<'py>(&self, py: pyo3::Python<'py>) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::PyAny>> {
                $crate::convert::to_python(py, &self.0)
            }

            fn __repr__(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<String> {
                $crate::convert::repr(py, stringify!($name), &self.0)
            }

            $($more)*
        }

        impl $crate::view::Show<$name> for $core {
            fn show(&self) -> $name {
                $name(self.clone())
            }
        }
    };
}

pub(crate) use view;

// === impl Many ===

impl<'py, T: IntoPyObject<'py>> IntoPyObject<'py> for Many<T> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        PyTuple::new(py, self.0)
    }
}

// === impl Show ===

impl<T, S: Show<T>> Show<Many<T>> for Vec<S> {
    fn show(&self) -> Many<T> {
        Many(self.iter().map(Show::show).collect())
    }
}

impl<T, S: Show<T>> Show<Option<T>> for Option<S> {
    fn show(&self) -> Option<T> {
        self.as_ref().map(Show::show)
    }
}

impl Show<Self> for BTreeMap<String, String> {
    fn show(&self) -> Self {
        self.clone()
    }
}

impl Show<Quantity> for Amount {
    fn show(&self) -> Quantity {
        match self {
            Self::Bytes(bytes) => Quantity::Bytes(bytes.0),
            Self::Text(text) => Quantity::Text(text.clone()),
        }
    }
}

impl Show<&'static str> for Check {
    fn show(&self) -> &'static str {
        self.as_str()
    }
}

impl Show<u64> for Bytes {
    fn show(&self) -> u64 {
        self.0
    }
}

impl Show<u64> for Tokens {
    fn show(&self) -> u64 {
        self.0
    }
}

impl Show<i64> for Timestamp {
    fn show(&self) -> i64 {
        self.0
    }
}

impl Show<i64> for Micros {
    fn show(&self) -> i64 {
        self.0
    }
}

macro_rules! as_text {
    ($($core:ty),*) => {
        $(
            impl Show<String> for $core {
                fn show(&self) -> String {
                    self.to_string()
                }
            }
        )*
    };
}

macro_rules! as_itself {
    ($($plain:ty),*) => {
        $(
            impl Show<Self> for $plain {
                fn show(&self) -> Self {
                    self.clone()
                }
            }
        )*
    };
}

as_text!(
    EngineName,
    LevelPath,
    ModelName,
    NodeId,
    ProfileName,
    ReplicaId
);
as_itself!(String, bool, u32, u64, usize);
