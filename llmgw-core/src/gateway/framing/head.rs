//! One head of a request, whole: what is wrong with it, and how long its body is.

use http::{StatusCode, Uri};
use memchr::memchr;

use super::{malformed, too_large};
use crate::{error::Code, gateway::refusal::Refusal, units::Bytes};

/// What bounds a head.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct HeadBounds {
    /// The largest sum of header names and values.
    pub(in crate::gateway) size: Bytes,
    /// The most headers.
    pub(in crate::gateway) count: usize,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Length {
    Exact(u64),
    Chunked,
}

/// What the headers say about the body.
#[derive(Debug, Default)]
struct Told {
    length: Option<u64>,
    chunked: bool,
    hosts: usize,
}

// === impl HeadBounds ===

impl HeadBounds {
    /// The most bytes of a head that can still be one within the bounds, or be told what is too large of it.
    pub(in crate::gateway) fn most(self) -> usize {
        let size = usize::try_from(self.size.0).unwrap_or(usize::MAX);
        // A colon, a space and a line end for each header.
        let between = self.count.saturating_add(1).saturating_mul(4);
        size.saturating_add(between).saturating_add(MAX_LINE)
    }

    /// Checks a head of which so many bytes are there: no more than its first line, or past that.
    pub(super) fn check_so_far(self, length: usize, past_line: bool) -> Result<(), Refusal> {
        if !past_line && length > MAX_LINE {
            return Err(uri_too_long());
        }
        if length > self.most() {
            return Err(self.size_refused());
        }
        Ok(())
    }

    fn size_refused(self) -> Refusal {
        let limit = self.size;
        too_large(format!("the headers are larger than the limit of {limit}"))
    }
}

/// Whether a request, or an empty line before one, can begin so.
pub(super) fn begins(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n' || is_token(byte)
}

/// Reads a head with the empty line that ends it. All its lines end with CR LF.
pub(super) fn read(head: &[u8], bounds: HeadBounds) -> Result<Length, Refusal> {
    let mut lines = Lines(head);
    let version = request_line(lines.next().unwrap_or_default())?;
    let mut told = Told::default();
    let (mut size, mut count) = (0_usize, 0);
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = header(line)?;
        count += 1;
        size = size.saturating_add(name.len()).saturating_add(value.len());
        told.header(name, value)?;
    }
    if count > bounds.count {
        let most = bounds.count;
        return Err(too_large(format!(
            "the request has more than {most} headers"
        )));
    }
    if u64::try_from(size).unwrap_or(u64::MAX) > bounds.size.0 {
        return Err(bounds.size_refused());
    }
    told.length(version)
}

/// Reads `POST /v1/chat/completions HTTP/1.1`; the minor version.
fn request_line(line: &[u8]) -> Result<u8, Refusal> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed(
            "the first line is not a method, a path and a version",
        ));
    };
    let version = match version {
        b"HTTP/1.0" => 0,
        b"HTTP/1.1" => 1,
        other if other.starts_with(b"HTTP/") => {
            let message = "this is HTTP/1.1; the request is of another version";
            let refusal = Refusal::new(Code::InvalidRequest, message);
            return Err(refusal.with_status(StatusCode::HTTP_VERSION_NOT_SUPPORTED));
        }
        _ => return Err(malformed("the first line names no version of HTTP")),
    };
    if method.is_empty() || method.len() > MAX_METHOD || !method.iter().all(|byte| is_token(*byte))
    {
        return Err(malformed("the method is not one"));
    }
    if !is_path(target) {
        return Err(malformed("the path has characters that no path has"));
    }
    Ok(version)
}

/// Whether a target can be read as one. Most can be seen to be without reading them as one.
fn is_path(target: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    if target.first() == Some(&b'/') && target.iter().all(is_plain) {
        return true;
    }
    target.iter().all(u8::is_ascii_graphic) && Uri::try_from(target).is_ok()
}

