//! Conformance suites.

pub mod control;
#[cfg(feature = "gateway")]
pub mod engine;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod store;
