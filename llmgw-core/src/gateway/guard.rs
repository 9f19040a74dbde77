//! Stage 6, guard: what rules say of a call's words, before they go to an engine, and of its answer, before that goes to
//! the client.
//!
//! The rules are taken once for each call: who replaces them changes nothing for a call that is under way. A call that is
//! blocked gives back all that it had reserved, itself included. An answer that is blocked was made, and is paid for.

mod bench;
mod held;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Response, header};

pub(super) use self::{bench::Bench, held::HeldEvents};
use super::{
    Shared,
    account::Account,
    call::Trail,
    dialect::{Dialect, Yields},
    identify::Caller,
    inspect::Inspected,
    refusal::Refusal,
    respond::AnswerBody,
    splice::Edit,
};
use crate::{
    cluster::{
        guard::{Action, Decision, Stage},
        tenancy::Party,
    },
    error::Code,
    guard::{Blocked, Body, Replaced, RuleSet, Verdict},
    metrics::Stage as Doing,
};

/// Looks at what one call says, and at what is answered.
pub(super) struct Watch {
    shared: Arc<Shared>,
    rules: Arc<RuleSet>,
    request_id: HeaderValue,
}

// === impl Watch ===

impl Watch {
    /// By the rules that hold for the caller now.
    pub(super) fn new(shared: &Arc<Shared>, caller: &Caller, request_id: HeaderValue) -> Arc<Self> {
        let rules = shared.guard.rules();
        Arc::new(Self {
            rules: Arc::clone(rules.at(&caller.pass.key().level)),
            shared: Arc::clone(shared),
            request_id,
        })
    }

    /// Whether it looks at answers of this kind at all.
    pub(super) fn looks_at_answers(&self, dialect: &Dialect) -> bool {
        matches!(dialect.yields, Yields::Text | Yields::Media) && self.rules.looks_at(Stage::Output)
    }

    /// Checks what a client sends, and takes out of it what is to be taken out.
    ///
    /// # Errors
    /// When a rule blocks it.
    pub(super) async fn request(
        &self,
        asked: &mut Inspected,
        account: &mut Account,
        trail: &mut Trail,
    ) -> Result<(), Refusal> {
        // The fields of a form are sounds and pictures.
        let Some(json) = asked.json().filter(|_| self.rules.looks_at(Stage::Input)) else {
            return Ok(());
        };
        let mut verdict = self.rules.check_body(Stage::Input, json, Body::Request);
        if verdict.blocked.is_none() && self.rules.judges(Stage::Input).next().is_some() {
            let words = RuleSet::words(json, Body::Request, usize::MAX);
            // It is an engine that is waited for, if not the call's own.
            account.overhead.wait_for_engine();
            let judged = self.ask(Stage::Input, words).await;
            account.overhead.enter(Doing::Pick);
            verdict.decisions.extend(judged.decisions);
            verdict.blocked = judged.blocked;
        }
        if verdict.decisions.is_empty() {
            return Ok(());
        }
        trail.guarded(&words(&verdict.decisions));
        account.guarded(Stage::Input, verdict.decisions);
        if let Some(blocked) = verdict.blocked {
            return Err(refusal(&blocked, Stage::Input));
        }
        asked.take_out(verdict.changes.into_iter().map(Edit::from).collect());
        Ok(())
    }

