//! `llmgw up` as a user runs it: the real binary, a real engine, a real model.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and times what a user would time"
)]

mod chosen;
mod demand;
mod guard;
mod harness;
mod inputs;
mod kill;
mod logs;
mod measured;
mod serve;
mod settings;
mod stop;
mod watched;
