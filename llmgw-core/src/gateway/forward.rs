//! Stage 7, forward: sends the call to a replica, and to another one where that can help.
//!
//! Nothing is sent again once the engine has said anything: not after a status, not after an event. Before
//! that, three things may be tried again:
//! * a connection that was kept from an earlier call and had died: once more on a fresh one, same replica;
//! * a replica that can't be connected to: the next replica;
//! * a replica that went away with the call in its hands: the next replica, but only once, because the call may
//!   be what ends it.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, header, response};
use tokio::time::Instant;

use super::{
    account::Account,
    call::{REQUEST_ID, Trail},
    dialect::{Dialect, ErrorShape},
    feed::{Feed, Stillborn},
    guard::{HeldEvents, Watch},
    pick::pick,
    prompt::Prompt,
    refusal::Refusal,
    rewrite::EventRewriter,
    splice::Spliced,
    translate::Reply,
    upstreams::{LoadGuard, Upstreams},
    wire::{Exchange, Wire},
};
use crate::{
    error::{Chain, Code},
    gateway::GatewayConfig,
    metrics::Stage,
    route::ModelRoute,
};

/// A call as the engine gets it.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) dialect: &'static Dialect,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Spliced,
    /// The model as the client calls it.
    pub(super) model: &'a str,
    pub(super) strip_usage: bool,
    /// How answers are put back, when the client speaks another API; and the form of its errors.
    pub(super) reply: (Option<&'a Reply>, ErrorShape),
    /// What it is chosen by who gets it.
    pub(super) prompt: Prompt,
    /// Who looks at its answer; absent when nobody does.
    pub(super) watch: Option<&'a Arc<Watch>>,
}

/// What an engine answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// Anything but a stream, an error too.
    Unary(Box<response::Parts>, Exchange),
    /// A stream whose first event is there and is no error.
    Events(Box<Feed>),
}

/// Where the call goes, and with what.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    pub(super) config: &'a GatewayConfig,
    pub(super) upstreams: &'a Arc<Upstreams>,
    pub(super) route: &'a ModelRoute,
    pub(super) outgoing: &'a Outgoing<'a>,
}

/// Why an attempt came to nothing.
#[derive(Debug)]
enum Failure {
    /// Nobody listens there.
    Unreachable(String),
    /// The connection ended with the call in its hands.
    Died { how: String, reused: bool },
    /// The engine said no.
    Refused(Refusal),
}

/// Whether an attempt may use a connection that was kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Connection {
    Any,
    Fresh,
}

// === impl Outgoing ===

impl Outgoing<'_> {
    /// The headers that an engine gets. A short list of those that pass, not of those that don't: what a client
    /// may say to an engine is in the body.
    pub(super) fn headers(
        client: &HeaderMap,
        form: Option<&HeaderValue>,
        trail: &Trail,
    ) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(12);
        for name in PASSED {
            if let Some(value) = client.get(name) {
                headers.insert(name, value.clone());
            }
        }
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, form.cloned().unwrap_or(json));
        headers.insert(REQUEST_ID, trail.request_id.clone());
        headers
    }
}

// === impl Answer ===

impl Answer {
    /// Whether the engine says that it has failed.
    fn is_failure(&self) -> bool {
        matches!(self, Self::Unary(head, _) if head.status.is_server_error())
    }
}

// === impl Forward ===

