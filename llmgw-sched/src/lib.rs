//! Where models go and why not, and the loop that makes it so.
//!
//! With its default features (none) this crate is pure: no async runtime, no HTTP, no SQL, no clock, no random.
//! [`planner::plan`] is a function from a snapshot of the fleet and what is wanted to placements and reasons;
//! [`reconcile::step`] is a function from intent, facts and the time to actions. The feature `controller` adds
//! the async shell that feeds them.
//!
//! It is not a scheduler of arbitrary work: it knows models, replicas, engines and memory, and nothing else.
//!
//! | module | holds | feature |
//! |---|---|---|
//! | [`fit`] | how much memory a model needs, by device and part | - |
//! | [`fleet`] | the immutable snapshot that a decision is made from: GPUs, memory, cores, disks, labels, fabrics, what runs | - |
//! | [`planner`] | filter, score, place, move, make room; the policies that can be chosen | - |
//! | [`report`] | builds the reasons: summary, nearest miss, remedies found by trial | - |
//! | [`whatif`] | what changes would do, before anything is done | - |
//! | [`reconcile`] | the loop as a pure step | - |
//! | [`conductor`] | what the loop does besides deciding: events in, effects out | - |
//! | [`journal`] | the last decisions with their reasons | - |
//! | [`lease`] | who leads, without I/O | - |
//! | `sim` | a whole cluster in one thread under a virtual clock, with faults | `sim` |
//! | `controller` | the async shell: agent sessions, leadership, the control roles | `controller` |
//!
//! ```
//! use llmgw_sched::{fleet::Fleet, planner::{Wanted, plan}};
//!
//! let fleet: Fleet = serde_json::from_str(r#"{"nodes": [{
//!     "id": "node-0197c2a4f0e17b6c9a3d5e8f10213243", "hostname": "box",
//!     "memory_allocatable": "16GiB", "engines": {"llamacpp": {"state": "installed", "version": "1", "variant": "path"}}
//! }]}"#)?;
//! let wanted: Wanted = serde_json::from_str(r#"{"models": [{
//!     "name": "big", "source": "file:/models/big.gguf", "profiles": [{"memory": "400GB"}]
//! }]}"#)?;
//! let (plan, reports) = plan(&fleet, &wanted);
//! assert!(plan.placements.is_empty());
//! assert_eq!(reports[0].rejections.len(), 1);
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod conductor;
#[cfg(feature = "controller")]
pub mod controller;
pub mod fit;
pub mod fleet;
pub mod journal;
pub mod lease;
pub mod planner;
pub mod reconcile;
pub mod report;
#[cfg(feature = "sim")]
pub mod sim;
pub mod whatif;
