//! The releases that engines come from, looked up once for all nodes.
//!
//! Nodes are told what was found, or why not, together with the engine that they should have. While the first
//! answer is on its way they are told to wait for it: it comes, or fails, within seconds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use llmgw_core::{
    clock::{Clock, Timestamp},
    cluster::{
        engine::WantedEngine,
        release::{Release, Resolution},
    },
    error::{Chain, Coded as _, Retry},
    fetch::FetchTimes,
    releases::{Answer, ReleaseClient, ReleaseError},
};
use llmgw_sched::controller::ControllerHandle;
use tokio_util::sync::CancellationToken;

use crate::fault::Fault;

/// Keeps what nodes are told of releases up to date.
#[derive(Debug)]
pub(crate) struct Releases {
    client: ReleaseClient,
    clock: Arc<dyn Clock>,
    /// What the settings say, with what they say of releases themselves.
    settings: Vec<WantedEngine>,
    wanted: Vec<WantedEngine>,
    known: BTreeMap<String, Known>,
}

/// What is known of a version.
#[derive(Debug)]
struct Known {
    resolution: Resolution,
    etag: Option<String>,
    ask_at: Duration,
    failures: u32,
}

impl Releases {
    /// Looks up what is wanted in the list at `list`.
    ///
    /// # Errors
    /// When `list` is no address.
    pub(crate) fn of(
        list: &str,
        wanted: Vec<WantedEngine>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let client =
            ReleaseClient::new(list, FetchTimes::default()).map_err(|error| Fault::Settings {
                origin: format!("--releases {list}"),
                problem: Chain(&error).to_string(),
                hint: error.hint(),
            })?;
        Ok(Self {
            client,
            clock,
            settings: wanted.clone(),
            wanted,
            known: BTreeMap::new(),
        })
    }

    /// What nodes are told before anything is known.
    pub(crate) fn asking(wanted: &[WantedEngine]) -> Vec<WantedEngine> {
        let asked = |one: &WantedEngine| match one.comes_from_releases() {
            true => WantedEngine {
                release: Some(Resolution::Asking),
                ..one.clone()
            },
            false => one.clone(),
        };
        wanted.iter().map(asked).collect()
    }

    /// Asks, tells, and asks again when it is time, until `stop`.
    pub(crate) async fn keep(mut self, handle: ControllerHandle, stop: CancellationToken) {
        let mut told = Vec::new();
        let mut wanted = handle.engines_wanted();
        loop {
            let chosen = wanted.borrow_and_update().clone();
            self.want(chosen);
            let Some(wait) = stop.run_until_cancelled(self.look()).await else {
                return;
            };
            let now = self.told();
            if now != told {
                handle.want_engines(now.clone()).await;
                told = now;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // An operator has chosen another.
                changed = wanted.changed() => if changed.is_err() {
                    return;
                },
                () = stop.cancelled() => return,
            }
        }
    }

    /// Looks up these from now on; what is known of versions that nobody wants any more is forgotten.
    fn want(&mut self, wanted: Vec<WantedEngine>) {
        let with_release = |one: WantedEngine| WantedEngine {
            release: one.release_in(&self.settings),
            ..one
        };
        self.wanted = wanted.into_iter().map(with_release).collect();
        let wanted = &self.wanted;
        self.known
            .retain(|version, _| wanted.iter().any(|one| one.version() == version));
    }

    /// Asks for what it is time to ask for, and says how long nothing need be asked.
    async fn look(&mut self) -> Duration {
        let versions: Vec<String> = self
            .wanted
            .iter()
            .filter(|one| one.comes_from_releases())
            .map(|one| one.version().to_owned())
            .collect();
        let mut wait = OLD;
        for version in versions {
            let now = self.clock.monotonic();
            let due = self
                .known
                .get(&version)
                .is_none_or(|known| known.ask_at <= now);
            if due {
                self.ask(&version).await;
            }
            if let Some(known) = self.known.get(&version) {
                wait = wait.min(known.ask_at.saturating_sub(self.clock.monotonic()));
            }
        }
        wait.max(Duration::from_secs(1))
    }

    async fn ask(&mut self, version: &str) {
        let now = self.clock.now();
        let before = self.known.remove(version);
        let etag = before.as_ref().and_then(|known| known.etag.clone());
        let answer = match version {
            LATEST => self
                .client
                .newest(now)
                .await
                .map(|release| Answer::Release {
                    release,
                    etag: None,
                }),
            _ => self.client.by_tag(version, etag.as_deref(), now).await,
        };
        let at = self.clock.monotonic();
        let known = match (answer, before) {
            (Ok(Answer::Release { release, etag }), _) => Known {
                ask_at: at + pause(&release, now),
                resolution: Resolution::Found { release },
                etag,
                failures: 0,
            },
            (Ok(Answer::Unchanged), Some(before)) => {
                let pause = match &before.resolution {
                    Resolution::Found { release } => pause(release, now),
                    _ => OLD,
                };
                Known {
                    ask_at: at + pause,
                    failures: 0,
                    ..before
                }
            }
            (Ok(Answer::Unchanged), None) => return,
            (Err(error), before) => failed(version, &error, before, at),
        };
        self.known.insert(version.to_owned(), known);
    }

