//! The control plane's daemon: parses, builds, runs, drains.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use clap::Parser;
use llmgw_core::terminal::lines;
use llmgw_server::{
    args::{ServerArgs, Surroundings},
    fault::Fault,
    first_key::FirstKey,
    lifecycle::Running,
    signals,
};

/// Runs an llmgw control plane with its gateway. Agents connect to it from this machine.
#[derive(Debug, Parser)]
#[command(name = "llmgw-server", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    server: ServerArgs,
    /// Address for agents; on loopback
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "LLMGW_CLUSTER_LISTEN",
        default_value = "127.0.0.1:8443"
    )]
    cluster_listen: SocketAddr,
    /// Where the store is: sqlite:PATH or postgres://... [default: SQLite in the data directory]
    #[arg(long, value_name = "URL", env = "LLMGW_STORE", hide_env_values = true)]
    store: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    signals::init_logging();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            report(&format!("error: the async runtime can't start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run(cli));
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            report(&fault.render());
            fault.exit_code()
        }
    }
}

async fn run(cli: Cli) -> Result<(), Fault> {
    let Cli {
        server,
        cluster_listen,
        store,
    } = cli;
    let config = server.clone().into_config(Surroundings {
        cluster_listen: Some(cluster_listen),
        store,
        settle: SETTLE,
        starter: false,
    })?;
    let built = config.build().await?;
    let stop = signals::stop_on_signal()?;
    let secret = match built.first_key() {
        FirstKey::Show(secret) => Some(secret.expose().to_owned()),
        FirstKey::InFile | FirstKey::ShownBefore => None,
    };
    let running = built.start()?;
    announce(&running, secret.as_deref());
    if secret.is_some() {
        running.data().forget_first_key()?;
    }
    let broken = tokio::select! {
        () = stop.asked() => false,
        () = running.broken() => true,
    };
    report(&format!("llmgw-server: {}", running.farewell()));
    running.drain_until_insisted(&stop).await;
    running.finish().await;
    if broken {
        return Err(Fault::Broken);
    }
    Ok(())
}

fn announce(running: &Running, secret: Option<&str>) {
    report(&format!(
        "llmgw-server: clients on http://{}/v1",
        running.listen()
    ));
    report(&format!(
        "llmgw-server: admin API on http://{}",
        running.admin_listen()
    ));
    if let Some(address) = running.cluster_listen() {
        let token = running.data().path().join("agent.token");
        report(&format!(
            "llmgw-server: agents on {address}, with the token in {}",
            token.display()
        ));
    }
    if let Some(secret) = secret {
        report(&format!(
            "llmgw-server: the API key, shown this once: {secret}"
        ));
    }
}

#[expect(clippy::print_stderr, reason = "a daemon tells its operator on stderr")]
fn report(line: &str) {
    eprintln!("{}", lines(line));
}

/// Agents on this machine reconnect within a second or two of a restart.
const SETTLE: Duration = Duration::from_secs(3);
const AFTER_HELP: &str = "Exit codes: 0 stopped as asked, 1 failed, 2 wrong input.\n\
                          Logs go to stderr; RUST_LOG sets their level (default: info).";
