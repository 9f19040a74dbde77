//! Addresses: of mail, and of networks.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use memchr::memchr;

use super::{before, is_word, next_digit};

/// An e-mail address.
pub(super) fn email(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut from = span.start;
    while let Some(at) = memchr(b'@', text.get(from..span.end)?).map(|at| from + at) {
        if let Some(start) = local_start(text, at).filter(|start| *start >= span.start)
            && let Some(end) = domain_end(text, at + 1).filter(|end| *end <= span.end)
        {
            return Some(start..end);
        }
        from = at + 1;
    }
    None
}

fn local_start(text: &[u8], at: usize) -> Option<usize> {
    let is_local = |byte: &u8| byte.is_ascii_alphanumeric() || b"._%+-".contains(byte);
    let left = text.get(..at)?;
    let length = left
        .iter()
        .rev()
        .take(LONGEST_LOCAL + 1)
        .take_while(|byte| is_local(byte))
        .count();
    (1..=LONGEST_LOCAL).contains(&length).then_some(at - length)
}

/// Names of letters, digits and dashes with dots between them; the last one has letters alone.
fn domain_end(text: &[u8], start: usize) -> Option<usize> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let rest = text.get(start..)?;
    let length = rest
        .iter()
        .take(LONGEST_DOMAIN + 1)
        .take_while(|byte| is_part(**byte))
        .count();
    if length > LONGEST_DOMAIN || is_word(rest.get(length).copied()) {
        return None;
    }
    // What ends a sentence is none of it.
    let domain = rest.get(..length)?;
    let end = domain
        .iter()
        .rposition(|byte| *byte != b'.' && *byte != b'-')?
        + 1;
    let domain = domain.get(..end)?;
    let mut names = domain.split(|byte| *byte == b'.').collect::<Vec<_>>();
    let last = names.pop()?;
    let is_top = last.len() >= 2 && last.iter().all(u8::is_ascii_alphabetic);
    (is_top && !names.is_empty() && names.iter().all(|name| !name.is_empty()))
        .then_some(start + end)
}

/// Four numbers of up to 255 with dots between them.
pub(super) fn ipv4(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut at = span.start;
    while let Some(start) = next_digit(text, at, span.end) {
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let rest = text.get(start..)?;
        let length = rest
            .iter()
            .take(16)
            .take_while(|byte| is_part(byte))
            .count();
        let dots = rest
            .get(..length)?
            .iter()
            .rev()
            .take_while(|byte| **byte == b'.')
            .count();
        let end = start + length - dots;
        let previous = before(text, start);
        let stands_alone =
            !is_word(previous) && previous != Some(b'.') && !is_word(text.get(end).copied());
        let written = str::from_utf8(text.get(start..end)?).unwrap_or_default();
        if stands_alone && end <= span.end && written.parse::<Ipv4Addr>().is_ok() {
            return Some(start..end);
        }
        // Within a longer row of numbers, none begins.
        at = start
            + rest
                .iter()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(rest.len());
    }
    None
}

/// An IPv6 address with at least four digits: shorter ones, such as that of the host itself, tell nothing.
pub(super) fn ipv6(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b':';
    let mut from = span.start;
    while let Some(colon) = memchr(b':', text.get(from..span.end)?).map(|at| from + at) {
        let left = text.get(..colon)?;
        let length = left
            .iter()
            .rev()
            .take(LONGEST_IPV6)
            .take_while(|byte| is_part(byte))
            .count();
        let start = colon - length;
        let rest = text.get(start..)?;
        let mapped = |byte: &u8| is_part(byte) || *byte == b'.';
        let run = rest
            .iter()
            .take(LONGEST_IPV6 + 1)
            .take_while(|byte| mapped(byte))
            .count();
        let stops = rest
            .get(..run)?
            .iter()
            .rev()
            .take_while(|byte| **byte == b'.')
            .count();
        let end = start + run - stops;
        let written = text.get(start..end)?;
        let digits = written
            .iter()
            .filter(|byte| byte.is_ascii_hexdigit())
            .count();
        let stands_alone = !is_word(before(text, start)) && !is_word(text.get(end).copied());
        if stands_alone
            && digits >= 4
            && start >= span.start
            && end <= span.end
            && str::from_utf8(written)
                .unwrap_or_default()
                .parse::<Ipv6Addr>()
                .is_ok()
        {
            return Some(start..end);
        }
        from = end.max(colon + 1);
    }
    None
}

const LONGEST_LOCAL: usize = 64;
const LONGEST_DOMAIN: usize = 100;
pub(super) const LONGEST_EMAIL: usize = LONGEST_LOCAL + 1 + LONGEST_DOMAIN;
/// Six groups, and an IPv4 address.
pub(super) const LONGEST_IPV6: usize = 45;
