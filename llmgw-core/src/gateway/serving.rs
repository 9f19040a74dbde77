//! The stages of a call that has an account: its model is woken, a replica picked, the call sent, the answer begun.
//! When its model can't serve, the same with those that it falls back to.
//!
//! All that a call needs from here on is in one value of its own, so that it can go on behind an answer that has
//! begun already with comments.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Response, StatusCode, response};
use tokio::time::Instant;

use super::{
    Shared,
    account::Account,
    authorise::may_use,
    bulletin::Bulletin,
    call::Trail,
    forward::{Answer, Forward, Outgoing},
    guard::{WATCHED, Watch},
    identify::Caller,
    idle::Idle,
    inspect::Inspected,
    refusal::{EngineError, Refusal},
    resolve::Waking,
    respond::{self, AnswerBody},
    translate::Reply,
    wire::Exchange,
};
use crate::{error::Code, metrics::Stage, route::ModelRoute};

/// A call on its way to an engine.
#[derive(Debug)]
pub(super) struct Serving {
    shared: Arc<Shared>,
    /// What the engine gets of the client's headers, and of ours.
    headers: HeaderMap,
    asked: Inspected,
    caller: Caller,
    route: Arc<ModelRoute>,
    /// Who looks at what is said; absent for a call of the guard's own.
    watch: Option<Arc<Watch>>,
    trail: Trail,
    account: Option<Account>,
    bulletin: Bulletin,
}

// === impl Serving ===

