//! Stage 1, identify: whose key was presented.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::refusal::Refusal;
use crate::{
    clock::Timestamp,
    cluster::tenancy::{Party, Pass},
    error::Code,
    keys::{HashingKey, KeyRing},
};

/// Who calls.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) pass: Arc<Pass>,
}

// === impl Caller ===

impl Caller {
    /// With whom it shares a queue fairly: its organisation with others, or itself when it is of none.
    pub(super) fn tenant(&self) -> Party {
        let key = self.pass.key();
        let organisation = key.level.organisation();
        organisation.map_or(Party::Key(key.id), Party::Level)
    }
}

/// Finds the caller by `Authorization: Bearer`, or else by `x-api-key`.
pub(super) fn identify(
    headers: &HeaderMap,
    ring: &KeyRing,
    hashing_key: &HashingKey,
    now: Timestamp,
) -> Result<Caller, Refusal> {
    let presented = bearer(headers).or_else(|| headers.get("x-api-key")?.to_str().ok());
    let Some(presented) = presented.map(str::trim).filter(|key| !key.is_empty()) else {
        return Err(Refusal::new(
            Code::InvalidApiKey,
            "no API key was given; send it as `Authorization: Bearer KEY`",
        ));
    };
    match ring.check(hashing_key, presented) {
        Some(pass) if pass.has_expired(now) => Err(Refusal::new(
            Code::InvalidApiKey,
            format!("the API key {} has expired", pass.key().id),
        )),
        Some(pass) => Ok(Caller {
            pass: Arc::clone(pass),
        }),
        None => Err(Refusal::new(
            Code::InvalidApiKey,
            "the API key is not known here",
        )),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key)
}
