//! The compiled half of the Python package `llmgw`.
//!
//! This crate binds; it decides nothing. What a user imports is the Python package beside it, whose stubs
//! (`python/llmgw/_llmgw.pyi`) have a section for each module here.
//!
//! | module | holds |
//! |---|---|
//! | `sched` | `plan`: where models go, and why not |
//! | `whatif` | `what_if`: what changes would do |
//! | `control` | `Client`: a control plane over its admin API |
//! | `settings` | `Settings`: what holds for the whole cluster |
//! | `guard` | `Guard`: what is looked for in prompts and answers |
//! | `orders` | `Orders`: what is ordered of a control plane |
//! | `cluster` | nodes, models, replicas, usage, as frozen classes |
//! | `reasons` | why something does not fit, as frozen classes |
//! | `view` | what those classes have in common |
//! | `convert` | Python data to checked Rust data, and back |
//! | `runtime` | the async runtime: owned here, ended before the interpreter |
//! | `error` | which exception an error becomes |

mod cluster;
mod control;
mod convert;
mod error;
mod guard;
mod orders;
mod reasons;
mod runtime;
mod sched;
mod settings;
mod view;
mod whatif;

use pyo3::prelude::*;

/// The compiled half of the Python package `llmgw`; import that.
#[pymodule(gil_used = false)]
mod _llmgw {
    #[pymodule_export]
    use super::{
        cluster::{
            FabricPort, FetchProgress, Frozen, Model, Node, NodeWarning, Os, Profile, Provision,
            Replica, SilentNode, Summary, UnhealthyGpu, Usage,
        },
        control::Client,
        guard::Guard,
        orders::Orders,
        reasons::{CheckCount, Explanation, Fit, Reason, Rejection, Remedy, Report},
        runtime::shutdown,
        sched::{Placement, Plan, Stop, plan, plan_async},
        settings::Settings,
        whatif::{Ending, Move, Outcome, Start, what_if, what_if_async},
    };
}
