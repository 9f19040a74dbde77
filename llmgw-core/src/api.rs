//! Wire types: serde only, no behaviour.

pub mod admin;
pub mod agent;
pub mod decision;
pub mod openai;
pub mod whatif;
