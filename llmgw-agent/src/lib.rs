//! What a node does.

mod durable;

pub mod engine;
pub mod facts;
pub mod process;
pub mod supervise;
