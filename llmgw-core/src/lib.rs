//! What an llmgw cluster is.
//!
//! This crate holds the words that all others speak: ids, units, reasons, the plain data of a cluster, wire
//! types, and, behind features, the store, the downloader and the client-facing gateway. It knows none of its
//! siblings: who places models is `llmgw-sched`, who runs them is `llmgw-agent`.
//!
//! ```text
//!            llmgw-core
//!            ^        ^         ^         ^
//!   llmgw-sched   llmgw-bundle  |      llmgw-py
//!            ^        ^   ^     |
//!            |        |   llmgw-agent
//!            bins/server  bins/agent  bins/llmgw
//! ```
//!
//! | module | holds | feature |
//! |---|---|---|
//! | [`id`] [`units`] [`clock`] [`error`] [`fingerprint`] | typed ids, quantities, time, what errors answer | - |
//! | [`reason`] [`terminal`] | the one vocabulary of why; text of others made safe to show | - |
//! | [`gguf`] [`safetensors`] [`hf_config`] [`header`] | what files of weights say of themselves, bounded | - |
//! | [`cluster`] | plain data: node, engine, weights, catalog, replica, account | - |
//! | [`api`] | wire types: admin, agent frames, OpenAI | - |
//! | [`route`] | which replica takes a request, as a pure function | - |
//! | `guard` | what is looked for in prompts and answers, and where it stands in them | `guard` |
//! | `keys` | API keys: made, hashed, checked | `keys` |
//! | `control` | what an operator can ask and order, as role traits | `control` |
//! | `admin_client` | the same roles over HTTP | `client` |
//! | `store` | what must survive a restart; memory, SQLite, PostgreSQL | `store` `sqlite` `postgres` |
//! | `fetch` `releases` | one downloader; what engines' publishers have released | `fetch` |
//! | `metrics` | the numbers that Prometheus reads, and their names | `metrics` |
//! | `gateway` | the client-facing HTTP stack | `gateway` |
//! | `schema` | no names: JSON Schemas of the wire types | `schema` |
//! | `testing` | conformance suites and fixtures | `testing` |
//!
//! ```
//! use llmgw_core::units::Bytes;
//!
//! let need: Bytes = "24GiB".parse()?;
//! assert_eq!(need, Bytes::gib(24));
//! # Ok::<(), llmgw_core::units::ParseBytesError>(())
//! ```

pub mod api;
pub mod clock;
pub mod cluster;
pub mod error;
pub mod fingerprint;
pub mod gguf;
pub mod header;
pub mod hf_config;
pub mod id;
pub mod reason;
pub mod route;
pub mod safetensors;
#[cfg(feature = "schema")]
mod schema;
pub mod terminal;
pub mod units;

#[cfg(feature = "client")]
pub mod admin_client;
#[cfg(feature = "control")]
pub mod control;
#[cfg(feature = "fetch")]
pub mod fetch;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "guard")]
pub mod guard;
#[cfg(feature = "keys")]
pub mod keys;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "fetch")]
pub mod releases;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
