//! What is shown: a table for each load, ratios, and what is promised beside what was measured.

use crate::{
    load::Cell,
    memory::Held,
    rounds::{DIRECT, Row},
};

/// Prints the rows of one load.
pub(crate) fn cell(cell: Cell, rows: &[Row]) {
    let Cell { mode, connections } = cell;
    println!("\n{mode}, {connections} connections");
    println!(
        "  {:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8}",
        "",
        "calls/s",
        "p50 us",
        "p99 us",
        "+p50 us",
        "+p99 us",
        "+first",
        "gap p50",
        "gap p99",
        "cpu us",
        "MiB"
    );
    for row in rows {
        let optional = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
        };
        println!(
            "  {:<14} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9} {:>8} {:>8} {:>9.1} {:>8.1}",
            row.proxy,
            row.rps,
            row.p50_us,
            row.p99_us,
            row.added_p50_us,
            row.added_p99_us,
            optional(row.added_first_event_p50_us),
            optional(row.gap_p50_us),
            optional(row.gap_p99_us),
            row.cpu_us_per_request,
            row.rss_kib as f64 / 1024.0
        );
        if row.failed > 0 {
            let failure = row.failure.as_deref().unwrap_or_default();
            println!("    {} calls failed, one so: {failure}", row.failed);
        }
    }
}

/// Prints how many times what ours uses the others use.
pub(crate) fn ratios(rows: &[Row]) {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.proxy == OURS).collect();
    if ours.is_empty() {
        return;
    }
    println!("\ncpu per request or stream, as a multiple of llmgw's");
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if row.proxy != DIRECT && row.proxy != OURS && !names.contains(&row.proxy) {
            names.push(row.proxy);
        }
    }
    print!("  {:<24}", "");
    for name in &names {
        print!(" {name:>14}");
    }
    println!();
    for ours in ours {
        print!("  {:<11} {:>3} connect.", ours.mode, ours.connections);
        for name in &names {
            let same = |row: &&Row| {
                row.proxy == *name && row.mode == ours.mode && row.connections == ours.connections
            };
            match rows.iter().find(same) {
                Some(row) => print!(
                    " {:>14.2}",
                    row.cpu_us_per_request / ours.cpu_us_per_request
                ),
                None => print!(" {:>14}", "-"),
            }
        }
        println!();
    }
}

/// Prints what is promised, and whether it was kept in this run.
pub(crate) fn goals(rows: &[Row], held: &[Held]) {
    println!("\ngoals");
    let find = |proxy: &str, mode: &str, connections: usize| {
        rows.iter()
            .find(|row| row.proxy == proxy && row.mode == mode && row.connections == connections)
    };
    for (mode, connections) in [("unary", 32), ("sse", 32), ("sse-paced", 32)] {
        let Some(ours) = find(OURS, mode, connections) else {
            continue;
        };
        if let Some(nginx) = find("nginx", mode, connections) {
            let ratio = ours.cpu_us_per_request / nginx.cpu_us_per_request;
            let what = format!("{mode}: cpu at most 1.5 x nginx");
            goal(&what, ratio <= 1.5, &format!("{ratio:.2} x"));
        }
        for peer in ["sglang-router", "vllm-router"] {
            if let Some(peer) = find(peer, mode, connections) {
                let ratio = peer.cpu_us_per_request / ours.cpu_us_per_request;
                let what = format!("{mode}: cpu at least 4 x less than {}", peer.proxy);
                goal(&what, ratio >= 4.0, &format!("{ratio:.2} x"));
            }
        }
    }
    if let Some(ours) = find(OURS, "unary", 1) {
        let added = ours.added_p50_us;
        goal(
            "unary: added p50 at one connection at most 0.10 ms",
            added <= 100.0,
            &format!("{:.3} ms", added / 1_000.0),
        );
    }
    if let Some(ours) = held.iter().find(|held| held.proxy == OURS) {
        let mib = ours.above_idle_mib();
        let what = format!("{} open streams under 64 MiB above idle", ours.streams);
        goal(&what, mib < 64.0, &format!("{mib:.1} MiB"));
    }
}

fn goal(what: &str, kept: bool, measured: &str) {
    let verdict = if kept { "kept" } else { "MISSED" };
    println!("  {verdict:<7} {what}: {measured}");
}

const OURS: &str = "llmgw";
