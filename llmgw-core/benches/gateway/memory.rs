//! Memory: of streams that are open and say nothing, and over a long load.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    call::Mode,
    load::{self, Cell},
    proxies::Proxy,
};

/// What open streams cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) proxy: &'static str,
    pub(crate) streams: usize,
    /// Before the first stream.
    pub(crate) idle_kib: u64,
    /// While all are open.
    pub(crate) open_kib: u64,
}

// === impl Held ===

impl Held {
    pub(crate) fn above_idle_mib(&self) -> f64 {
        self.open_kib.saturating_sub(self.idle_kib) as f64 / 1024.0
    }
}

/// Opens so many streams through each proxy, one proxy after another.
pub(crate) async fn hold(proxies: &[Proxy], streams: usize) -> anyhow::Result<Vec<Held>> {
    println!("\n{streams} open streams, each behind its first event");
    println!(
        "  {:<14} {:>9} {:>9} {:>12} {:>12}",
        "", "idle MiB", "open MiB", "above, MiB", "KiB a stream"
    );
    let mut all = Vec::new();
    for proxy in proxies {
        let clients = match load::hold(proxy.address, streams).await {
            Ok(clients) => clients,
            Err(error) => {
                println!("  {:<14} left out: {error}", proxy.name);
                continue;
            }
        };
        sleep(Duration::from_millis(300)).await;
        let held = Held {
            proxy: proxy.name,
            streams,
            idle_kib: proxy.idle_kib,
            open_kib: proxy.group.resident()?,
        };
        drop(clients);
        println!(
            "  {:<14} {:>9.1} {:>9.1} {:>12.1} {:>12.1}",
            held.proxy,
            held.idle_kib as f64 / 1024.0,
            held.open_kib as f64 / 1024.0,
            held.above_idle_mib(),
            held.above_idle_mib() * 1024.0 / streams as f64
        );
        all.push(held);
    }
    Ok(all)
}

/// Loads a proxy with streams and whole answers in turn for so long, and shows what it has in memory.
pub(crate) async fn soak(proxy: &Proxy, span: Duration) -> anyhow::Result<()> {
    println!(
        "\n{} under load for {} s: memory in MiB",
        proxy.name,
        span.as_secs()
    );
    let step = (span / 12).clamp(Duration::from_secs(2), Duration::from_secs(300));
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < span {
        let mut failed = 0;
        for mode in [Mode::Unary, Mode::Sse] {
            let cell = Cell {
                mode,
                connections: 32,
            };
            let samples = load::run(cell, proxy.address, &proxy.group, step / 2).await?;
            calls += samples.whole.len();
            failed += samples.failed;
        }
        let seconds = start.elapsed().as_secs();
        let mib = proxy.group.resident()? as f64 / 1024.0;
        println!("  {seconds:>6} s {calls:>10} calls {failed:>4} failed {mib:>8.1} MiB");
    }
    Ok(())
}
