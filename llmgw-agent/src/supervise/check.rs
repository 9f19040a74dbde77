//! Whether an engine works: it is healthy, it is the right one, it computes.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use llmgw_core::cluster::replica::ReplicaSpec;

use super::{
    ask::{Answer, Unanswered, get, post},
    blocking, listener,
};
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
        let (health, ready) = (self.engine.health_path(), self.engine.ready_path());
        if ready != health {
            let answer = get(self.port, ready, self.within).await?;
            ok("the question whether it is ready", &answer)?;
        }
        if !self.is_the_replica().await? {
            let problem = format!("port {} is answered by another program", self.port);
            return Err(Unanswered::Engine(problem));
        }
        if self.proof == Proof::TokenOrWork && self.busy().await.is_ok_and(|requests| requests > 0)
        {
            return Ok(());
        }
        let Some((path, body)) = self.engine.probe_request(self.spec) else {
            return Ok(());
        };
        let answer = post(self.port, path, &body, token_within).await?;
        ok("the request for a token", &answer)?;
        if !self.engine.probe_answered(&answer.body) {
            let problem = "it answered the request for a token without one";
            return Err(Unanswered::Engine(problem.to_owned()));
        }
        Ok(())
    }

    async fn is_the_replica(&self) -> Result<bool, Unanswered> {
        let (port, id) = (self.port, self.spec.id);
        let Some(path) = self.engine.identity_path() else {
            // An engine that knows no names is known by who holds its port.
            let belongs = blocking(move || listener::belongs(port, id)).await;
            return belongs.map_err(Unanswered::Unasked);
        };
        let answer = get(port, path, self.within).await?;
        ok("the question for its name", &answer)?;
        Ok(self.engine.is_identity(&answer.body, id))
    }

    /// How many requests it says it computes.
    ///
    /// # Errors
    /// When it does not say, or why that can't be told.
    pub(super) async fn busy(&self) -> Result<usize, Unanswered> {
        let silent = || Unanswered::Engine("it does not say how busy it is".to_owned());
        let path = self.engine.busy_path().ok_or_else(silent)?;
        let answer = get(self.port, path, self.within).await?;
        ok("the question for its work", &answer)?;
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
