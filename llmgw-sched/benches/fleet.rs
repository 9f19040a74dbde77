//! One control plane and five hundred agents: what it costs to listen to them, and how long a new model takes to run.
//!
//! The controller is the real one, with the store in memory, on a thread of its own whose processor time is counted. The
//! agents speak the real protocol over pipes, on another thread: each reports every two seconds, and says of what it is told to
//! run that it serves.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it tells people what it measures by the real clock"
)]

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes as Frame;
use clap::Parser;
use futures_util::{SinkExt as _, StreamExt as _};
use llmgw_core::{
    api::agent::{HEARTBEAT_MS, Hello, NodeReport, PROTOCOL, ToAgent, ToServer},
    clock::{Clock, SystemClock, Timestamp},
    cluster::{
        catalog::ModelDefinition,
        engine::{Provision, ProvisionState},
        node::{Cpu, Disk, Memory, NodeFacts},
        replica::{ReplicaState, ReplicaStatus},
    },
    id::{ModelName, NodeId, ReplicaId},
    keys::HashingKey,
    store::{MemoryStore, Store},
    units::Bytes,
};
use llmgw_sched::controller::{
    Admission, ControllerConfig, ControllerDeps, ControllerHandle, Terms,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    io::DuplexStream,
    runtime::Builder,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{
    codec::{Framed, LengthDelimitedCodec},
    sync::CancellationToken,
};

/// Listen to many agents, and add a model
#[derive(Clone, Debug, Parser)]
struct Args {
    /// How many agents
    #[arg(long, default_value_t = 500)]
    agents: u64,
    /// How many models run before, each with twenty replicas
    #[arg(long, default_value_t = 50)]
    models: u64,
    /// For how many seconds it only listens
    #[arg(long, default_value_t = 20)]
    steady: u64,
    /// What cargo tells a bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let (streams, joining) = mpsc::channel(64);
    let (ended, end) = oneshot::channel::<()>();
    let agents = {
        let args = args.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build()?;
            runtime.block_on(run_agents(&args, streams, end))
        })
    };
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let measured = runtime.block_on(measure(&args, joining));
    drop(ended);
    match agents.join() {
        Ok(agents) => agents?,
        Err(_) => bail!("the agents' thread panicked"),
    }
    let Measured {
        cores,
        one,
        twenty,
        joined,
    } = measured?;
    println!(
        "{} agents, {} replicas: all serve after {:.1} s",
        args.agents,
        args.models * REPLICAS,
        joined.as_secs_f64()
    );
    println!(
        "listening costs {:.1} % of a core (to be under 50 %)",
        cores * 100.0
    );
    println!("a model of 1 replica serves after {one:.2?} (to be under 5 s)");
    println!("a model of {REPLICAS} replicas serves after {twenty:.2?} (to be under 5 s)");
    let good = cores < 0.5 && one.max(twenty) < Duration::from_secs(5);
    Ok(ExitCode::from(u8::from(!good)))
}

struct Measured {
    joined: Duration,
    cores: f64,
    one: Duration,
    twenty: Duration,
}

async fn measure(args: &Args, joining: mpsc::Receiver<DuplexStream>) -> anyhow::Result<Measured> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let config = ControllerConfig {
        holder: "bench".to_owned(),
        version: "0".to_owned(),
        lease_ttl: Duration::from_secs(15),
        settle: Duration::ZERO,
        terms: Terms::default(),
        version_of_terms: 0,
    };
    let controller = config
        .build(ControllerDeps {
            store,
            clock,
            hashing_key: HashingKey::from_bytes([1; 32]),
            weights_reader: None,
            terms_reader: None,
        })
        .await?;
    let handle = controller.handle();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(stop.clone()));
    tasks.spawn(accept(handle.clone(), joining));

    let start = Instant::now();
    for number in 0..args.models {
        add(&handle, &format!("m{number}"), REPLICAS).await?;
    }
    for number in 0..args.models {
        serves(&handle, &format!("m{number}"), REPLICAS).await?;
    }
    let joined = start.elapsed();
    let (before, start) = (processor_time(), Instant::now());
    sleep(Duration::from_secs(args.steady)).await;
    let cores = (processor_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    let mut took = Vec::new();
    for (name, replicas) in [("one", 1), ("twenty", REPLICAS)] {
        let start = Instant::now();
        add(&handle, name, replicas).await?;
        serves(&handle, name, replicas).await?;
        took.push(start.elapsed());
    }
    stop.cancel();
    tasks.shutdown().await;
    let [one, twenty] = took[..] else {
        bail!("both were measured");
    };
    Ok(Measured {
        joined,
        cores,
        one,
        twenty,
    })
}

async fn accept(handle: ControllerHandle, mut joining: mpsc::Receiver<DuplexStream>) {
    while let Some(stream) = joining.recv().await {
        handle.accept(stream, Admission::Anyone);
    }
}

