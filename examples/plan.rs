//! Embeds the planner: where would a model go, and why not elsewhere?
//!
//! `cargo run -p llmgw-examples --example plan`

use llmgw_core::reason::render;
use llmgw_sched::{
    fleet::Fleet,
    planner::{Wanted, plan},
};

fn main() -> Result<(), serde_json::Error> {
    let fleet: Fleet = serde_json::from_str(FLEET)?;
    let wanted: Wanted = serde_json::from_str(WANTED)?;
    let (plan, reports) = plan(&fleet, &wanted);
    for placement in &plan.placements {
        say(&format!(
            "{} runs on {} with {}, and holds {}",
            placement.model, placement.hostname, placement.profile, placement.memory
        ));
    }
    for report in reports.iter().filter(|report| report.fits.is_none()) {
        say(render::explanation(report).trim_end());
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn say(text: &str) {
    println!("{text}");
}

const FLEET: &str = r#"{"nodes": [
    {
        "id": "node-0197c2a4f0e17b6c9a3d5e8f10213243",
        "hostname": "box-1",
        "memory_allocatable": "24GiB",
        "engines": {"llamacpp": {"state": "installed", "version": "b10991", "variant": "path"}}
    },
    {
        "id": "node-0197c2a4f0e17b6c9a3d5e8f10213244",
        "hostname": "box-2",
        "memory_allocatable": "64GiB",
        "engines": {"llamacpp": {"state": "installing", "step": "downloading", "percent": 43}}
    }
]}"#;

const WANTED: &str = r#"{"models": [
    {"name": "small", "source": "file:/models/small.gguf", "profiles": [{"memory": "2GiB"}]},
    {"name": "large", "source": "file:/models/large.gguf", "profiles": [{"memory": "48GiB"}]}
]}"#;
