//! Stage 1, identify: whose key was presented.

use http::{HeaderMap, header};

use super::refusal::Refusal;
use crate::{
    error::Code,
    id::KeyId,
    keys::{HashingKey, KeyRing},
};

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) key: KeyId,
}

/// Finds the caller by `Authorization: Bearer`, or else by `x-api-key`.
pub(super) fn identify(
    headers: &HeaderMap,
    ring: &KeyRing,
    hashing_key: &HashingKey,
) -> Result<Caller, Refusal> {
    let presented = bearer(headers).or_else(|| headers.get("x-api-key")?.to_str().ok());
    let Some(presented) = presented.map(str::trim).filter(|key| !key.is_empty()) else {
        return Err(Refusal::new(
            Code::InvalidApiKey,
            "no API key was given; send it as `Authorization: Bearer KEY`",
        ));
    };
    match ring.check(hashing_key, presented) {
        Some(key) => Ok(Caller { key: key.id }),
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
