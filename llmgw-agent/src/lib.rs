//! What a node does: it says what it is, gets engines and weights, and runs replicas as it is asked to.
//!
//! An [`agent::Agent`] holds one data directory and speaks with a control plane over any stream of bytes. It is
//! told the whole of what should be, converges on it, and reports the whole of what is; it decides nothing
//! about where models go. It knows `llmgw-core` for words and `llmgw-bundle` for archives and digests, and
//! never `llmgw-sched`.
//!
//! | module | holds |
//! |---|---|
//! | [`facts`] | what the machine is: processor, memory, disk, GPUs, networks; trait [`facts::Probe`] |
//! | [`engine`] | how each inference server is started and asked; trait [`engine::Engine`] |
//! | [`provision`] | engines, installed and checked; [`python`] and [`command`] are its tools |
//! | [`weights`] | weights, fetched and checked; trait [`weights::WeightSource`] |
//! | [`process`] | process trees, their ledger and their logs; trait [`process::ProcessRuntime`] |
//! | [`supervise`] | the life of each replica, from order to end; trait [`supervise::Parts`] |
//! | [`session`] | the conversation with a control plane, and the fence against old orders |
//! | [`mod@agent`] | all of it put together; trait [`agent::Connector`] |
//! | `testing` | with the feature of that name: processes in memory, faults, and a conformance suite |
//!
//! # What survives what
//! Everything that the agent must not forget stands in its data directory, in files that are whole at every
//! moment: the node's id, the rank of the last order that was followed, and one ledger entry per replica,
//! written before its process is started. After a `kill -9` the next agent takes over the engines whose
//! processes it can prove to be those of the ledger, and ends all others that carry its marks. So an engine is
//! neither lost nor doubled, and a number that the kernel has given to another process is never signalled.
//!
//! # An agent in another program
//! ```no_run
//! use std::sync::Arc;
//!
//! use llmgw_agent::agent::{Agent, AgentConfig, TcpConnector};
//! use llmgw_core::clock::SystemClock;
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = AgentConfig {
//!     environment: llmgw_agent::process::inherited(std::env::vars_os()),
//!     ..AgentConfig::new("/var/lib/llmgw")
//! };
//! let agent = Agent::build(config, Arc::new(SystemClock::new()))?;
//! let server: TcpConnector = "127.0.0.1:8443".parse()?;
//! agent.run(server, CancellationToken::new()).await?;
//! # Ok(())
//! # }
//! ```

mod durable;
mod flight;

pub mod agent;
pub mod command;
pub mod engine;
pub mod facts;
pub mod process;
pub mod provision;
pub mod python;
pub mod session;
pub mod supervise;
#[cfg(feature = "testing")]
pub mod testing;
pub mod weights;