    fn told(&self) -> Vec<WantedEngine> {
        let with_release = |one: &WantedEngine| {
            let known = self
                .known
                .get(one.version())
                .filter(|_| one.comes_from_releases());
            WantedEngine {
                release: known
                    .map(|known| known.resolution.clone())
                    .or_else(|| one.release.clone()),
                ..one.clone()
            }
        };
        self.wanted.iter().map(with_release).collect()
    }
}

fn failed(version: &str, error: &ReleaseError, before: Option<Known>, at: Duration) -> Known {
    let text = Chain(error).to_string();
    let failures = before.as_ref().map_or(0, |known| known.failures) + 1;
    if failures == 1 {
        tracing::warn!(version, error = text, "a release can't be looked up");
    }
    let asked_to = match error.retry() {
        Retry::After(wait) => wait,
        Retry::Now | Retry::Never => Duration::ZERO,
    };
    let pause = FAILED
        .saturating_mul(2_u32.saturating_pow(failures.min(5) - 1))
        .max(asked_to);
    match before {
        // What was found once stays good: a list that is away for an hour changes no release.
        Some(known) if matches!(known.resolution, Resolution::Found { .. }) => Known {
            ask_at: at + pause,
            failures,
            ..known
        },
        _ => Known {
            resolution: Resolution::Failed {
                error: text,
                hint: error.hint(),
            },
            etag: None,
            ask_at: at + pause,
            failures,
        },
    }
}

/// A young release still gains files; an old one hardly changes.
fn pause(release: &Release, now: Timestamp) -> Duration {
    let young = release
        .published_at
        .is_some_and(|at| now.since(at) < Duration::from_secs(2 * 3_600));
    if young { YOUNG } else { OLD }
}

/// The version that stands for the newest one with builds.
const LATEST: &str = "latest";
const YOUNG: Duration = Duration::from_secs(120);
const OLD: Duration = Duration::from_secs(3_600);
/// Doubled with each failure, up to 16 minutes.
const FAILED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use llmgw_core::{clock::ManualClock, cluster::engine::EngineSource};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const CPU: &str = "llama-b10991-bin-ubuntu-x64.tar.gz";

    fn auto() -> WantedEngine {
        WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto)
    }

    /// Answers with these, one each, and gives how often it was asked.
    #[expect(
        clippy::disallowed_methods,
        reason = "the server ends with the test's own runtime"
    )]
    async fn list(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}/releases")
    }

    fn answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\netag: \"1\"\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    }

    fn away() -> Releases {
        let clock = Arc::new(ManualClock::default());
        Releases::of("http://127.0.0.1:1/releases", vec![auto()], clock).unwrap()
    }

    #[tokio::test]
    async fn nodes_wait_first_and_then_get_what_was_found_once() {
        let asking = Releases::asking(&[auto()]);
        assert_eq!(asking[0].release, Some(Resolution::Asking));
        let body = format!(
            r#"{{"tag_name":"b10991","published_at":"1970-01-01T00:00:00Z","assets":[
                {{"name":"{CPU}","browser_download_url":"https://x/{CPU}"}}]}}"#
        );
        let list = list(vec![
            answer("200 OK", &body),
            "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned(),
            answer("502 Bad Gateway", ""),
        ])
        .await;
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(3_600));
        let mut releases = Releases::of(&list, vec![auto()], Arc::clone(&clock) as _).unwrap();
        assert_eq!(releases.look().await, YOUNG, "it is an hour old");
        let told = releases.told();
        let Some(Resolution::Found { release }) = &told[0].release else {
            panic!("{told:?}");
        };
        assert_eq!(release.assets[0].name, CPU);
        // Asked too early, it asks nobody.
        releases.look().await;
        clock.advance(Duration::from_secs(7_200));
        assert_eq!(releases.look().await, OLD, "it was asked and is unchanged");
        clock.advance(Duration::from_secs(7_200));
        assert_eq!(releases.look().await, FAILED);
        assert_eq!(releases.told(), told, "what was found stays good");
    }

    #[tokio::test]
    async fn a_list_that_is_away_is_said_and_asked_ever_more_rarely() {
        let mut releases = away();
        assert_eq!(releases.look().await, FAILED);
        let told = releases.told();
        let Some(Resolution::Failed { error, hint }) = &told[0].release else {
            panic!("{told:?}");
        };
        assert!(error.contains("127.0.0.1"), "{error}");
        assert!(hint.is_some());
        if let Some(known) = releases.known.get_mut("b10991") {
            known.ask_at = Duration::ZERO;
        }
        assert_eq!(releases.look().await, FAILED * 2);
    }

    #[test]
    fn only_what_comes_from_releases_is_looked_up() {
        for source in [
            EngineSource::Wheel,
            EngineSource::Path("/x".to_owned()),
            EngineSource::Mirror("http://mirror".to_owned()),
        ] {
            let wanted = WantedEngine { source, ..auto() };
            assert_eq!(Releases::asking(std::slice::from_ref(&wanted)), [wanted]);
        }
    }
}
