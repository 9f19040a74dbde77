//! A client's body, whatever it is: see `llmgw_core::gateway::hostile`.
//!
//! `cargo fuzz run body` with a nightly toolchain; a stable one builds it as `llmgw-bundle/fuzz` says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmgw_core::gateway::hostile;

fuzz_target!(|bytes: &[u8]| hostile::body(bytes));
