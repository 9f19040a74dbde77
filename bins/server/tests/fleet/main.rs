//! `llmgw-server` and `llmgw-agent` as separate processes, with the real engine, under orders and under load.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, waits as a user would wait, and says what it saw"
)]

mod changes;
mod crowd;
mod fleet;
mod killed;
mod no_room;
mod parked;
mod process;
mod two_processes;
