//! Stage 8, account: what a call used, written down however the call ends.

mod beside;
mod told;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;

use self::{beside::UsageBeside, told::Told};
use super::{
    admit::Admitted, call::Call, journal::Journal, overhead::Overhead, upstreams::CallGuard,
};
use crate::{
    clock::Clock,
    cluster::{
        account::UsageRecord,
        guard::{Decision, Stage as GuardStage},
        tenancy::{Pass, Price, PriceList},
    },
    id::{ModelName, ReplicaId},
    metrics::GatewayMeters,
    units::Tokens,
};

/// The account of one call that reached a model. When it is dropped, its record goes to the journal and into
/// the numbers: a call
/// whose client left is dropped too, and counts as status 499 with what was seen until then.
#[derive(Debug)]
pub(super) struct Account {
    journal: Arc<Journal>,
    meters: Arc<GatewayMeters>,
    clock: Arc<dyn Clock>,
    call: Call,
    payer: Payer,
    model: ModelName,
    replica: Option<ReplicaId>,
    status: Option<StatusCode>,
    /// The engine's last word on usage, unread.
    usage: Option<Bytes>,
    /// It tells usage in parts: this is what it said before the last.
    usage_before: Option<Bytes>,
    in_parts: bool,
    usage_beside: UsageBeside,
    /// Tokens of the prompt, roughly, of a call that has no others: where the engine tells none.
    prompt_guess: Option<u64>,
    /// Pieces of content, counted for each choice: about as many as tokens.
    pieces: u64,
    first_content: Option<Duration>,
    /// What the call has reserved: settled with what it used.
    admitted: Admitted,
    /// What the guard's rules did to it.
    guard: Vec<Decision>,
    /// Where the call is, for the numbers.
    pub(super) overhead: Overhead,
    _counted: CallGuard,
}

/// Who pays, and what it costs.
#[derive(Clone, Debug)]
pub(super) struct Payer {
    pub(super) pass: Arc<Pass>,
    pub(super) prices: Arc<PriceList>,
}

// === impl Account ===

impl Account {
    pub(super) fn open(
        (journal, meters): (Arc<Journal>, Arc<GatewayMeters>),
        clock: Arc<dyn Clock>,
        call: Call,
        payer: Payer,
        model: ModelName,
        choices_per_prompt: u64,
        (counted, admitted): (CallGuard, Admitted),
    ) -> Self {
        Self {
            journal,
            meters,
            overhead: Overhead::begin(Arc::clone(&clock), call.since),
            clock,
            call,
            payer,
            model,
            replica: None,
            status: None,
            usage: None,
            usage_before: None,
            in_parts: false,
            prompt_guess: None,
            usage_beside: UsageBeside::new(choices_per_prompt),
            pieces: 0,
            first_content: None,
            admitted,
            guard: Vec::new(),
            _counted: counted,
        }
    }

    /// The model that is asked, which is another one when the client's can't serve.
    pub(super) fn model(&mut self, model: &ModelName) {
        self.model.clone_from(model);
    }

    /// The guard has let the call pass: it goes to an engine.
    pub(super) fn goes(&mut self) {
        self.admitted.goes();
    }

    /// What the guard's rules have done to it in this stage until now, but for what models said.
    pub(super) fn guarded(&mut self, stage: GuardStage, decisions: Vec<Decision>) {
        self.guard.retain(|known| known.stage != stage);
        self.guard.extend(decisions);
    }

    /// What the guard's rules have done to it until now.
    pub(super) fn guard(&self) -> &[Decision] {
        &self.guard
    }

    /// The replica that answers.
    pub(super) fn replica(&mut self, replica: ReplicaId) {
        self.replica = Some(replica);
    }

