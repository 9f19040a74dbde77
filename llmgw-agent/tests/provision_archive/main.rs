//! Engines from release archives, served as GitHub serves them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

mod archives;
mod broken;
mod choice;
mod github;
mod killed;
mod lies;
mod real;
mod site;
