//! Sessions against a scripted control plane, with everything that a stream can do wrong.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use llmgw_agent::session::{EngineLogs, Session, SessionEnd, SessionError, time::ServerTime};
use llmgw_core::{
    api::{
        agent::{
            DesiredState, HEARTBEAT_MS, Hello, MAX_FRAME, NodeReport, PROTOCOL, ToAgent, ToServer,
        },
        log::{LogAnswer, LogAsk, LogProblem},
    },
    clock::{SystemClock, Timestamp},
    cluster::node::NodeFacts,
    error::Coded as _,
    id::{NodeId, ReplicaId},
};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream},
    sync::watch,
    time::Instant,
};
use tokio_util::{
    codec::{Framed, LengthDelimitedCodec},
    sync::CancellationToken,
};

/// A control plane that does what the test says.
struct Server {
    frames: Framed<DuplexStream, LengthDelimitedCodec>,
}

/// A log that tells after how long it was to wait, and waits so long.
#[derive(Debug)]
struct Parrot;

#[async_trait]
impl EngineLogs for Parrot {
    async fn read(&self, ask: &LogAsk) -> LogAnswer {
        tokio::time::sleep(Duration::from_millis(ask.wait_ms)).await;
        LogAnswer {
            lines: vec![format!("waited {} ms", ask.wait_ms)],
            problem: None,
            ..LogAnswer::without_lines(ask, LogProblem::NoLog)
        }
    }
}

/// What the agent's side holds.
struct Agent {
    reports: watch::Sender<NodeReport>,
    desired: watch::Sender<Option<DesiredState>>,
    time: watch::Sender<Option<ServerTime>>,
    closing: CancellationToken,
}

