//! `llmgw-agent facts`: what the agent finds on this machine, or on one that was recorded.

use std::io::Write as _;

use llmgw_agent::{
    facts::{Scene, capture, look, probes},
    process::cgroup::Cgroups,
};
use llmgw_core::{
    cluster::node::{Fabric, Gpu, NodeFacts},
    terminal::{in_lines, one_line},
};

use crate::{
    failure::Failure,
    flags::{FactsArgs, Output},
};

/// Looks at a machine, and prints what was found.
pub(crate) fn show(args: &FactsArgs) -> Result<(), Failure> {
    let scene = match &args.root {
        Some(tree) => capture::open(tree).map_err(|error| Failure::input(&error))?,
        None => Scene::here(&args.data_dir),
    };
    let mut facts = match &args.record {
        Some(dir) => capture::record(scene, dir).map_err(|error| Failure::of(&error))?,
        None => look(&probes(&scene.root), &scene),
    };
    // What an agent that is started from here, by this user, would have: a recorded machine does not tell it.
    if args.root.is_none() && args.record.is_none() {
        let unlimited = Cgroups::outlook().err().map(|why| why.warning());
        facts.warnings.extend(unlimited);
    }
    let text = match args.output {
        Output::Text => text(&facts),
        Output::Json => serde_json::to_string_pretty(&facts)
            .map_err(|error| Failure::plain(format!("writing JSON: {error}")))?,
    };
    // Who reads no further has seen enough.
    drop(writeln!(std::io::stdout().lock(), "{text}"));
    if let Some(dir) = &args.record {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let line = format!(
            "recorded in {dir}: `llmgw-agent facts --root {dir}` shows it",
            dir = dir.display()
        );
        drop(writeln!(std::io::stderr().lock(), "{}", one_line(&line)));
    }
    Ok(())
}

fn text(facts: &NodeFacts) -> String {
    let os = facts.os.as_ref().map_or_else(unknown, |os| {
        format!("{} {}", os.id, os.version.as_deref().unwrap_or("(rolling)"))
    });
    let cpu = facts.cpu.as_ref().map_or_else(unknown, |cpu| {
        let physical = cpu
            .physical
            .map(|cores| format!(" (the machine has {cores} physical)"))
            .unwrap_or_default();
        let cores = if cpu.cores == 1 { "core" } else { "cores" };
        let features = if cpu.features.is_empty() {
            "no vector extensions that engines use".to_owned()
        } else {
            cpu.features.join(" ")
        };
        format!("{} {cores}{physical}, {features}", cpu.cores)
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
    let mut lines = vec![
        format!("hostname  {}", facts.hostname),
        format!("system    {os}, {}", facts.arch),
        format!("glibc     {}", facts.glibc.clone().unwrap_or_else(unknown)),
        format!("cpu       {cpu}"),
        format!("memory    {memory}"),
        format!("disk      {disk}"),
        format!("gpus      {}", counted(facts.gpus.as_deref())),
    ];
    for gpu in facts.gpus.iter().flatten() {
        lines.extend(gpu_lines(gpu));
    }
    lines.push(format!("fabrics   {}", counted(facts.fabrics.as_deref())));
    lines.extend(facts.fabrics.iter().flatten().map(fabric_line));
    if let Some(address) = &facts.management_address {
        lines.push(format!("address   {address}"));
    }
    if let Some(clock) = facts.clock {
        let side = if clock.ahead_ms < 0 {
            "behind"
        } else {
            "ahead of"
        };
        lines.push(format!(
            "clock     {} ms {side} the control plane's, give or take {}",
            clock.ahead_ms.unsigned_abs(),
            clock.within_ms
        ));
    }
    lines.extend(
        facts
            .warnings
            .iter()
            .map(|warning| format!("warning   {}", warning.text)),
    );
    in_lines(&lines)
}

fn gpu_lines(gpu: &Gpu) -> Vec<String> {
    let class = gpu.class.as_deref().unwrap_or("of an unknown class");
    let memory = match (gpu.memory_total, gpu.memory_others) {
        (Some(total), Some(others)) => {
            format!("memory {total}, {others} used by others and the driver")
        }
        (Some(total), None) => format!("memory {total}, unknown how much others use"),
        (None, _) => "memory unknown".to_owned(),
    };
    let mut said = vec![format!("{} {class}", gpu.vendor), memory];
    said.extend(gpu.driver.as_ref().map(|driver| format!("driver {driver}")));
    said.extend(gpu.cuda.map(|cuda| format!("CUDA {cuda}")));
    said.extend(
        gpu.compute
            .map(|capability| format!("compute capability {capability}")),
    );
    said.extend(gpu.bus.clone());
    let mut lines = vec![format!("  {:<8}{}", gpu.index, said.join(", "))];
    lines.extend(gpu.uuid.as_ref().map(|uuid| format!("          {uuid}")));
    if let Some(links) = &gpu.nvlink {
        let peers: Vec<String> = links.peers.iter().map(ToString::to_string).collect();
        let way = if links.switched {
            " through a switch"
        } else {
            ""
        };
        let peers = if peers.is_empty() {
            String::new()
        } else {
            format!("{way} to {}", peers.join(" "))
        };
        lines.push(format!("          {} NVLink links{peers}", links.active));
    }
    for part in gpu.mig.iter().flatten() {
        let memory = part
            .memory
            .map_or_else(unknown, |memory| memory.to_string());
        lines.push(format!("          part {}, memory {memory}", part.uuid));
    }
    let problems = gpu.problems.iter();
    lines.extend(problems.map(|problem| format!("          problem: {}", problem.text)));
    lines
}

fn fabric_line(fabric: &Fabric) -> String {
    let rate = fabric
        .gbps
        .map(|gbps| format!(", {gbps} Gbit/s"))
        .unwrap_or_default();
    let state = if fabric.up { "up" } else { "down" };
    let network = fabric.name.as_ref().map_or_else(
        || "network unknown".to_owned(),
        |name| format!("network {name}"),
    );
    format!(
        "  {}  {}{rate}, {state}, {network}",
        fabric.port, fabric.kind
    )
}

fn counted<T>(list: Option<&[T]>) -> String {
    match list.map(<[T]>::len) {
        None => unknown(),
        Some(0) => "none".to_owned(),
        Some(count) => count.to_string(),
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}