    /// Checks an answer in one piece.
    ///
    /// # Errors
    /// When a rule blocks it, and when it is too long to be held for that.
    pub(super) async fn answer(
        &self,
        response: Response<AnswerBody>,
        mut account: Option<&mut Account>,
        trail: &mut Trail,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (head, body) = response.into_parts();
        let kind = head.headers.get(header::CONTENT_TYPE);
        let kind = kind.map(HeaderValue::as_bytes).unwrap_or_default();
        let is_json = kind.starts_with(b"application/json");
        let bytes = match body {
            AnswerBody::Whole(bytes) => bytes,
            AnswerBody::Rest(_) if is_json => {
                let message =
                    format!("the answer has more than {WATCHED} bytes, too many to be checked");
                return Err(Refusal::new(Code::ContentPolicyViolation, message));
            }
            // Sounds and pictures, and what comes in events.
            other => return Ok(Response::from_parts(head, other)),
        };
        let text = str::from_utf8(&bytes)
            .ok()
            .filter(|_| kind.starts_with(b"text/"));
        let mut verdict = match text {
            Some(text) => self.rules.check_text(Stage::Output, text),
            None if is_json => self.rules.check_body(Stage::Output, &bytes, Body::Answer),
            None => return Ok(Response::from_parts(head, AnswerBody::whole(bytes))),
        };
        if verdict.blocked.is_none() && self.rules.judges(Stage::Output).next().is_some() {
            let words = match text {
                Some(text) => text.to_owned(),
                None => RuleSet::words(&bytes, Body::Answer, usize::MAX),
            };
            let mut overhead = account.as_deref_mut().map(|account| &mut account.overhead);
            if let Some(overhead) = &mut overhead {
                overhead.wait_for_engine();
            }
            let judged = self.ask(Stage::Output, words).await;
            if let Some(overhead) = &mut overhead {
                overhead.enter(Doing::Respond);
            }
            verdict.decisions.extend(judged.decisions);
            verdict.blocked = judged.blocked;
        }
        if let Some(account) = account {
            trail.guarded(&words_of(account, &verdict));
            account.guarded(Stage::Output, verdict.decisions);
        }
        if let Some(blocked) = verdict.blocked {
            return Err(refusal(&blocked, Stage::Output));
        }
        let changed = changed(bytes, &verdict.changes);
        Ok(Response::from_parts(head, AnswerBody::whole(changed)))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl From<Replaced> for Edit {
    fn from(replaced: Replaced) -> Self {
        Self {
            range: replaced.range,
            with: Bytes::from(replaced.with),
        }
    }
}

/// What the client of a blocked call is told: who forbids it, and nothing of what was found.
pub(super) fn refusal(blocked: &Blocked, stage: Stage) -> Refusal {
    let Blocked {
        rule,
        by,
        message,
        failed,
    } = blocked;
    let what = match stage {
        Stage::Input => "this request",
        Stage::Output => "this answer",
    };
    let by = Party::Level(by.clone());
    let mut words = if *failed {
        format!("the rule {rule} of {by} could not judge {what}, and blocks it then")
    } else {
        format!("the rule {rule} of {by} blocks {what}")
    };
    if let Some(message) = message {
        words.push_str(": ");
        words.push_str(message);
    }
    Refusal::new(Code::ContentPolicyViolation, words)
}

/// What was done in both stages.
fn words_of(account: &Account, verdict: &Verdict) -> String {
    let before = account.guard().iter();
    let both: Vec<Decision> = before.chain(&verdict.decisions).cloned().collect();
    words(&both)
}

/// What was done, for a header: `redacted=mail;flagged=cards,secrets`. Of many rules, the first.
fn words(decisions: &[Decision]) -> String {
    let mut words = String::new();
    for (action, word) in [
        (Action::Block, "blocked="),
        (Action::Redact, "redacted="),
        (Action::Flag, "flagged="),
    ] {
        let mut names: Vec<&str> = Vec::new();
        for decision in decisions.iter().filter(|one| one.action == action) {
            if !names.contains(&decision.rule.as_str()) && names.len() < MOST_NAMED {
                names.push(decision.rule.as_str());
            }
        }
        if !names.is_empty() {
            words.push_str(if words.is_empty() { "" } else { ";" });
            words.push_str(word);
            words.push_str(&names.join(","));
        }
    }
    words
}

/// A body with parts replaced.
fn changed(bytes: Bytes, changes: &[Replaced]) -> Bytes {
    if changes.is_empty() {
        return bytes;
    }
    let mut changed = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for Replaced { range, with } in changes {
        changed.extend_from_slice(bytes.get(from..range.start).unwrap_or_default());
        changed.extend_from_slice(with.as_bytes());
        from = range.end;
    }
    changed.extend_from_slice(bytes.get(from..).unwrap_or_default());
    Bytes::from(changed)
}

/// An answer in one piece is held up to so many bytes to be checked: more than any model writes at once.
pub(super) const WATCHED: usize = 16 << 20;
const MOST_NAMED: usize = 8;
