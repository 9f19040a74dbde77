//! Embeds the agent's eyes: what is this machine?
//!
//! `cargo run -p llmgw-examples --example facts`

use llmgw_agent::facts::{Scene, look, probes};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scene = Scene::here(".");
    let facts = look(&probes(&scene.root), &scene);
    say(&serde_json::to_string_pretty(&facts)?);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn say(text: &str) {
    println!("{text}");
}
