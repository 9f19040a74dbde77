//! Data about persons and secrets, known by their forms.
//!
//! Each function here finds the first of its kind that begins at `span.start` or later and ends at `span.end` at the
//! latest. Whether one begins at a place depends on the text from there on and on the few bytes before it alone, and not on
//! where the search began: so that a text that comes in pieces is found in as one that comes whole.

mod bank;
mod network;
mod numbers;
mod secrets;

use std::ops::Range;

pub(super) use self::secrets::PATTERN as SECRETS;
use crate::cluster::guard::PiiKind;

/// What finds one kind.
pub(super) type Find = fn(&[u8], Range<usize>) -> Option<Range<usize>>;

/// What finds a kind, but for secrets, which are a pattern; and how many bytes the longest of it has.
pub(super) fn finder(kind: PiiKind) -> Option<(Find, usize)> {
    Some(match kind {
        PiiKind::Email => (network::email as Find, network::LONGEST_EMAIL),
        PiiKind::Ipv4 => (network::ipv4, 15),
        PiiKind::Ipv6 => (network::ipv6, network::LONGEST_IPV6),
        PiiKind::Card => (numbers::card, numbers::LONGEST_CARD),
        PiiKind::Phone => (numbers::phone, numbers::LONGEST_PHONE),
        PiiKind::Ssn => (numbers::ssn, 11),
        PiiKind::Iban => (bank::iban, bank::LONGEST_IBAN),
        PiiKind::Secret => return None,
    })
}

/// The bytes before a place that matter for whether something begins there.
pub(super) const CONTEXT: usize = 72;

/// Whether a text could have one, looked at quickly.
pub(super) fn may_have(kind: PiiKind, text: &[u8]) -> bool {
    match kind {
        PiiKind::Email => memchr::memchr(b'@', text).is_some(),
        PiiKind::Ipv6 => memchr::memchr(b':', text).is_some(),
        PiiKind::Secret => true,
        // Without an early end, many bytes are looked at at once.
        PiiKind::Ipv4 | PiiKind::Card | PiiKind::Phone | PiiKind::Ssn | PiiKind::Iban => text
            .iter()
            .fold(false, |has, byte| has | byte.is_ascii_digit()),
    }
}

/// The next place from `at` on where a digit stands.
fn next_digit(text: &[u8], at: usize, end: usize) -> Option<usize> {
    let rest = text.get(at..end)?;
    Some(at + rest.iter().position(u8::is_ascii_digit)?)
}

/// The first byte from `at` on that is no digit.
fn digits_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(rest.len())
}

/// The byte before a place.
fn before(text: &[u8], at: usize) -> Option<u8> {
    text.get(at.checked_sub(1)?).copied()
}

/// Whether a byte is part of a word; those of letters beyond ASCII are.
fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii())
}

#[cfg(test)]
mod tests;
