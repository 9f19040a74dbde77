//! The gateway over real sockets, in front of scripted engines: one file per behaviour.
//!
//! One binary for all of them, because each would link the same HTTP stack again.

#![cfg(all(feature = "gateway", feature = "testing"))]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in tests, what does not hold should stop the test"
)]

#[path = "gateway/accounts.rs"]
mod accounts;
#[path = "gateway/balance.rs"]
mod balance;
#[path = "gateway/budgets.rs"]
mod budgets;
#[path = "gateway/cancellation.rs"]
mod cancellation;
#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/dialects.rs"]
mod dialects;
#[path = "gateway/drain.rs"]
mod drain;
#[path = "gateway/fallbacks.rs"]
mod fallbacks;
#[path = "gateway/guard.rs"]
mod guard;
#[path = "gateway/judges.rs"]
mod judges;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/models.rs"]
mod models;
#[path = "gateway/ollama.rs"]
mod ollama;
#[path = "gateway/overhead.rs"]
mod overhead;
#[path = "gateway/progress.rs"]
mod progress;
#[path = "gateway/rates.rs"]
mod rates;
#[path = "gateway/refusals.rs"]
mod refusals;
#[path = "gateway/retries.rs"]
mod retries;
#[path = "gateway/rig.rs"]
mod rig;
#[path = "gateway/smuggling.rs"]
mod smuggling;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/tenancy.rs"]
mod tenancy;
#[path = "gateway/unary.rs"]
mod unary;
#[path = "gateway/waiting.rs"]
mod waiting;
