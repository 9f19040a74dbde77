//! An engine's events coming in: split, edited, counted, and ended honestly.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;

use super::{
    account::Account,
    dialect::{ErrorShape, Stream},
    guard::HeldEvents,
    refusal::{EngineError, Refusal},
    rewrite::{Ending, EventRewriter, Output, Part, Seen},
    sse::{Payload, Splitter, payload},
    translate::{Interpreter, Reply, unreadable},
    wire::Exchange,
};
use crate::{
    error::{Chain, Code},
    metrics::Stage,
};

/// The events of one answer. Only whole events are passed on, so that what ends a broken stream can stand
/// behind them.
#[derive(Debug)]
pub(super) struct Feed {
    /// Dropped, and with it the engine's work, as soon as the stream is over.
    exchange: Option<Exchange>,
    splitter: Splitter,
    rewriter: EventRewriter,
    /// Puts chunks back into the client's API, where that is another.
    interpreter: Option<Box<dyn Interpreter>>,
    errors: ErrorShape,
    state: State,
    /// Events that came until now.
    passed: u32,
    /// Edited events that are not passed on yet.
    pub(super) out: Output,
    /// Events that are being checked; absent when nobody looks at the answer.
    held: Option<Box<HeldEvents>>,
    /// How the engine's answer ended, when what is held waits still.
    ended: Option<Option<String>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// No event with data has come.
    Silent,
    /// Events are coming.
    Open,
    /// The last event has come; the end of the answer has not.
    Done,
    /// Nothing will come any more.
    Over,
}

/// Why a stream did not begin.
#[derive(Debug)]
pub(super) enum Stillborn {
    /// The engine's first event is an error.
    Refused(Refusal),
    /// The engine went away before it said anything.
    Died(String),
}

// === impl Feed ===

impl Feed {
    pub(super) fn new(
        exchange: Exchange,
        rewriter: EventRewriter,
        (reply, errors): (Option<&Reply>, ErrorShape),
        event_limit: usize,
    ) -> Self {
        Self {
            exchange: Some(exchange),
            splitter: Splitter::new(event_limit),
            rewriter,
            interpreter: reply.map(Reply::interpreter),
            errors,
            state: State::Silent,
            passed: 0,
            out: Output::default(),
            held: None,
            ended: None,
        }
    }

    /// The same, with events that are checked before they pass.
    pub(super) fn watched(self, held: Option<Box<HeldEvents>>) -> Self {
        Self { held, ..self }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Waits for the first event with data, before the client is told that all is well.
    pub(super) async fn begin(&mut self, account: &mut Account) -> Result<(), Stillborn> {
        while self.state == State::Silent && self.out.len() < PATIENCE {
            poll_fn(|cx| self.poll_more(cx, account)).await?;
        }
        Ok(())
    }

    /// Takes one more piece of the answer. An error before the first event is returned; a later one is written
    /// as the last event.
    pub(super) fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        account: &mut Account,
    ) -> Poll<Result<(), Stillborn>> {
        if self.held.as_ref().is_some_and(|held| held.is_judged()) {
            return self.poll_judged(cx, account);
        }
        if let Some(broke) = self.ended.take() {
            return Poll::Ready(self.end(broke, account));
        }
        let Some(exchange) = &mut self.exchange else {
            self.state = State::Over;
            return Poll::Ready(Ok(()));
        };
        let Poll::Ready(piece) = exchange.poll_chunk(cx) else {
            account.overhead.wait_for_engine();
            return Poll::Pending;
        };
        account.overhead.enter(Stage::Respond);
        let broke = match piece {
            Some(Ok(piece)) => {
                self.splitter.push(piece);
                return Poll::Ready(self.take_events(account));
            }
            None => None,
            Some(Err(error)) => Some(format!("the engine broke off: {}", Chain(&error))),
        };
        if self.held.is_some() && self.state != State::Done {
            // Once: what is asked for then is waited for, and no more is taken.
            self.ended = Some(broke);
            return Poll::Ready(self.take_rest(account));
        }
        Poll::Ready(self.end(broke, account))
    }

