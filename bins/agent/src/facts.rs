//! `llmgw-agent facts`: what the agent finds on this machine.

use std::io::Write as _;

use llmgw_agent::facts::{Scene, look, probes};
use llmgw_core::cluster::node::NodeFacts;

use crate::{
    failure::Failure,
    flags::{FactsArgs, Output},
};

/// Looks at this machine, and prints what was found.
pub(crate) fn show(args: &FactsArgs) -> Result<(), Failure> {
    let facts = look(&probes(), &Scene::here(&args.data_dir));
    let text = match args.output {
        Output::Text => text(&facts),
        Output::Json => serde_json::to_string_pretty(&facts)
            .map_err(|error| Failure::plain(format!("writing JSON: {error}")))?,
    };
    // Who reads no further has seen enough.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
    Ok(())
}

fn text(facts: &NodeFacts) -> String {
    let unknown = || "unknown".to_owned();
    let os = facts.os.as_ref().map_or_else(unknown, |os| {
        format!("{} {}", os.id, os.version.as_deref().unwrap_or("(rolling)"))
    });
    let cpu = facts.cpu.as_ref().map_or_else(unknown, |cpu| {
        format!("{} cores, {}", cpu.cores, cpu.features.join(" "))
    });
    let memory = facts.memory.map_or_else(unknown, |memory| {
        format!(
            "{}, of which engines may use {}",
            memory.total, memory.allocatable
        )
    });
    let disk = facts.disk.as_ref().map_or_else(unknown, |disk| {
        let shared = if disk.shared {
            ", shared with other machines"
        } else {
            ""
        };
        format!(
            "{} free of {} on {}{shared}",
            disk.free, disk.total, disk.mount
        )
    });
    let gpus = facts
        .gpus
        .as_ref()
        .map_or_else(unknown, |gpus| match gpus.len() {
            0 => "none".to_owned(),
            _ => gpus
                .iter()
                .map(|gpu| {
                    let memory = gpu
                        .memory_total
                        .map_or_else(unknown, |bytes| bytes.to_string());
                    let class = gpu.class.as_deref().unwrap_or("of an unknown class");
                    format!("{} {class}, memory {memory}", gpu.vendor)
                })
                .collect::<Vec<_>>()
                .join("; "),
        });
    let mut lines = vec![
        format!("hostname  {}", facts.hostname),
        format!("system    {os}, {}", facts.arch),
        format!("glibc     {}", facts.glibc.clone().unwrap_or_else(unknown)),
        format!("cpu       {cpu}"),
        format!("memory    {memory}"),
        format!("disk      {disk}"),
        format!("gpus      {gpus}"),
    ];
    lines.extend(
        facts
            .warnings
            .iter()
            .map(|warning| format!("warning   {}", warning.text)),
    );
    lines.join("\n")
}
