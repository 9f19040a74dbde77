//! Wire types: serde only, no behaviour.

pub mod admin;
pub mod agent;
pub mod anthropic;
pub mod decision;
pub mod event;
pub mod frozen;
pub mod guard;
pub mod log;
pub mod openai;
pub mod orders;
pub mod settings;
pub mod tenancy;
pub mod usage;
pub mod whatif;
