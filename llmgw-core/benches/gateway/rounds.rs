//! Rounds: each loads everyone in turn, so that what the machine does meanwhile hits all alike.
//!
//! What a proxy adds is taken within a round, from what calls to the upstream itself take in the same round, and the
//! median of all rounds is what is told.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::Serialize;

use crate::{
    call::Mode,
    load::{self, Cell, Samples},
    memory::Held,
    process::Group,
    proxies::Proxy,
};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Of one load in one round.
    pub(crate) span: Duration,
}

/// What a proxy did under one load; also a row of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// `direct`: the upstream itself.
    pub(crate) proxy: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) connections: usize,
    /// Calls answered in a second.
    pub(crate) rps: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// More than without a proxy.
    pub(crate) added_p50_us: f64,
    pub(crate) added_p99_us: f64,
    /// From the call to the first event, and between events that came apart; absent for answers in one piece.
    pub(crate) first_event_p50_us: Option<f64>,
    pub(crate) added_first_event_p50_us: Option<f64>,
    pub(crate) gap_p50_us: Option<f64>,
    pub(crate) gap_p99_us: Option<f64>,
    /// User and system time of the proxy's processes.
    pub(crate) cpu_us_per_request: f64,
    /// What the proxy's processes had in main memory at the end.
    pub(crate) rss_kib: u64,
    /// The same before the first load, and with [many streams](crate::memory) open.
    pub(crate) idle_rss_kib: u64,
    pub(crate) open_streams_rss_kib: Option<u64>,
    /// Calls that were not answered as they should be.
    pub(crate) failed: u64,
    #[serde(skip)]
    pub(crate) failure: Option<String>,
}

/// One round of one proxy.
#[derive(Debug)]
struct Round {
    rps: f64,
    p50: f64,
    p99: f64,
    first_event: Option<f64>,
    gap_p50: Option<f64>,
    gap_p99: Option<f64>,
    cpu: f64,
    failed: u64,
    failure: Option<String>,
}

/// Loads the upstream and all proxies, and says what came of it.
pub(crate) async fn run(
    cell: Cell,
    effort: Effort,
    upstream: SocketAddr,
    proxies: &[&Proxy],
    held: &[Held],
) -> anyhow::Result<Vec<Row>> {
    let nobody = Group::none();
    let direct = [(DIRECT, upstream, &nobody)];
    let others = proxies
        .iter()
        .map(|proxy| (proxy.name, proxy.address, &proxy.group));
    let all: Vec<_> = direct.into_iter().chain(others).collect();
    let mut seen: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    for round in 0..effort.rounds {
        // Not always the same one after the same other.
        for turn in 0..all.len() {
            let Some((name, address, group)) = all.get((turn + round) % all.len()) else {
                continue;
            };
            let samples = load::run(cell, *address, group, effort.span).await?;
            seen.entry(name).or_default().push(Round::of(samples));
        }
    }
    let without = seen.remove(DIRECT).unwrap_or_default();
    let mut rows = vec![row(cell, DIRECT, &without, &without, 0)];
    for proxy in proxies {
        let rounds = seen.remove(proxy.name).unwrap_or_default();
        let resident = proxy.group.resident()?;
        let held = held.iter().find(|held| held.proxy == proxy.name);
        rows.push(Row {
            idle_rss_kib: proxy.idle_kib,
            open_streams_rss_kib: held.map(|held| held.open_kib),
            ..row(cell, proxy.name, &rounds, &without, resident)
        });
    }
    Ok(rows)
}

fn row(cell: Cell, proxy: &'static str, rounds: &[Round], without: &[Round], rss_kib: u64) -> Row {
    let of = |field: fn(&Round) -> f64| median(rounds.iter().map(field));
    let told = |field: fn(&Round) -> Option<f64>| {
        let told: Vec<f64> = rounds.iter().filter_map(field).collect();
        (!told.is_empty()).then(|| median(told.into_iter()))
    };
    let added = |field: fn(&Round) -> f64| {
        let pairs = rounds.iter().zip(without);
        median(pairs.map(|(with, without)| field(with) - field(without)))
    };
    let pairs = rounds.iter().zip(without);
    let first: Vec<f64> = pairs
        .filter_map(|(with, without)| Some(with.first_event? - without.first_event?))
        .collect();
    Row {
        proxy,
        mode: cell.mode.as_str(),
        connections: cell.connections,
        rps: of(|round| round.rps),
        p50_us: of(|round| round.p50),
        p99_us: of(|round| round.p99),
        added_p50_us: added(|round| round.p50),
        added_p99_us: added(|round| round.p99),
        first_event_p50_us: told(|round| round.first_event),
        added_first_event_p50_us: (!first.is_empty()).then(|| median(first.into_iter())),
        gap_p50_us: told(|round| round.gap_p50),
        gap_p99_us: told(|round| round.gap_p99),
        cpu_us_per_request: of(|round| round.cpu),
        rss_kib,
        idle_rss_kib: 0,
        open_streams_rss_kib: None,
        failed: rounds.iter().map(|round| round.failed).sum(),
        failure: rounds.iter().find_map(|round| round.failure.clone()),
    }
}

// === impl Row ===

impl Row {
    /// Whether the proxy took so long for this that, with more connections, each call would take seconds.
    pub(crate) fn is_too_slow_for(&self, cell: Cell) -> bool {
        self.mode == cell.mode.as_str()
            && self.connections < cell.connections
            && self.added_p50_us > 50_000.0
    }
}

// === impl Round ===

impl Round {
    fn of(mut samples: Samples) -> Self {
        let calls = samples.whole.len() as f64;
        let (p50, p99) = percentiles(&mut samples.whole).unwrap_or((f64::NAN, f64::NAN));
        let gaps = percentiles(&mut samples.gaps);
        Self {
            rps: calls / samples.took.as_secs_f64(),
            p50,
            p99,
            first_event: percentiles(&mut samples.first_event).map(|(p50, _)| p50),
            gap_p50: gaps.map(|(p50, _)| p50),
            gap_p99: gaps.map(|(_, p99)| p99),
            cpu: micros(samples.used.time()) / calls,
            failed: samples.failed,
            failure: samples.failure,
        }
    }
}

/// The median and the 99th percentile of all samples, in microseconds.
fn percentiles(samples: &mut [Duration]) -> Option<(f64, f64)> {
    samples.sort_unstable();
    let at = |percent: usize| {
        let index = samples.len().saturating_sub(1) * percent / 100;
        samples.get(index).copied().map(micros)
    };
    Some((at(50)?, at(99)?))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = values.get(middle.saturating_sub(1)).copied();
    (lower.unwrap_or(f64::NAN) + upper) / 2.0
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The loads, in order.
pub(crate) fn cells(modes: &[Mode], connections: &[usize]) -> Vec<Cell> {
    let of_mode = |mode: &Mode| {
        let mode = *mode;
        connections.iter().map(move |connections| Cell {
            mode,
            connections: *connections,
        })
    };
    modes.iter().flat_map(of_mode).collect()
}

/// What stands for calls to the upstream itself.
pub(crate) const DIRECT: &str = "direct";
