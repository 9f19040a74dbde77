//! Logs of engines, asked of scripted agents.

use llmgw_core::{
    api::{
        log::{LogAnswer, LogAsk, LogEnd, LogEnded, LogFrom, LogPart, LogProblem},
        orders::LogOf,
    },
    control::{ControlError, LONGEST_WAIT, Logs},
    id::ReplicaId,
};

use super::*;

impl ScriptedAgent {
    /// The next question about a log.
    async fn asked(&mut self) -> LogAsk {
        loop {
            match receive(&mut self.frames).await {
                Some(ToAgent::ReadLog(ask)) => return ask,
                Some(ToAgent::Desired(desired)) => self.desired = Some(*desired),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn answer(&mut self, answer: LogAnswer) {
        send(&mut self.frames, &ToServer::Log(Box::new(answer))).await;
    }
}

/// A controller with a model that an agent has ready.
async fn serving(tells_logs: bool) -> (Running, ScriptedAgent, ReplicaId) {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent_that(NodeId::generate(), tells_logs).await;
    agent.report(ReplicaState::Ready).await;
    let replica = agent.told().await.replicas[0].id;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    (running, agent, replica)
}

fn answer(ask: &LogAsk, cursor: u64, lines: &[&str]) -> LogAnswer {
    LogAnswer {
        cursor,
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        problem: None,
        ..LogAnswer::without_lines(ask, LogProblem::NoLog)
    }
}

fn refusal(answer: Result<LogPart, ControlError>) -> (Code, String) {
    let error = answer.unwrap_err();
    (error.code, error.message)
}

#[tokio::test(start_paused = true)]
async fn a_log_is_told_by_the_agent_that_has_it_and_each_gets_their_own_answer() {
    let (running, mut agent, replica) = serving(true).await;
    let logs = running.handle.clone();
    let read = |from, wait| logs.read_log(replica, from, Duration::from_secs(wait));
    let agents = async {
        let first = agent.asked().await;
        let second = agent.asked().await;
        // The later question is answered first, with what was cut off before it.
        let told = LogAnswer {
            skipped: 5,
            ..answer(&second, 40, &["late"])
        };
        agent.answer(told).await;
        agent.answer(answer(&first, 20, &["one", "two"])).await;
        (first, second)
    };
    let (one, two, (first, second)) = tokio::join!(
        read(LogFrom::Last(2), 0),
        read(LogFrom::After(30), 60),
        agents
    );
    assert_eq!(
        (first.replica, first.from(), first.wait_ms),
        (replica, LogFrom::Last(2), 0)
    );
    let longest = u64::try_from(LONGEST_WAIT.as_millis()).unwrap();
    assert_eq!(
        (second.from(), second.wait_ms),
        (LogFrom::After(30), longest)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.hostname.as_str(), one.cursor), ("box", 20));
    assert_eq!(one.lines, ["one", "two"]);
    assert_eq!((two.lines, two.skipped), (vec!["late".to_owned()], Size(5)));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_asked_is_said_at_once() {
    let (running, agent, replica) = serving(false).await;
    let read = |replica| {
        running
            .handle
            .read_log(replica, LogFrom::Last(1), Duration::ZERO)
    };
    let begun = tokio::time::Instant::now();
    let (code, message) = refusal(read(replica).await);
    assert_eq!(code, Code::Unavailable);
    assert_eq!(message, "the agent on box is too old to tell its logs");
    let nobody = ReplicaId::generate();
    let (code, message) = refusal(read(nobody).await);
    assert_eq!(code, Code::NotFound);
    assert_eq!(message, format!("there is no log of {nobody}"));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    drop(agent);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_away_or_is_silent_is_not_waited_for() {
    let (running, mut agent, replica) = serving(true).await;
    let handle = running.handle.clone();
    let read = |wait| handle.read_log(replica, LogFrom::After(0), wait);
    let begun = tokio::time::Instant::now();
    // It reports, and does not answer.
    let reporting = async {
        loop {
            agent.report(ReplicaState::Ready).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let read_in_vain = async {
        tokio::select! {
            answer = read(Duration::from_secs(5)) => answer,
            () = reporting => panic!("it reports for ever"),
        }
    };
    let (code, message) = refusal(read_in_vain.await);
    assert_eq!(code, Code::Unavailable);
    assert!(
        message.contains("did not tell") && message.contains("within 15 s"),
        "{message}"
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(15));

    let leaving = async move {
        let _asked = agent.asked().await;
        drop(agent);
    };
    let (answer, ()) = tokio::join!(read(LONGEST_WAIT), leaving);
    assert!(begun.elapsed() < Duration::from_secs(20));
    for answer in [answer, read(LONGEST_WAIT).await] {
        let (code, message) = refusal(answer);
        assert_eq!(code, Code::Unavailable);
        assert!(message.starts_with("box is not heard"), "{message}");
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_is_asked_of_an_agent_at_a_time_than_it_answers() {
    let (running, mut agent, replica) = serving(true).await;
    let handle = running.handle.clone();
    let tasks = TaskTracker::new();
    for _ in 0..20 {
        let handle = handle.clone();
        tasks.spawn(async move {
            let read = handle.read_log(replica, LogFrom::After(0), LONGEST_WAIT);
            assert_eq!(read.await.unwrap().lines, ["line"]);
        });
    }
    tasks.close();
    let mut first = Vec::new();
    for _ in 0..16 {
        first.push(agent.asked().await);
    }
    let more = tokio::time::timeout(Duration::from_secs(1), agent.asked()).await;
    assert!(more.is_err(), "{more:?}");
    for ask in first {
        agent.answer(answer(&ask, 5, &["line"])).await;
    }
    for _ in 0..4 {
        let ask = agent.asked().await;
        agent.answer(answer(&ask, 5, &["line"])).await;
    }
    tasks.wait().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_replica_that_is_gone_is_read_and_its_end_says_why() {
    let running = controller(Vec::new()).await;
    let added = serde_json::from_value(definition("m", "1GiB")).unwrap();
    running.handle.add(added).await.unwrap();
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let replica = agent.told().await.replicas[0].id;
    agent.report(ReplicaState::Ready).await;
    routed(&running.handle, "m", 1).await;
    running.handle.remove(&name("m")).await.unwrap();
    while !agent.told().await.replicas.is_empty() {}
    agent.report_replicas(Vec::new()).await;

    let telling = async {
        let ask = agent.asked().await;
        let end = Some(LogEnd {
            reason: LogEnded::Stopped,
            text: "stopped".to_owned(),
        });
        let told = LogAnswer {
            end,
            ..answer(&ask, 9, &["goodbye"])
        };
        agent.answer(told).await;
    };
    let reading = running
        .handle
        .read_log(replica, LogFrom::After(0), LONGEST_WAIT);
    let (part, ()) = tokio::join!(reading, telling);
    let part = part.unwrap();
    assert_eq!(part.lines, ["goodbye"]);
    assert_eq!(part.end.unwrap().text, "stopped: its model was removed");

    let telling = async {
        let ask = agent.asked().await;
        agent
            .answer(LogAnswer::without_lines(&ask, LogProblem::NoLog))
            .await;
    };
    let reading = running
        .handle
        .read_log(replica, LogFrom::After(0), LONGEST_WAIT);
    let (part, ()) = tokio::join!(reading, telling);
    let (code, message) = refusal(part);
    assert_eq!(
        (code, message),
        (Code::NotFound, format!("box has no log of {replica}"))
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_its_node_has_not_heard_of_has_written_nothing_yet() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let replica = agent.told().await.replicas[0].id;
    let telling = async {
        loop {
            let ask = agent.asked().await;
            agent
                .answer(LogAnswer::without_lines(&ask, LogProblem::NoLog))
                .await;
        }
    };
    let begun = tokio::time::Instant::now();
    let wait = Duration::from_secs(3);
    let reading = running.handle.read_log(replica, LogFrom::After(0), wait);
    let part = tokio::select! {
        part = reading => part.unwrap(),
        () = telling => panic!("it tells for ever"),
    };
    assert!(part.is_empty(), "{part:?}");
    assert_eq!(begun.elapsed(), wait);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_can_be_read_while_the_model_is_tried_again() {
    let running = controller(vec![model("m", "1GiB")]).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let mut fail = async |line: &str| {
        let spec = agent.told().await.replicas[0].clone();
        let id = spec.id;
        agent
            .report_replicas(vec![ReplicaStatus {
                spec,
                state: ReplicaState::Failed,
                since: Timestamp(0),
                endpoint: None,
                fetch: None,
                measured: None,
                error: Some(format!("it said {line}")),
                hint: None,
                log_tail: vec![line.to_owned()],
            }])
            .await;
        while agent.told().await.replicas.iter().any(|one| one.id == id) {}
    };
    fail("first").await;
    fail("second").await;
    let logs = running.handle.logs(&name("m")).await.unwrap();
    let told: Vec<_> = logs
        .iter()
        .map(|log| (log.of, log.error.as_deref(), log.lines.as_slice()))
        .collect();
    let expected = ["first".to_owned()];
    assert_eq!(
        told,
        [(
            LogOf::FirstFailure,
            Some("it said second: second"),
            expected.as_slice()
        )]
    );
    let models = running.handle.models().await.unwrap();
    assert_eq!((models[0].parked, models[0].failures), (false, 2));
    running.stop().await;
}
