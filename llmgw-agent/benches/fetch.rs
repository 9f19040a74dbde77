//! What hashing costs a download: the time of a fetch with its sha256, over that of the same bytes written without.
//!
//! `cargo xtask bench fetch [--mib 2048] [--rounds 5] [--rate 1250]`. A server of its own sends the same bytes over the
//! loopback, as fast as it can or at a rate in MB/s such as that of a network; both sides write to the same directory.
//! What is asked for: less than 10 % more than a plain copy. Both are told: the time that it takes, in which hashing
//! hides behind what else is waited for while a processor is free, and the processor's own time, user and system, without
//! that of the server, which other work on the machine does not change.

use std::{
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use llmgw_core::{
    clock::{Clock as _, SystemClock},
    fetch::{FetchError, FetchRequest, FetchTimes, Fetcher, Watch},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// What hashing costs a download
#[derive(Debug, Parser)]
struct Args {
    /// How much is fetched
    #[arg(long, default_value_t = 1_024)]
    mib: usize,
    /// How often each way
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MB in a second that the server sends; as fast as it can when absent
    #[arg(long)]
    rate: Option<u64>,
    /// Where it is written
    #[arg(long)]
    directory: Option<PathBuf>,
    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let address = serve(args.mib, args.rate)?;
    let scratch = match &args.directory {
        Some(directory) => tempfile::tempdir_in(directory),
        None => tempfile::tempdir(),
    }?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let clock = SystemClock::new();
    let (mut plain, mut hashed) = (Vec::new(), Vec::new());
    let (mut plain_cpu, mut hashed_cpu) = (Duration::ZERO, Duration::ZERO);
    // By turns, so that what else the machine does falls on both.
    for round in 0..=args.rounds {
        let path = scratch.path().join("copy");
        let (began, used) = (clock.monotonic(), cpu()?);
        runtime.block_on(copy(address, &path))?;
        let (copied, copied_cpu) = (clock.monotonic() - began, cpu()?.saturating_sub(used));
        std::fs::remove_file(&path)?;
        let path = scratch.path().join("fetch");
        let (began, used) = (clock.monotonic(), cpu()?);
        runtime.block_on(fetch(address, &path))?;
        let (fetched, fetched_cpu) = (clock.monotonic() - began, cpu()?.saturating_sub(used));
        std::fs::remove_file(&path)?;
        // The first warms up what both use.
        if round > 0 {
            plain.push(copied);
            hashed.push(fetched);
            plain_cpu += copied_cpu;
            hashed_cpu += fetched_cpu;
        }
    }
    let (plain, hashed) = (median(&mut plain), median(&mut hashed));
    let speed = |time: Duration| args.mib as f64 * 1.048_576 / time.as_secs_f64();
    let mut out = std::io::stdout();
    writeln!(out, "plain copy       {:>8.1} MB/s", speed(plain))?;
    writeln!(out, "with its sha256  {:>8.1} MB/s", speed(hashed))?;
    let cost = (hashed.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
    writeln!(
        out,
        "cost             {cost:>8.1} %  (asked for: under 10 %)"
    )?;
    let rounds = u32::try_from(args.rounds)?.max(1);
    let each = |cpu: Duration| (cpu / rounds).as_millis();
    writeln!(
        out,
        "processor time   {:>8} ms plain, {} ms with its sha256: {:.2} times",
        each(plain_cpu),
        each(hashed_cpu),
        hashed_cpu.as_secs_f64() / plain_cpu.as_secs_f64()
    )?;
    Ok(())
}

/// The same bytes read from the socket and written, and nothing else.
async fn copy(address: SocketAddr, path: &Path) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /m HTTP/1.1\r\nhost: here\r\n\r\n")
        .await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.context("the head of the answer")?);
    }
    let (chunks, mut queue) = tokio::sync::mpsc::channel::<Vec<u8>>(16);
    let mut file = std::fs::File::create(path)?;
    let writing = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        while let Some(chunk) = queue.blocking_recv() {
            file.write_all(&chunk)?;
        }
        file.sync_all()
    });
    loop {
        let mut chunk = Vec::with_capacity(256 << 10);
        if stream.read_buf(&mut chunk).await? == 0 {
            break;
        }
        chunks.send(chunk).await.context("the writer has ended")?;
    }
    drop(chunks);
    writing.await??;
    Ok(())
}

async fn fetch(address: SocketAddr, path: &Path) -> anyhow::Result<()> {
    let fetcher = Fetcher::new(FetchTimes::default())?;
    let watch = Watch::<FetchError> {
        room: &|_| Ok(()),
        progress: &|_, _| (),
    };
    let request = FetchRequest::new(format!("http://{address}/m"));
    fetcher.to_partial(&request, path, &watch).await?;
    Ok(())
}

/// A server on a thread and a runtime of its own.
fn serve(mib: usize, rate: Option<u64>) -> anyhow::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let byte = |at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let block: Vec<u8> = (0..1 << 20).map(byte).collect();
    let serving = std::thread::Builder::new().name(SERVER.to_owned());
    serving.spawn(move || {
        runtime.block_on(async {
            while let Ok((mut stream, _)) = listener.accept().await {
                // A client that leaves is the end of its connection alone.
                drop(answer(&mut stream, mib, rate, &block).await);
            }
        });
    })?;
    Ok(address)
}

async fn answer(
    stream: &mut TcpStream,
    mib: usize,
    rate: Option<u64>,
    block: &[u8],
) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        mib * block.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let clock = SystemClock::new();
    for sent in 1..=mib {
        stream.write_all(block).await?;
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(sent as f64 * 1.048_576 / rate as f64);
            tokio::time::sleep(due.saturating_sub(clock.monotonic())).await;
        }
    }
    Ok(())
}

/// The processor's time of all threads but the server's: fields 14 and 15 of proc_pid_stat(5), in hundredths of a second.
fn cpu() -> anyhow::Result<Duration> {
    let all = ticks(Path::new("/proc/self/stat"))?;
    let mut server = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        // Others end meanwhile.
        let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
        if name.trim() == SERVER {
            server = ticks(&thread.join("stat"))?;
        }
    }
    Ok(Duration::from_millis(all.saturating_sub(server) * 10))
}

fn ticks(stat: &Path) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(stat)?;
    let (_, fields) = stat.rsplit_once(')').context("the name of the process")?;
    let fields = fields.split_whitespace().skip(11).take(2);
    Ok(fields
        .map(|field| field.parse::<u64>().unwrap_or_default())
        .sum())
}

/// The name of the server's thread.
const SERVER: &str = "server";

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
