//! One client call: its name, its start, and what every answer says of it.

use std::{cell::RefCell, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Builder;

use super::admit::Rates;
use crate::{
    clock::{Clock, Timestamp},
    id::{ModelName, RequestId},
};

/// When a call came in, and how we call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Our own id, unique whatever the client says: the accounts go by it.
    pub(super) id: RequestId,
    pub(super) started_at: Timestamp,
    /// The same on the clock for durations.
    pub(super) since: Duration,
}

/// The headers of ours that every answer has, as far as they are known when it is made.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    /// The client's id for the call if it gave a sane one, else ours; goes to the engine too.
    pub(super) request_id: HeaderValue,
    model: Option<HeaderValue>,
    replica: Option<HeaderValue>,
    /// From which model to which the call was passed on.
    fallback: Option<HeaderValue>,
    /// How often a replica was asked.
    attempts: u32,
    /// What is left of rates.
    rates: Rates,
    /// What the guard did.
    guard: Option<HeaderValue>,
}

// === impl Call ===

impl Call {
    pub(super) fn begin(clock: &dyn Clock) -> Self {
        let started_at = clock.now();
        Self {
            id: new_id(started_at),
            started_at,
            since: clock.monotonic(),
        }
    }
}

/// An id for a call that came in then. The system is asked for random bytes once for many ids: for each alone, it takes as
/// long as all else that is done to name a call.
fn new_id(at: Timestamp) -> RequestId {
    let random = ENTROPY.with_borrow_mut(|entropy| {
        if entropy.is_empty() {
            entropy.resize(ID_ENTROPY * IDS_AT_ONCE, 0);
            if getrandom::fill(entropy).is_err() {
                entropy.clear();
            }
        }
        let left = entropy.len().checked_sub(ID_ENTROPY)?;
        let random = <[u8; ID_ENTROPY]>::try_from(entropy.get(left..)?).ok();
        // No two ids get the same.
        entropy.truncate(left);
        random
    });
    let (Some(random), Ok(millis)) = (random, u64::try_from(at.0)) else {
        return RequestId::generate();
    };
    let id = Builder::from_unix_timestamp_millis(millis, &random);
    RequestId::from_uuid(id.into_uuid())
}

thread_local! {
    /// Random bytes that no id has yet.
    static ENTROPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

// === impl Trail ===

impl Trail {
    pub(super) fn new(call: &Call, headers: &HeaderMap) -> Self {
        let given = headers.get(&REQUEST_ID).filter(|id| is_sane(id.as_bytes()));
        let ours = || HeaderValue::try_from(call.id.to_string());
        Self {
            request_id: match given {
                Some(given) => given.clone(),
                None => ours().unwrap_or(HeaderValue::from_static("-")),
            },
            model: None,
            replica: None,
            fallback: None,
            attempts: 0,
            rates: Rates::default(),
            guard: None,
        }
    }

    /// What is left of rates.
    pub(super) fn rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// What the guard did, in its words for a header.
    pub(super) fn guarded(&mut self, words: &str) {
        self.guard = HeaderValue::from_str(words)
            .ok()
            .filter(|words| !words.is_empty());
    }

    /// The model that answers, by its own name.
    pub(super) fn model(&mut self, name: &ModelName) {
        if self
            .model
            .as_ref()
            .is_none_or(|model| model != name.as_str())
        {
            self.model = HeaderValue::from_str(name.as_str()).ok();
        }
    }

    /// The call was passed on to another model.
    pub(super) fn fell_back(&mut self, from: &ModelName, to: &ModelName) {
        self.model(to);
        self.fallback = HeaderValue::from_str(&format!("{from}->{to}")).ok();
    }

    /// One more attempt, on this replica.
    pub(super) fn attempt(&mut self, replica: &HeaderValue) {
        self.replica = Some(replica.clone());
        self.attempts += 1;
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Writes the id of the call where Anthropic's clients look for it.
    pub(super) fn sign_for_anthropic(&self, headers: &mut HeaderMap) {
        headers.insert(ANTHROPIC_REQUEST_ID, self.request_id.clone());
    }

    /// Writes the headers.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, self.request_id.clone());
        self.rates.sign(headers);
        if let Some(model) = &self.model {
            headers.insert(MODEL, model.clone());
        }
        if let Some(replica) = &self.replica {
            headers.insert(REPLICA, replica.clone());
        }
        if let Some(fallback) = &self.fallback {
            headers.insert(FALLBACK, fallback.clone());
        }
        if let Some(guard) = &self.guard {
            headers.insert(GUARD, guard.clone());
        }
        let attempts = match self.attempts {
            0 => return,
            1 => HeaderValue::from_static("1"),
            more => HeaderValue::from(more),
        };
        headers.insert(ATTEMPTS, attempts);
    }
}

/// What may stand in a header and in a log line without harm.
fn is_sane(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=128).contains(&id.len()) && id.iter().all(plain)
}

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Whether a streamed call wants to be told how far its model is.
pub(super) const PROGRESS: HeaderName = HeaderName::from_static("x-llmgw-progress");
const MODEL: HeaderName = HeaderName::from_static("x-llmgw-model");
const REPLICA: HeaderName = HeaderName::from_static("x-llmgw-replica");
const FALLBACK: HeaderName = HeaderName::from_static("x-llmgw-fallback");
const GUARD: HeaderName = HeaderName::from_static("x-llmgw-guard");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-llmgw-attempts");

/// Random bytes of an id, of which its version takes some bits.
const ID_ENTROPY: usize = 10;
const IDS_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_sane_request_id_of_the_client_is_kept_and_another_is_replaced() {
        let call = Call::begin(&ManualClock::default());
        let kept = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(given).unwrap());
            Trail::new(&call, &headers).request_id == given
        };
        assert!(kept("a-B_9.z"));
        assert!(kept(&"x".repeat(128)));
        for bad in ["", "a b", "a\tb", "ä", &"x".repeat(129)] {
            assert!(!kept(bad), "{bad:?}");
        }
        let ours = Trail::new(&call, &HeaderMap::new()).request_id;
        assert_eq!(ours, call.id.to_string());
    }

    #[test]
    fn ids_are_unlike_each_other_and_in_the_order_of_their_calls() {
        let mut ids: Vec<RequestId> = (0..10_i64)
            .flat_map(|millis| (0..100).map(move |_| new_id(Timestamp(millis))))
            .collect();
        for (millis, made) in ids.chunks(100).enumerate() {
            let at = |id: &RequestId| id.as_uuid().as_u128() >> 80;
            assert!(made.iter().all(|id| at(id) == millis as u128));
            assert!(made.iter().all(|id| id.as_uuid().get_version_num() == 7));
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 1_000);
        // A clock that was never set gives ids all the same.
        assert_ne!(new_id(Timestamp(-1)), new_id(Timestamp(-1)));
    }
}