#[tokio::test(start_paused = true)]
async fn who_it_is_comes_first_and_then_what_is() {
    converse(|mut server, _| async move {
        let ToServer::Hello(hello) = server.hear().await else {
            panic!("a hello comes first");
        };
        assert_eq!(hello.token.as_deref(), Some("secret"));
        assert_eq!(hello.protocol, PROTOCOL);
        assert_eq!(server.report().await.revision, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_report_comes_at_every_heartbeat_and_at_every_change() {
    converse(|mut server, agent| async move {
        server.hear().await;
        server.report().await;
        for _ in 0..3 {
            let before = Instant::now();
            server.report().await;
            let heartbeat = Duration::from_millis(HEARTBEAT_MS);
            assert!(before.elapsed() <= heartbeat, "{:?}", before.elapsed());
            assert!(before.elapsed() > heartbeat / 2, "{:?}", before.elapsed());
        }
        let before = Instant::now();
        agent.change(7);
        assert_eq!(server.report().await.revision, 7);
        assert!(
            before.elapsed() <= Duration::from_millis(100),
            "{:?}",
            before.elapsed()
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn many_changes_go_into_few_reports_and_the_last_is_among_them() {
    converse(|mut server, agent| async move {
        server.hear().await;
        server.report().await;
        let begin = Instant::now();
        let changing = async {
            for revision in 1..=1000 {
                agent.change(revision);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let counting = async {
            let mut reports = 0;
            while server.report().await.revision < 1000 {
                reports += 1;
            }
            reports
        };
        let ((), reports) = tokio::join!(changing, counting);
        assert!(begin.elapsed() < Duration::from_secs(2));
        assert!((5..=15).contains(&reports), "{reports}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_states_that_come_late_or_twice_the_highest_stays() {
    converse(|mut server, agent| async move {
        server.welcome().await;
        for (epoch, revision) in [(1, 1), (1, 3), (1, 2), (1, 3), (2, 1), (1, 9), (2, 0)] {
            server.say(&desired(epoch, revision)).await;
        }
        server
            .say(&ToAgent::Welcome {
                protocol: PROTOCOL + 1,
            })
            .await;
        agent.eventually_wants(2, 1).await;
        server.say(&desired(2, 5)).await;
        agent.eventually_wants(2, 5).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_control_plane_s_time_is_heard() {
    converse(|mut server, agent| async move {
        server.welcome().await;
        server
            .say(&ToAgent::Time {
                now: Timestamp(7_000),
            })
            .await;
        let mut time = agent.time.subscribe();
        let heard = time.wait_for(Option::is_some).await.unwrap().unwrap();
        assert_eq!(heard.theirs, Timestamp(7_000));
        assert!(heard.asked <= heard.heard);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_of_a_newer_control_plane_are_passed_over() {
    converse(|mut server, agent| async move {
        server.welcome().await;
        server.raw(br#"{"kind":"dance","steps":[1,2,3]}"#).await;
        server
            .raw(
                br#"{"kind":"desired","epoch":1,"revision":4,"engines":[],"replicas":[],"mood":1}"#,
            )
            .await;
        agent.eventually_wants(1, 4).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn questions_about_logs_are_answered_as_they_can_be_and_reports_come_meanwhile() {
    converse(|mut server, agent| async move {
        // As long as it is there, it reports.
        let _agent = agent;
        server.welcome().await;
        for (number, wait_ms) in [(1, 9_000), (2, 0), (3, 5_000)] {
            server.ask(number, wait_ms).await;
        }
        let begin = Instant::now();
        let (mut answered, mut reports) = (Vec::new(), 0);
        while answered.len() < 3 {
            match server.hear().await {
                ToServer::Log(answer) => answered.push((answer.ask, answer.lines)),
                ToServer::Report(_) => reports += 1,
                other => panic!("{other:?} is neither"),
            }
        }
        let said = |ms| vec![format!("waited {ms} ms")];
        assert_eq!(answered, [(2, said(0)), (3, said(5_000)), (1, said(9_000))]);
        assert!(begin.elapsed() < Duration::from_millis(9_500));
        assert!((4..=6).contains(&reports), "{reports}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_more_about_logs_than_is_answered_at_a_time_is_told_so() {
    converse(|mut server, _| async move {
        server.welcome().await;
        for number in 0..40 {
            server.ask(number, 5_000).await;
        }
        let (mut busy, mut answered) = (Vec::new(), Vec::new());
        while busy.len() + answered.len() < 40 {
            if let ToServer::Log(answer) = server.hear().await {
                match answer.problem {
                    Some(LogProblem::Busy) => busy.push(answer.ask),
                    None => answered.push(answer.ask),
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
        // Sixteen are answered at a time, and as many wait for their turn.
        assert!((16..=32).contains(&answered.len()), "{busy:?} {answered:?}");
        server.ask(99, 0).await;
        loop {
            if let ToServer::Log(answer) = server.hear().await {
                assert_eq!((answer.ask, answer.problem), (99, None));
                break;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_frame_ends_the_session_and_says_so() {
    let half = br#"{"kind":"desired","epoch":1"#.as_slice();
    for garbage in [
        b"".as_slice(),
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{\"kind\":7}",
        half,
    ] {
        let end = converse(|mut server, _| async move {
            server.welcome().await;
            server.raw(garbage).await;
            server.listen_to_the_end().await;
        })
        .await;
        assert!(end.welcomed);
        assert!(
            matches!(end.why, SessionError::Malformed(_)),
            "{garbage:?}: {}",
            end.why
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_speaks_http_is_recognised() {
    let end = converse(|server, _| async move {
        let mut stream = server.frames.into_inner();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        // Held open: the length is enough to know.
        let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
        while frames.next().await.is_some() {}
    })
    .await;
    assert!(!end.welcomed);
    assert!(matches!(end.why, SessionError::Malformed(_)), "{}", end.why);
    assert!(end.why.hint().unwrap().contains("HTTP"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_control_planes_words() {
    let end = converse(|mut server, _| async move {
        server.hear().await;
        server
            .say(&ToAgent::Refused {
                reason: "wrong token".into(),
            })
            .await;
        server.listen_to_the_end().await;
    })
    .await;
    assert!(!end.welcomed);
    assert!(end.why.to_string().contains("wrong token"), "{}", end.why);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_in_the_middle_of_a_frame_is_no_order() {
    let end = converse(|mut server, agent| async move {
        server.welcome().await;
        let json = serde_json::to_vec(&desired(1, 1)).unwrap();
        let mut stream = server.frames.into_inner();
        stream
            .write_all(&u32::try_from(json.len()).unwrap().to_be_bytes())
            .await
            .unwrap();
        stream.write_all(&json[..json.len() / 2]).await.unwrap();
        drop(stream);
        assert_eq!(*agent.desired.borrow(), None);
    })
    .await;
    assert!(matches!(end.why, SessionError::Stream(_)), "{}", end.why);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_does_not_read_is_left() {
    let begin = Instant::now();
    let end = converse(|mut server, agent| async move {
        server.welcome().await;
        // More than the pipe holds, and nobody reads it; what is said meanwhile is still heard.
        agent
            .reports
            .send_modify(|report| report.facts.hostname = "x".repeat(200_000));
        server.say(&desired(1, 1)).await;
        agent.eventually_wants(1, 1).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert!(matches!(end.why, SessionError::Stuck(_)), "{}", end.why);
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_larger_than_a_frame_is_not_sent() {
    let end = converse(|mut server, agent| async move {
        agent
            .reports
            .send_modify(|report| report.facts.hostname = "x".repeat(MAX_FRAME));
        server.listen_to_the_end().await;
    })
    .await;
    assert!(
        matches!(end.why, SessionError::Unsendable(_)),
        "{}",
        end.why
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_report_is_sent_before_the_end() {
    let end = converse(|mut server, agent| async move {
        server.welcome().await;
        server.report().await;
        agent.change(99);
        agent.closing.cancel();
        let mut last = 0;
        while let Some(ToServer::Report(report)) = server.next().await {
            last = report.revision;
        }
        assert_eq!(last, 99);
    })
    .await;
    assert!(matches!(end.why, SessionError::Closing), "{}", end.why);
}

/// Lets an agent and a script speak until the agent's side ends, or the script's, which then closes the stream.
async fn converse<F, S>(script: F) -> SessionEnd
where
    F: FnOnce(Server, Agent) -> S,
    S: Future<Output = ()>,
{
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let report = NodeReport {
        revision: 0,
        epoch: 0,
        highest_epoch: 0,
        highest_revision: 0,
        leaving: false,
        facts: NodeFacts::default(),
        provision: Vec::new(),
        weights: None,
        headers: Vec::new(),
        replicas: Vec::new(),
    };
    let (desired, _kept) = watch::channel(None);
    let agent = Agent {
        reports: watch::Sender::new(report),
        desired: desired.clone(),
        time: watch::Sender::default(),
        closing: CancellationToken::new(),
    };
    let (time, clock) = (agent.time.clone(), SystemClock::new());
    let session = Session {
        hello: Hello {
            node: NodeId::generate(),
            token: Some("secret".into()),
            protocol: PROTOCOL,
            agent_version: "0".into(),
            tells_logs: true,
        },
        reports: agent.reports.subscribe(),
        desired: &desired,
        time: &time,
        logs: &Parrot,
        clock: &clock,
        closing: agent.closing.clone(),
    };
    let codec = LengthDelimitedCodec::builder()
        .max_frame_length(MAX_FRAME)
        .new_codec();
    let script = script(
        Server {
            frames: Framed::new(theirs, codec),
        },
        agent,
    );
    let session = session.run(ours);
    tokio::pin!(script, session);
    tokio::select! {
        biased;
        () = &mut script => session.await,
        end = &mut session => {
            // The script may still check what it has heard, unless it waits for what can't come any more.
            drop(tokio::time::timeout(Duration::from_secs(1), script).await);
            end
        }
    }
}

impl Server {
    async fn next(&mut self) -> Option<ToServer> {
        let frame = self.frames.next().await?.ok()?;
        Some(serde_json::from_slice(&frame).unwrap())
    }

    async fn hear(&mut self) -> ToServer {
        self.next().await.unwrap()
    }

    async fn report(&mut self) -> NodeReport {
        match self.hear().await {
            ToServer::Report(report) => *report,
            other => panic!("{other:?} is no report"),
        }
    }

    async fn listen_to_the_end(&mut self) {
        while self.next().await.is_some() {}
    }

    async fn welcome(&mut self) {
        let hello = self.hear().await;
        assert!(matches!(hello, ToServer::Hello(_)), "{hello:?}");
        self.say(&ToAgent::Welcome { protocol: PROTOCOL }).await;
    }

    async fn say(&mut self, frame: &ToAgent) {
        let json = serde_json::to_vec(frame).unwrap();
        self.raw(&json).await;
    }

    async fn ask(&mut self, ask: u64, wait_ms: u64) {
        self.say(&ToAgent::ReadLog(LogAsk {
            ask,
            replica: ReplicaId::generate(),
            after: None,
            lines: 10,
            most: 1_000,
            wait_ms,
        }))
        .await;
    }

    async fn raw(&mut self, bytes: &[u8]) {
        self.frames
            .send(Bytes::copy_from_slice(bytes))
            .await
            .unwrap();
    }
}

impl Agent {
    fn change(&self, revision: u64) {
        self.reports
            .send_modify(|report| report.revision = revision);
    }

    async fn eventually_wants(&self, epoch: u64, revision: u64) {
        let mut desired = self.desired.subscribe();
        let found = desired.wait_for(|state| {
            state
                .as_ref()
                .is_some_and(|state| (state.epoch, state.revision) == (epoch, revision))
        });
        assert!(
            tokio::time::timeout(Duration::from_secs(60), found)
                .await
                .is_ok()
        );
    }
}

fn desired(epoch: u64, revision: u64) -> ToAgent {
    ToAgent::Desired(Box::new(DesiredState {
        epoch,
        revision,
        engines: Vec::new(),
        replicas: Vec::new(),
        weights: Default::default(),
    }))
}