    /// The engine's answer is over: with its end, or because it broke.
    fn end(&mut self, broke: Option<String>, account: &mut Account) -> Result<(), Stillborn> {
        let ended = match broke {
            None => self.ended_so(account).map(str::to_owned),
            broke => broke,
        };
        match (ended, self.state) {
            (Some(how), State::Silent) if self.out.len() < PATIENCE => Err(Stillborn::Died(how)),
            (Some(how), State::Silent | State::Open) => {
                self.fail(&Refusal::new(Code::UpstreamDisconnected, how), account);
                Ok(())
            }
            (None, _) | (_, State::Done | State::Over) => {
                self.close();
                Ok(())
            }
        }
    }

    /// Waits for models that judge what is held.
    fn poll_judged(
        &mut self,
        cx: &mut Context<'_>,
        account: &mut Account,
    ) -> Poll<Result<(), Stillborn>> {
        let Some(held) = &mut self.held else {
            return Poll::Ready(Ok(()));
        };
        let Poll::Ready(judged) = held.poll_judged(cx, account) else {
            account.overhead.wait_for_engine();
            return Poll::Pending;
        };
        account.overhead.enter(Stage::Respond);
        Poll::Ready(match judged {
            Ok(()) => self.take_checked(account),
            Err(refusal) => self.block(refusal, account),
        })
    }

