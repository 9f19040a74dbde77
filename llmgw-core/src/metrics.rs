//! The numbers that Prometheus reads: their names, and who sets them. No other module names the metrics crate.
//!
//! Two kinds. What happens (calls, tokens, times) is counted while it happens, by [`GatewayMeters`]. What is (replicas,
//! nodes, installations) is read from the control roles at each scrape, by [`cluster`], so that nothing of an object
//! that is gone is left behind.
//!
//! Labels are bounded: a model that clients made up never becomes one, nor does a status that no answer has.
//!
//! | name | labels | what |
//! |---|---|---|
//! | `llmgw_requests_total` | model, code | calls that were answered, by HTTP status (499: the client left) |
//! | `llmgw_request_duration_seconds` | model | from the call to the end of its answer |
//! | `llmgw_time_to_first_token_seconds` | model | from the call to the first content |
//! | `llmgw_inter_token_seconds` | model | the mean time between the tokens of a call |
//! | `llmgw_gateway_overhead_call_seconds` | | a call's whole time but the waiting for the engine: what the gateway takes, waiting in its queue included |
//! | `llmgw_gateway_overhead_seconds` | stage | the same by stage: `receive` (reading the call, its key, its model; a client that is slow to send), `queue` (until a model on demand is there), `pick` (of a replica), `send` (connecting and sending), `respond` (editing the answer and handing it on; a client that is slow to read) |
//! | `llmgw_tokens_total` | model, kind | tokens, as the engines count them: `prompt`, `cached` (of the prompt), `completion` |
//! | `llmgw_requests_in_flight` | | calls that are being answered, or wait |
//! | `llmgw_requests_received_total` | | calls since the start, those refused before a model was found included |
//! | `llmgw_usage_journal_records` | | usage that waits to be written |
//! | `llmgw_usage_journal_lost_total` | | usage that was lost: a gap in the accounts |
//! | `llmgw_model_desired_replicas` | model | how many should run now |
//! | `llmgw_model_ready_replicas` | model | how many serve; 0 for a model of which none does |
//! | `llmgw_model_consecutive_failures` | model | starts that failed in a row |
//! | `llmgw_model_parked` | model | 1 when it is not tried again by itself |
//! | `llmgw_model_unplaceable` | model, reason | 1 under the check that most nodes fail |
//! | `llmgw_replicas` | model, state | replicas by state |
//! | `llmgw_replica_age_seconds` | model, replica | since it was placed or adopted |
//! | `llmgw_replica_in_flight` | model, replica | calls that it is answering |
//! | `llmgw_weights_fetched_bytes` `llmgw_weights_total_bytes` | model, replica | how far a fetch is |
//! | `llmgw_weights_stalled` | model, replica | 1 while no byte comes |
//! | `llmgw_node_state` | node, state | 1 for the state that a node has |
//! | `llmgw_node_last_seen_seconds` | node | since it was heard |
//! | `llmgw_node_memory_allocatable_bytes` `llmgw_node_memory_reserved_bytes` | node | main memory for engines |
//! | `llmgw_node_disk_free_bytes` | node | on the disk of the weights; absent when it is not known |
//! | `llmgw_node_gpus` `llmgw_node_gpus_free` `llmgw_node_gpus_unhealthy` | node | absent when they are not known |
//! | `llmgw_node_warnings` | node, code | warnings of its agent |
//! | `llmgw_engine_installs` | node, engine, state | 1 for the state that an engine has on a node |
//! | `llmgw_budget_units` `llmgw_budget_remaining_units` | level, period | a level's budget, and what is neither spent nor reserved of it; absent while the store can't be asked, and of no more than 1,000 budgets |
//! | `llmgw_leader` | | 1 while this control plane leads |
//! | `llmgw_lease_epoch` | | the turn of leading |
//! | `llmgw_nodes` `llmgw_nodes_ready` | | nodes that are known, and that are used: heard, neither cordoned nor draining |
//! | `llmgw_attention` | | things that an operator should look at |
//! | `llmgw_uptime_seconds` | | since this control plane started |

mod calls;
pub mod cluster;
mod overhead;

use prometheus::{Encoder, Opts, Registry, TextEncoder, core::Collector};

pub use self::{
    calls::{GatewayGauges, GatewayMeters},
    overhead::{OverheadTimes, Stage},
};

/// The media type of what a scrape is answered with.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Adds a family to a registry.
#[expect(
    clippy::expect_used,
    reason = "names are constants of this module, each is registered once, and a test makes all"
)]
fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let collector = made.expect("a right name");
    registry
        .register(Box::new(collector.clone()))
        .expect("a name of its own");
    collector
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(name, help)
}

/// The text that Prometheus reads.
fn text(registry: &Registry) -> String {
    let mut text = Vec::new();
    // It writes into memory, and families that were registered have a right form.
    if let Err(error) = TextEncoder::new().encode(&registry.gather(), &mut text) {
        return format!("# {error}\n");
    }
    String::from_utf8(text).unwrap_or_default()
}
