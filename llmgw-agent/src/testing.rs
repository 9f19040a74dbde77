//! Processes in memory, faults, and a conformance suite for [`ProcessRuntime`](crate::process::ProcessRuntime).

mod faulty;
pub mod process;
mod scripted;

pub use self::{
    faulty::{Call, Fault, Faults, Faulty},
    scripted::{Script, ScriptedRuntime, World},
};