    /// Takes what is held when no more will come.
    fn take_rest(&mut self, account: &mut Account) -> Result<(), Stillborn> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        match held.finish(account) {
            Ok(()) => self.take_checked(account),
            Err(refusal) => self.block(refusal, account),
        }
    }

    /// Takes the events that have been checked.
    fn take_checked(&mut self, account: &mut Account) -> Result<(), Stillborn> {
        while let Some(event) = self.held.as_mut().and_then(|held| held.next_event()) {
            self.take(event, account)?;
        }
        Ok(())
    }

    /// What is held must not pass.
    fn block(&mut self, refusal: Refusal, account: &mut Account) -> Result<(), Stillborn> {
        self.held = None;
        self.refuse(refusal, account)
    }

    /// Ends the stream with an error event; nothing comes after it.
    pub(super) fn fail(&mut self, refusal: &Refusal, account: &mut Account) {
        // What was said before is said, as far as it may be.
        if let Some(mut held) = self.held.take().filter(|held| !held.is_judged())
            && held.finish(account).is_ok()
        {
            while let Some(event) = held.next_event() {
                if self.seen(event).is_err() {
                    break;
                }
            }
        }
        if self.state != State::Done {
            self.out
                .extend(&refusal.event(self.errors, self.passed.into()));
            account.ended(refusal.status());
        }
        self.close();
    }

    /// The engine ended its answer: what is missing in it.
    fn ended_so(&mut self, account: &mut Account) -> Option<&'static str> {
        // An engine may leave out the empty line after the very last event.
        match self.rewriter.dialect().stream {
            Stream::Chunks if is_done(self.splitter.rest()) => self.done(account),
            Stream::Chunks => {}
            Stream::Typed(_) if self.splitter.rest().is_empty() => {}
            Stream::Typed(_) => {
                self.splitter.push(Bytes::from_static(b"\n\n"));
                // What an error at this place says is said by the end.
                drop(self.take_events(account));
            }
        }
        match (self.state, self.rewriter.dialect().stream) {
            (State::Done | State::Over, _) => None,
            (_, Stream::Chunks) => Some("the engine ended the stream without [DONE]"),
            (_, Stream::Typed(_)) => Some("the engine ended the stream without its last event"),
        }
    }

    fn take_events(&mut self, account: &mut Account) -> Result<(), Stillborn> {
        loop {
            let event = match self.splitter.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(too_large) => {
                    return self.refuse(
                        Refusal::new(Code::UpstreamError, too_large.to_string()),
                        account,
                    );
                }
            };
            match &mut self.held {
                None => self.take(event, account)?,
                Some(held) => {
                    let is_end = is_done(&event);
                    let mut checked = held.push(event, account);
                    if is_end && checked.is_ok() {
                        checked = held.finish(account);
                    }
                    match checked {
                        Ok(()) => self.take_checked(account)?,
                        Err(refusal) => return self.block(refusal, account),
                    }
                }
            }
        }
    }

    /// Takes one event, and passes it on as the client should see it.
    fn take(&mut self, event: Bytes, account: &mut Account) -> Result<(), Stillborn> {
        if matches!(self.state, State::Done | State::Over) {
            // Nothing may follow the end.
            return Ok(());
        }
        let seen = match self.seen(event) {
            Ok(seen) => seen,
            Err(refusal) => return self.refuse(refusal, account),
        };
        if seen != Seen::Other {
            self.passed = self.passed.saturating_add(1);
        }
        let usage = match seen {
            Seen::Other => None,
            Seen::Part(part) => {
                self.part(part, account);
                None
            }
            Seen::Opening => {
                self.state = State::Open;
                None
            }
            Seen::Usage(usage) => Some(usage),
            Seen::Content(content) => {
                self.state = State::Open;
                account.content(content.count);
                if let Some(usage) = content.usage {
                    account.usage_beside(&content.choices, usage);
                }
                None
            }
            Seen::Error(body) => {
                let error = EngineError {
                    status: None,
                    headers: None,
                    body: &body,
                };
                return self.refuse(error.into(), account);
            }
            Seen::Done => {
                self.done(account);
                None
            }
        };
        if let Some(usage) = usage {
            self.state = State::Open;
            account.usage(usage);
        }
        Ok(())
    }

    /// Passes an event on, in the client's API.
    fn seen(&mut self, event: Bytes) -> Result<Seen, Refusal> {
        let Some(interpreter) = &mut self.interpreter else {
            return Ok(self.rewriter.event(event, &mut self.out));
        };
        let mut chunk = Output::default();
        let seen = self.rewriter.event(event, &mut chunk);
        let chunk = chunk.take();
        // Comments are no part of an answer.
        if let Payload::Data(data) = payload(&chunk) {
            let data = chunk.get(data).unwrap_or_default();
            let put = interpreter.chunk(data, &mut self.out);
            put.map_err(|error| unreadable(&error))?;
        }
        Ok(seen)
    }

    fn part(&mut self, part: Part, account: &mut Account) {
        let Part { pieces, usage, end } = part;
        self.state = State::Open;
        if pieces > 0 {
            account.content(pieces);
        }
        if let Some(usage) = usage {
            account.usage_in_parts(usage);
        }
        if let Some(end) = end {
            self.state = State::Done;
            account.ended(match end {
                Ending::Whole => StatusCode::OK,
                Ending::Failed => StatusCode::BAD_GATEWAY,
            });
        }
    }

    fn refuse(&mut self, refusal: Refusal, account: &mut Account) -> Result<(), Stillborn> {
        if self.state == State::Silent && self.out.len() < PATIENCE {
            self.close();
            return Err(Stillborn::Refused(refusal));
        }
        self.fail(&refusal, account);
        Ok(())
    }

    fn done(&mut self, account: &mut Account) {
        self.state = State::Done;
        match &mut self.interpreter {
            Some(interpreter) => interpreter.end(&mut self.out),
            None => self.out.push(Bytes::from_static(b"data: [DONE]\n\n")),
        }
        account.ended(StatusCode::OK);
    }

    fn close(&mut self) {
        self.state = State::Over;
        self.exchange = None;
    }
}

/// An engine that fills the wait with comments is not held back for ever.
const PATIENCE: usize = 32 << 10;

fn is_done(rest: &[u8]) -> bool {
    rest.trim_ascii() == b"data: [DONE]"
}