impl Forward<'_> {
    /// Gets an answer.
    pub(super) async fn send(
        &self,
        trail: &mut Trail,
        account: &mut Account,
    ) -> Result<Answer, Refusal> {
        let timeout = self.config.first_byte_timeout;
        tokio::time::timeout(timeout, self.try_replicas(trail, account))
            .await
            .unwrap_or_else(|_| {
                let message = format!("the engine said nothing for {} s", timeout.as_secs_f32());
                Err(Refusal::new(Code::UpstreamTimeout, message))
            })
    }

    async fn try_replicas(
        &self,
        trail: &mut Trail,
        account: &mut Account,
    ) -> Result<Answer, Refusal> {
        let mut tried = Vec::new();
        let mut deaths = 0;
        let mut last: Option<Refusal> = None;
        loop {
            account.overhead.enter(Stage::Pick);
            let load = match pick(self.route, &tried, self.upstreams, &self.outgoing.prompt) {
                Ok(load) => load,
                Err(none) => return Err(last.unwrap_or_else(|| none.into())),
            };
            let upstream = Arc::clone(load.upstream());
            let replica = upstream.endpoint.replica;
            account.replica(replica);
            trail.attempt(&upstream.header);
            let mut outcome = self.attempt(load, Connection::Any, account).await;
            if let Err(Failure::Died { reused: true, .. }) = &outcome
                && trail.attempts() < self.config.max_attempts
            {
                trail.attempt(&upstream.header);
                outcome = self
                    .attempt(
                        upstream.begin(self.outgoing.prompt.tokens, Instant::now()),
                        Connection::Fresh,
                        account,
                    )
                    .await;
            }
            let how = match outcome {
                Ok(answer) => {
                    if answer.is_failure() {
                        upstream.fail();
                    } else {
                        upstream.succeed();
                    }
                    return Ok(answer);
                }
                Err(Failure::Refused(refusal)) => {
                    upstream.succeed();
                    return Err(refusal);
                }
                Err(Failure::Unreachable(how)) => how,
                Err(Failure::Died { how, .. }) => {
                    deaths += 1;
                    how
                }
            };
            upstream.fail();
            let request = trail.request_id.to_str().unwrap_or_default();
            tracing::warn!(request, model = %self.route.name, %replica, how, "a replica failed a call");
            let refusal = Refusal::new(
                Code::UpstreamDisconnected,
                format!("replica {replica} failed: {how}"),
            );
            if deaths > MAX_DEATHS || trail.attempts() >= self.config.max_attempts {
                return Err(refusal);
            }
            last = Some(refusal);
            tried.push(replica);
        }
    }

    async fn attempt(
        &self,
        load: LoadGuard,
        connection: Connection,
        account: &mut Account,
    ) -> Result<Answer, Failure> {
        account.overhead.enter(Stage::Send);
        let upstream = load.upstream();
        let kept = match connection {
            Connection::Any => upstream.take(self.config.upstream_idle),
            Connection::Fresh => None,
        };
        let mut wire = match kept {
            Some(wire) => wire,
            None => Wire::connect(upstream.endpoint, self.config.connect_timeout)
                .await
                .map_err(|error| Failure::Unreachable(error.to_string()))?,
        };
        let reused = wire.reused;
        let died = |how: String| Failure::Died { how, reused };
        let request = self.request(&upstream.host);
        let response = wire
            .send(request, || account.overhead.wait_for_engine())
            .await
            .map_err(|error| died(Chain(&error).to_string()))?;
        account.overhead.enter(Stage::Respond);
        let (head, body) = response.into_parts();
        let exchange = Exchange::new(wire, body, load);
        if !is_events(&head) {
            return Ok(Answer::Unary(Box::new(head), exchange));
        }
        let Outgoing {
            dialect,
            model,
            strip_usage,
            reply,
            ..
        } = self.outgoing;
        let rewriter = EventRewriter::new(dialect, model, *strip_usage);
        let limit = usize::try_from(self.config.event_limit.0).unwrap_or(usize::MAX);
        let watch = self.outgoing.watch.map(Arc::clone);
        let held = watch.and_then(HeldEvents::new);
        let mut feed = Feed::new(exchange, rewriter, *reply, limit).watched(held);
        match feed.begin(account).await {
            Ok(()) => Ok(Answer::Events(Box::new(feed))),
            Err(Stillborn::Refused(refusal)) => Err(Failure::Refused(refusal)),
            // Its head came over this connection, which therefore was alive.
            Err(Stillborn::Died(how)) => Err(Failure::Died { how, reused: false }),
        }
    }

    fn request(&self, host: &HeaderValue) -> Request<Spliced> {
        let mut request = Request::new(self.outgoing.body.clone());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(self.outgoing.dialect.path);
        let headers = request.headers_mut();
        headers.clone_from(self.outgoing.headers);
        headers.insert(header::HOST, host.clone());
        request
    }
}

fn is_events(head: &response::Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    head.status.is_success() && kind.starts_with("text/event-stream")
}

const PASSED: [&str; 5] = [
    "accept",
    "traceparent",
    "tracestate",
    "anthropic-version",
    "anthropic-beta",
];

/// A call that was in the hands of two replicas when they went away is not given to a third.
const MAX_DEATHS: u32 = 1;
