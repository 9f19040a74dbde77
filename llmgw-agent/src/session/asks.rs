//! Questions of the control plane about logs: each is answered once, and a few are answered at a time.

use std::{convert::Infallible, fmt, future::pending};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use llmgw_core::api::log::{LogAnswer, LogAsk, LogProblem};
use tokio::sync::mpsc;

/// Tells what engines wrote.
///
/// # Contract
/// * `read` answers every question once, with its number: at once when there is something to tell, else within the time
///   that the question allows.
/// * Dropping the future costs nothing but the answer. Several may be under way.
#[async_trait]
pub trait EngineLogs: fmt::Debug + Send + Sync {
    /// Answers a question.
    async fn read(&self, ask: &LogAsk) -> LogAnswer;
}

/// Where questions go in, and answers come out.
#[derive(Debug)]
pub(super) struct Desk {
    asks: mpsc::Sender<LogAsk>,
    answers: mpsc::Sender<LogAnswer>,
}

/// What stands behind a [`Desk`].
#[derive(Debug)]
pub(super) struct Clerk {
    asks: mpsc::Receiver<LogAsk>,
    answers: mpsc::Sender<LogAnswer>,
}

/// A desk, who answers there, and the answers.
pub(super) fn desk() -> (Desk, Clerk, mpsc::Receiver<LogAnswer>) {
    let (asks, asked) = mpsc::channel(AT_A_TIME);
    // Answers that none are given to are answers too.
    let (answers, answered) = mpsc::channel(AT_A_TIME * 4);
    let desk = Desk {
        asks,
        answers: answers.clone(),
    };
    let clerk = Clerk {
        asks: asked,
        answers,
    };
    (desk, clerk, answered)
}

// === impl Desk ===

impl Desk {
    /// Takes a question in, without waiting: whoever asks more than is answered is told so.
    pub(super) fn take(&self, ask: LogAsk) {
        let Err(mpsc::error::TrySendError::Full(ask)) = self.asks.try_send(ask) else {
            return;
        };
        let busy = LogAnswer::without_lines(&ask, LogProblem::Busy);
        if self.answers.try_send(busy).is_err() {
            tracing::warn!(replica = %ask.replica, "too many questions about logs; one is not answered");
        }
    }
}

// === impl Clerk ===

impl Clerk {
    /// Answers questions for as long as they come.
    pub(super) async fn work(mut self, logs: &dyn EngineLogs) -> Infallible {
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(ask) = self.asks.recv(), if under_way.len() < AT_A_TIME => {
                    under_way.push(async move { logs.read(&ask).await });
                }
                // Whoever sends them may be gone.
                Some(answer) = under_way.next() => drop(self.answers.send(answer).await),
                else => return pending().await,
            }
        }
    }
}

/// Questions that are answered at the same time, and as many that wait: a control plane asks for a few people.
const AT_A_TIME: usize = 16;