async fn add(handle: &ControllerHandle, name: &str, replicas: u64) -> anyhow::Result<()> {
    let definition: ModelDefinition = serde_json::from_value(serde_json::json!({
        "name": name, "source": format!("file:/weights/{name}.gguf"), "replicas": replicas,
        "profiles": [{"memory": "2GiB"}],
    }))?;
    handle.control().catalog.add(definition).await?;
    Ok(())
}

async fn serves(handle: &ControllerHandle, name: &str, replicas: u64) -> anyhow::Result<()> {
    let name: ModelName = name.parse()?;
    let replicas = usize::try_from(replicas)?;
    let mut routes = handle.routes();
    let served = routes.wait_for(|routes| {
        let route = routes.resolve(name.as_str());
        route.is_ok_and(|route| route.endpoints.len() >= replicas)
    });
    let waited = timeout(Duration::from_secs(120), served).await;
    waited.with_context(|| format!("{name} does not serve"))??;
    Ok(())
}

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

async fn run_agents(
    args: &Args,
    streams: mpsc::Sender<DuplexStream>,
    end: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let mut agents = JoinSet::new();
    for number in 1..=args.agents {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        if streams.send(theirs).await.is_err() {
            break;
        }
        agents.spawn(agent(NodeId::imagined(number), ours));
        // Real ones do not beat in time either.
        sleep(Duration::from_millis(HEARTBEAT_MS / args.agents.max(1))).await;
    }
    // The other end was dropped: all is measured.
    drop(end.await);
    agents.shutdown().await;
    Ok(())
}

/// Speaks as an agent does until the stream ends.
async fn agent(node: NodeId, stream: DuplexStream) -> anyhow::Result<()> {
    let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
    let hello = Hello {
        node,
        token: None,
        protocol: PROTOCOL,
        agent_version: "0".to_owned(),
        tells_logs: true,
    };
    send(&mut frames, &ToServer::Hello(hello)).await?;
    let mut report = first_report(node)?;
    let mut running: BTreeMap<ReplicaId, ReplicaStatus> = BTreeMap::new();
    let mut beat = interval(Duration::from_millis(HEARTBEAT_MS));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            frame = frames.next() => {
                let Some(frame) = frame else { return Ok(()) };
                let ToAgent::Desired(desired) = serde_json::from_slice(&frame?)? else {
                    continue;
                };
                let rank = (desired.epoch, desired.revision);
                ensure!(rank >= (report.epoch, report.revision), "an older order");
                (report.epoch, report.revision) = rank;
                (report.highest_epoch, report.highest_revision) = rank;
                let wanted = desired.replicas.into_iter().map(|spec| {
                    let ready = ReplicaStatus {
                        state: ReplicaState::Ready,
                        since: Timestamp(0),
                        endpoint: Some("127.0.0.1:9".to_owned()),
                        fetch: None,
                        measured: None,
                        error: None,
                        hint: None,
                        log_tail: Vec::new(),
                        spec,
                    };
                    (ready.spec.id, ready)
                });
                running = wanted.collect();
            }
        }
        report.replicas = running.values().cloned().collect();
        send(&mut frames, &ToServer::Report(Box::new(report.clone()))).await?;
    }
}

fn first_report(node: NodeId) -> anyhow::Result<NodeReport> {
    let installed = ProvisionState::Installed {
        version: "b10991".to_owned(),
        variant: "cpu".to_owned(),
    };
    Ok(NodeReport {
        revision: 0,
        epoch: 0,
        highest_epoch: 0,
        highest_revision: 0,
        leaving: false,
        facts: NodeFacts {
            hostname: node.to_string(),
            arch: "x86_64".to_owned(),
            cpu: Some(serde_json::from_value::<Cpu>(serde_json::json!({
                "cores": 32, "features": ["avx2", "fma", "f16c", "bmi2", "avx512f"],
            }))?),
            memory: Some(Memory {
                total: Bytes::gib(64),
                allocatable: Bytes::gib(60),
            }),
            disk: Some(serde_json::from_value::<Disk>(serde_json::json!({
                "mount": "/var/lib/llmgw", "total": "1TiB", "free": "500GiB", "shared": false,
            }))?),
            agent_version: "0".to_owned(),
            ..NodeFacts::default()
        },
        provision: vec![Provision::new("llamacpp".parse()?, installed)],
        replicas: Vec::new(),
        weights: Some(Vec::new()),
        headers: Vec::new(),
    })
}

async fn send(
    frames: &mut Framed<DuplexStream, LengthDelimitedCodec>,
    frame: &ToServer,
) -> anyhow::Result<()> {
    Ok(frames.send(Frame::from(serde_json::to_vec(frame)?)).await?)
}

const REPLICAS: u64 = 20;