fn header(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if line.first().is_some_and(|byte| is_blank(*byte)) {
        return Err(malformed("a header is folded over several lines"));
    }
    // As a rule, what ends the name is the colon.
    let name_end = line.iter().position(|byte| !is_token(*byte));
    let colon = match name_end {
        Some(end) if line.get(end) == Some(&b':') => Some(end),
        _ => memchr(b':', line),
    };
    let Some(colon) = colon else {
        return Err(malformed("a header has no colon"));
    };
    let (name, value) = line.split_at(colon);
    if name.len() > MAX_NAME {
        return Err(too_large(format!(
            "the name of a header is longer than {MAX_NAME} bytes"
        )));
    }
    if name.is_empty() || name_end != Some(colon) {
        return Err(malformed(
            "the name of a header has a character that none has",
        ));
    }
    let value = value.get(1..).unwrap_or_default();
    if has_control(value) {
        return Err(malformed("a header has a control character"));
    }
    Ok((name, trimmed(value)))
}

// === impl Told ===

impl Told {
    fn header(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return Err(malformed("the body has two lengths"));
            }
            self.length = Some(content_length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked {
                return Err(malformed("the body is encoded twice"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(malformed(
                    "a body may come in chunks, and in no other transfer encoding",
                ));
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if self.hosts > 1 {
                return Err(malformed("the request names two hosts"));
            }
        }
        Ok(())
    }

    fn length(self, minor_version: u8) -> Result<Length, Refusal> {
        // RFC 9112, section 3.2.
        if minor_version > 0 && self.hosts == 0 {
            return Err(malformed("the request names no host"));
        }
        match (self.length, self.chunked) {
            (Some(_), true) => Err(malformed("the body has a length, and comes in chunks")),
            (None, true) if minor_version == 0 => {
                Err(malformed("HTTP/1.0 has no bodies that come in chunks"))
            }
            (None, true) => Ok(Length::Chunked),
            (length, false) => Ok(Length::Exact(length.unwrap_or(0))),
        }
    }
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(malformed("the length of the body is not a number"));
    }
    let length = str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    let readable = length.filter(|length| *length <= MAX_LENGTH);
    readable.ok_or_else(|| {
        let message = "the length of the body is beyond all limits";
        Refusal::new(Code::RequestTooLarge, message)
    })
}

fn uri_too_long() -> Refusal {
    let message = format!("the first line is longer than {MAX_LINE} bytes");
    Refusal::new(Code::RequestTooLarge, message).with_status(StatusCode::URI_TOO_LONG)
}

/// Lines without their ends.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let newline = memchr(b'\n', self.0)?;
        let (line, rest) = self.0.split_at(newline + 1);
        self.0 = rest;
        line.strip_suffix(b"\r\n")
    }
}

/// A character of a method or of a header's name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Whether a header's value has other than tabs, visible characters, and what is not ASCII: NUL, a lone carriage return.
fn has_control(value: &[u8]) -> bool {
    // To the end, whatever was found: so the processor looks at many at once.
    let has = |has: bool, byte: &u8| has | ((*byte < b' ') & (*byte != b'\t')) | (*byte == 0x7f);
    value.iter().fold(false, has)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_blank(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_blank(*last)
    {
        value = rest;
    }
    value
}

/// Looked up, because it is asked for each byte of each name.
const TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        token[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        token[others[index] as usize] = true;
        index += 1;
    }
    token
};

/// A path names one of a dozen endpoints, or a model.
const MAX_LINE: usize = 8 << 10;
const MAX_METHOD: usize = 32;
const MAX_NAME: usize = 256;
/// More than any disk holds; hyper keeps the largest numbers for itself.
const MAX_LENGTH: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_passes_by_a_short_look_passes_by_a_long_one(
            target in prop_oneof!["/[ -~]{0,12}", "[/a-zA-Z0-9._~-]{0,12}", "[\\x00-\\xff]{0,8}"],
        ) {
            let target = target.as_bytes();
            let by_long = target.iter().all(u8::is_ascii_graphic) && Uri::try_from(target).is_ok();
            prop_assert_eq!(is_path(target), by_long);
        }

        #[test]
        fn names_are_those_of_headers_and_values_have_no_controls(
            name in prop_oneof!["[!-~]{0,8}", "[a-zA-Z-]{0,8}", "[\\x00-\\xff]{0,4}"],
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assume!(!name.contains(':'));
            let line = [name.as_bytes(), b":", &value].concat();
            let is_blank = name.starts_with([' ', '\t']);
            let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
            let is_value = value.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f);
            prop_assert_eq!(header(&line).is_ok(), is_name && is_value && !is_blank);
        }
    }
}
