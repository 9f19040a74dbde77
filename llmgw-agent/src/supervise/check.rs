//! Whether an engine works: it is healthy, it is the right one, it computes.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use llmgw_core::cluster::replica::ReplicaSpec;

use super::ask::{Answer, Unanswered, get, post};
use crate::engine::Engine;

/// Asks the engine of one replica.
#[derive(Debug)]
pub(super) struct Checks<'a> {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) spec: &'a ReplicaSpec,
    pub(super) port: u16,
    pub(super) within: Duration,
    pub(super) proof: Proof,
}

/// What shows that an engine computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Proof {
    /// A token that was asked for: of an engine that nobody else uses yet.
    Token,
    /// A token, or work for others: an engine that was taken over may be busy for minutes, and what is asked
    /// of it then waits behind those who came before.
    TokenOrWork,
}

impl Checks<'_> {
    /// Whether it says that it is healthy.
    ///
    /// # Errors
    /// Why not, or why that can't be told.
    pub(super) async fn healthy(&self) -> Result<(), Unanswered> {
        let answer = get(self.port, self.engine.health_path(), self.within).await?;
        ok("its health check", &answer)
    }

    /// Whether it is ready: healthy, the right replica, and able to compute a token within `token_within`.
    ///
    /// # Errors
    /// Why not, or why that can't be told.
    pub(super) async fn ready(&self, token_within: Duration) -> Result<(), Unanswered> {
        self.healthy().await?;
        let answer = get(self.port, self.engine.identity_path(), self.within).await?;
        ok("the question for its name", &answer)?;
        if !self.engine.is_identity(&answer.body, self.spec.id) {
            let problem = format!("port {} is answered by another program", self.port);
            return Err(Unanswered::Engine(problem));
        }
        if self.proof == Proof::TokenOrWork && self.busy().await.is_ok_and(|requests| requests > 0)
        {
            return Ok(());
        }
        let (path, body) = self.engine.probe_request(self.spec);
        let answer = post(self.port, path, &body, token_within).await?;
        ok("the request for a token", &answer)?;
        if !self.engine.probe_answered(&answer.body) {
            let problem = "it answered the request for a token without one";
            return Err(Unanswered::Engine(problem.to_owned()));
        }
        Ok(())
    }

    /// How many requests it says it computes.
    ///
    /// # Errors
    /// When it does not say, or why that can't be told.
    pub(super) async fn busy(&self) -> Result<usize, Unanswered> {
        let answer = get(self.port, self.engine.busy_path(), self.within).await?;
        ok("the question for its work", &answer)?;
        let silent = || Unanswered::Engine("it does not say how busy it is".to_owned());
        self.engine.busy(&answer.body).ok_or_else(silent)
    }
}

fn ok(what: &str, answer: &Answer) -> Result<(), Unanswered> {
    if answer.status == StatusCode::OK {
        return Ok(());
    }
    let problem = format!("{what} was answered with {}", answer.status);
    Err(Unanswered::Engine(problem))
}
