//! Conformance suites.

pub mod control;
