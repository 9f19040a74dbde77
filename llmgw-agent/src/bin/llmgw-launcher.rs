//! A launcher and nothing else: see `llmgw_agent::process::launcher`.

use std::process::ExitCode;

fn main() -> ExitCode {
    llmgw_agent::process::launcher::run(std::env::args_os().skip(1))
}