impl Serving {
    pub(super) fn new(
        shared: &Arc<Shared>,
        client: &HeaderMap,
        asked: Inspected,
        (caller, route, watch): (Caller, Arc<ModelRoute>, Option<Arc<Watch>>),
        trail: Trail,
        account: Account,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            headers: Outgoing::headers(client, asked.form.as_ref(), &trail),
            asked,
            caller,
            route,
            watch,
            trail,
            account: Some(account),
            bulletin: Bulletin::default(),
        }
    }

    /// The answer, or its beginning; and the trail of the call until then.
    pub(super) async fn run(mut self) -> (Trail, Result<Response<AnswerBody>, Refusal>) {
        let answered = self.answer().await;
        if let Some(account) = &mut self.account {
            account.ended(match &answered {
                Ok(response) => response.status(),
                Err(refusal) => refusal.status(),
            });
        }
        (self.trail, answered)
    }

    /// The same; but once the call waits for its model, the answer begins with comments on that.
    pub(super) async fn tell(
        mut self,
        trail: &mut Trail,
        interval: Duration,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (bulletin, told) = Bulletin::new();
        self.bulletin = bulletin;
        let mut waits = told.clone();
        let cut = self.shared.cut.clone().cancelled_owned();
        let shape = self.asked.errors;
        let mut work = Box::pin(self.run());
        tokio::select! {
            biased;
            (after, answered) = &mut work => {
                *trail = after;
                return answered;
            }
            // It ends with the work at the latest, which is looked at first.
            _ = waits.wait_for(Option::is_some) => {}
        }
        Ok(respond::progress(
            Box::pin(async move { work.await.1 }),
            (told, shape),
            interval,
            cut,
        ))
    }

    async fn answer(&mut self) -> Result<Response<AnswerBody>, Refusal> {
        // 6. guard
        if let (Some(watch), Some(account)) = (&self.watch, &mut self.account) {
            watch
                .request(&mut self.asked, account, &mut self.trail)
                .await?;
        }
        if let Some(account) = &mut self.account {
            account.goes();
        }
        if self.is_known_to_be_lacked() {
            self.translate()?;
        }
        let answer = match self.reach_any().await? {
            Answer::Unary(head, exchange) if self.may_be_lacked(head.status) => {
                self.reach_otherwise(&head, exchange).await?
            }
            answer => answer,
        };
        // 9. account, along with 10. respond
        let Self {
            shared,
            asked,
            account,
            watch,
            trail,
            ..
        } = self;
        let watch = watch
            .as_ref()
            .filter(|watch| watch.looks_at_answers(asked.dialect));
        let config = &shared.config;
        let cut = shared.cut.clone().cancelled_owned();
        match answer {
            Answer::Unary(head, exchange) => {
                let mut bounds = config.unary_bounds();
                if watch.is_some() {
                    bounds.hold = bounds.hold.max(WATCHED);
                }
                let response = respond::unary(*head, exchange, asked, account, bounds, cut).await?;
                match watch {
                    None => Ok(response),
                    Some(watch) => watch.answer(response, account.as_mut(), trail).await,
                }
            }
            Answer::Events(feed) => {
                let idle = Idle::new(config.idle_timeout);
                let kind = asked
                    .reply
                    .as_ref()
                    .map_or(respond::EVENTS, Reply::stream_kind);
                Ok(respond::stream((*feed, kind), account.take(), idle, cut))
            }
        }
    }

    /// Whether none of the model's replicas has the API, as far as they were asked.
    fn is_known_to_be_lacked(&self) -> bool {
        let Self {
            shared,
            asked,
            route,
            ..
        } = self;
        let lacks = |endpoint| shared.upstreams.entry(endpoint).lacks(asked.dialect.path);
        asked.dialect.otherwise.is_some()
            && !route.endpoints.is_empty()
            && route.endpoints.iter().copied().all(lacks)
    }

    /// Whether the engine may say that it has not the API, and there is another for the same.
    fn may_be_lacked(&self, status: StatusCode) -> bool {
        let is_lack = matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        is_lack && self.asked.dialect.otherwise.is_some()
    }

    /// Asks again in another API, when the engine has not this one; else refuses what it refused.
    async fn reach_otherwise(
        &mut self,
        head: &response::Parts,
        mut exchange: Exchange,
    ) -> Result<Answer, Refusal> {
        let mut idle = Idle::new(self.shared.config.idle_timeout);
        let account = self.account.as_mut();
        let body = respond::error_body(&mut exchange, &mut idle, account).await;
        let error = EngineError {
            status: Some(head.status),
            headers: Some(&head.headers),
            body: &body,
        };
        if !error.lacks_path() {
            return Err(error.into());
        }
        exchange.upstream().note_lack(self.asked.dialect.path);
        drop(exchange);
        self.translate()?;
        self.reach_any().await
    }

    /// Puts the call into the API that engines have for the same.
    fn translate(&mut self) -> Result<(), Refusal> {
        let Some(translation) = self.asked.dialect.otherwise else {
            return Ok(());
        };
        let at = self.shared.clock.now();
        let translated = translation.request(&self.asked.text(), self.asked.errors, at)?;
        self.asked = Inspected::of_translated(translated)?;
        Ok(())
    }

    /// Asks the model; and when it can't serve, those that it falls back to, in their order, until one answers.
    async fn reach_any(&mut self) -> Result<Answer, Refusal> {
        let deadline = Instant::now() + self.shared.queue.patience();
        let asked = Arc::clone(&self.route);
        let refusal = match self.reach(&asked, deadline).await {
            Err(refusal) if refusal.lets_fall_back() => refusal,
            reached => return reached,
        };
        let mut tried = Vec::new();
        loop {
            let table = self.shared.table();
            let admission = &self.shared.admission;
            let allowed = |model: &ModelRoute| {
                may_use(&self.caller, model) && admission.may_cost(&self.caller, &model.name)
            };
            let Some(route) = table.fallback(&asked, &tried, allowed) else {
                break;
            };
            tried.push(route.name.clone());
            let (from, to) = (&asked.name, &route.name);
            let why = refusal.object().message;
            tracing::info!(%from, %to, why, "a call goes to the model that its own falls back to");
            match self.reach(route, deadline).await {
                Err(refusal) if refusal.lets_fall_back() => {}
                reached => {
                    self.trail.fell_back(from, to);
                    return reached;
                }
            }
        }
        // It is refused for what is wrong with the model that it asked for.
        self.trail.model(&asked.name);
        if let Some(account) = &mut self.account {
            account.model(&asked.name);
        }
        Err(refusal.and_fallbacks(&tried))
    }

    /// Wakes a model, and sends it the call: the beginning of its answer.
    async fn reach(
        &mut self,
        route: &Arc<ModelRoute>,
        deadline: Instant,
    ) -> Result<Answer, Refusal> {
        let Self {
            shared,
            headers,
            asked,
            trail,
            account,
            bulletin,
            caller,
            watch,
            ..
        } = self;
        let Some(account) = account else {
            return Err(Refusal::new(Code::Internal, "the call has no account"));
        };
        trail.model(&route.name);
        account.model(&route.name);
        let config = &shared.config;
        let waking = Waking {
            config,
            routes: &shared.routes,
            activation: &*shared.activation,
            queue: &shared.queue,
            deadline,
            bulletin,
        };
        if route.endpoints.is_empty() {
            account.overhead.enter(Stage::Queue);
        }
        let route = waking.awake(Arc::clone(route), &caller.tenant()).await?;
        account.overhead.enter(Stage::Pick);
        // 7. pick, and 8. forward: again with another pick, where that can help
        let outgoing = Outgoing {
            dialect: asked.dialect,
            headers,
            body: asked.for_engine(&route.name),
            strip_usage: !asked.asked_usage,
            reply: (asked.reply.as_ref(), asked.errors),
            model: &asked.model,
            prompt: asked.prompt(&shared.prompt_key, &route.name),
            watch: watch
                .as_ref()
                .filter(|watch| watch.looks_at_answers(asked.dialect)),
        };
        let forward = Forward {
            config,
            upstreams: &shared.upstreams,
            route: &route,
            outgoing: &outgoing,
        };
        forward.send(trail, account).await
    }
}