    /// How the call ended. A stream that broke after its head counts as what it would have been answered with
    /// before: in the accounts, it is an error.
    pub(super) fn ended(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// The engine told the usage; the last word counts.
    pub(super) fn usage(&mut self, json: Bytes) {
        self.usage = Some(json);
    }

    /// The engine told a part of the usage: what it does not say again stays.
    pub(super) fn usage_in_parts(&mut self, json: Bytes) {
        self.in_parts = true;
        let before = self.usage.replace(json);
        if self.usage_before.is_none() {
            self.usage_before = before;
        }
    }

    /// About so many tokens are in the prompt, and no others are used.
    pub(super) fn guess_prompt(&mut self, tokens: u64) {
        self.prompt_guess = Some(tokens);
    }

    /// The engine told usage along with choices: theirs, until it tells that of the whole.
    pub(super) fn usage_beside(&mut self, choices: &[u8], json: Bytes) {
        self.usage_beside.told(choices, json);
    }

    /// Content of so many choices came.
    pub(super) fn content(&mut self, choices: u64) {
        self.pieces += choices;
        if self.first_content.is_none() {
            self.first_content = Some(self.clock.monotonic().saturating_sub(self.call.since));
        }
    }

    /// What was told of each choice. Of an answer that was cut short, nothing was told of some: unless it is more than
    /// what came in pieces, it is no count of the whole.
    fn told_beside(&self) -> Option<Told> {
        let told = Told::from(self.usage_beside.sum()?);
        let is_whole = self.status == Some(StatusCode::OK);
        (is_whole || told.completion.unwrap_or_default().0 >= self.pieces).then_some(told)
    }

    /// What the engine told.
    fn told(&self) -> Option<Told> {
        let read = |json: &Option<Bytes>| Told::read(json.as_deref()?);
        match (read(&self.usage_before), read(&self.usage)) {
            (Some(before), Some(last)) => Some(before.then(last)),
            (before, last) => last.or(before),
        }
    }

    fn record(&self, now: Duration) -> UsageRecord {
        let told = self.told().or_else(|| self.told_beside());
        let status = self.status.unwrap_or_else(client_left);
        let at = self.call.started_at;
        // The last word on a stream that was cut short may be one on its beginning.
        let is_partial = self.in_parts && self.status != Some(StatusCode::OK);
        let completion_tokens = match told.map(|told| told.completion.unwrap_or_default()) {
            Some(told) if is_partial => told.max(Tokens(self.pieces)),
            Some(told) => told,
            None => Tokens(self.pieces),
        };
        let guess = match self.prompt_guess {
            Some(guess) if status.is_success() && told.is_none() => guess,
            _ => 0,
        };
        let prompt_tokens = told.map_or(Tokens(guess), |told| told.prompt());
        let cached = told.and_then(|told| told.cached).unwrap_or_default();
        // A model without a price is free.
        let price = self.payer.prices.at(&self.model, at);
        let cost = |price: &Price| price.cost(prompt_tokens, cached, completion_tokens);
        UsageRecord {
            request: self.call.id,
            key: self.payer.pass.key().id,
            model: self.model.clone(),
            replica: self.replica,
            prompt_tokens,
            cached_tokens: cached,
            completion_tokens,
            // What no replica took, and what an engine refused, used nothing, and that is exact.
            estimated: self.replica.is_some()
                && match told {
                    Some(told) => is_partial && told.completion != Some(completion_tokens),
                    None => self.pieces > 0 || guess > 0 || self.status.is_none(),
                },
            status: status.as_u16(),
            started_at: at,
            duration: now.saturating_sub(self.call.since),
            time_to_first_token: self.first_content,
            level: self.payer.pass.key().level.clone(),
            guard: self.guard.clone(),
            cost: price.map(cost).unwrap_or_default(),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let (now, times) = self.overhead.end();
        self.meters.overhead(times);
        let record = self.record(now);
        self.admitted.used(&record);
        self.meters.call(&record);
        self.journal.push(record);
    }
}

/// The status that nginx made known for a client that closed its request.
fn client_left() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
