//! Engines in this process: a scripted process each, and a server that does as its test says.

use std::{
    io,
    sync::{Arc, Mutex},
};

use llmgw_agent::{
    process::ProcessStart,
    testing::{Script, ScriptedRuntime, World},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What all engines of a test do; it may change while they run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acts {
    /// How the process ends, at once.
    pub(crate) end: Option<llmgw_agent::process::Exit>,
    /// Whether it ignores the request to end.
    pub(crate) stubborn: bool,
    /// Which name it lists; its own when absent.
    pub(crate) name: Option<String>,
    /// Whether its health check is answered with 503.
    pub(crate) loading: bool,
    /// Whether completions have no token.
    pub(crate) tokenless: bool,
    /// Whether it answers nothing.
    pub(crate) mute: bool,
    /// How many requests it computes.
    pub(crate) busy: usize,
}

/// The stage on which they do it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) acts: Arc<Mutex<Acts>>,
    tasks: TaskTracker,
}

impl Stage {
    pub(crate) fn new(acts: Acts) -> Self {
        Self {
            acts: Arc::new(Mutex::new(acts)),
            ..Self::default()
        }
    }

    /// A new life of the agent, as far as processes are concerned.
    pub(crate) fn runtime(&self) -> ScriptedRuntime {
        let stage = self.clone();
        ScriptedRuntime::new(self.world.clone(), move |start| stage.begin(start))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Acts)) {
        change(&mut self.acts.lock().unwrap());
    }

    fn begin(&self, start: &ProcessStart) -> io::Result<Script> {
        let Acts { end, stubborn, .. } = self.acts.lock().unwrap().clone();
        let after = |flag: &str| {
            let position = start.args.iter().position(|arg| arg == flag).unwrap();
            start.args[position + 1].to_str().unwrap().to_owned()
        };
        let listener = std::net::TcpListener::bind(format!("127.0.0.1:{}", after("--port")))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let over = CancellationToken::new();
        let serving = serve(listener, after("--alias"), Arc::clone(&self.acts));
        self.tasks
            .spawn(over.clone().run_until_cancelled_owned(serving));
        Ok(Script {
            end,
            stubborn,
            children: 1,
            over,
        })
    }
}

async fn serve(listener: TcpListener, alias: String, acts: Arc<Mutex<Acts>>) {
    let name = alias.rsplit(',').next().unwrap().to_owned();
    let mut open = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let acts = acts.lock().unwrap().clone();
        if acts.mute {
            open.push(stream);
            continue;
        }
        drop(answer(&mut stream, &name, &acts).await);
    }
}

async fn answer(stream: &mut TcpStream, own: &str, acts: &Acts) -> io::Result<()> {
    let mut request = vec![0; 64 << 10];
    // A question fits into one segment of the loopback.
    let length = stream.read(&mut request).await?;
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let name = acts.name.as_deref().unwrap_or(own);
    let (status, body) = match request.split_whitespace().nth(1) {
        Some("/health") if acts.loading => ("503 loading", "{}".to_owned()),
        Some("/health") => ("200 OK", "{}".to_owned()),
        Some("/v1/models") => ("200 OK", format!(r#"{{"data": [{{"id": "{name}"}}]}}"#)),
        Some("/slots") => {
            let slots = vec![r#"{"is_processing": true}"#; acts.busy];
            ("200 OK", format!("[{}]", slots.join(",")))
        }
        Some("/v1/completions") => {
            let tokens = u8::from(!acts.tokenless);
            (
                "200 OK",
                format!(r#"{{"usage": {{"completion_tokens": {tokens}}}}}"#),
            )
        }
        _ => ("404 not found", "{}".to_owned()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await
}
