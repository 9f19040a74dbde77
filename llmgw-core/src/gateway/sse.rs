//! Splits a stream of server-sent events into events, however the bytes were cut.
//!
//! An event is everything up to and with an empty line (WHATWG HTML, section 9.2). Lines end with LF or CR LF; a
//! lone CR, which the standard allows too and no engine sends, is a byte like any other.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr_iter};

/// Holds the bytes of the event that is not complete yet.
#[derive(Debug)]
pub(super) struct Splitter {
    /// What came last and is not split yet; empty while `joined` is in use.
    chunk: Bytes,
    /// An event that came in several chunks, and what came after it.
    joined: BytesMut,
    /// Up to where no event ends.
    scanned: usize,
    /// Where the line starts that `scanned` is in.
    line: usize,
    limit: usize,
}

/// An event is larger than the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an event of the engine is larger than {limit} bytes")]
pub(super) struct EventTooLarge {
    limit: usize,
}

/// What an event carries.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Payload {
    /// Comments, or nothing.
    Nothing,
    /// One line of data, at this place in the event.
    Data(Range<usize>),
    /// Data in several lines: no engine writes its JSON so.
    Lines,
    /// A line `error: {...}`, as llama.cpp wrote it once.
    Error(Range<usize>),
}

// === impl Splitter ===

impl Splitter {
    /// A splitter for events of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            joined: BytesMut::new(),
            scanned: 0,
            line: 0,
            limit,
        }
    }

    /// Takes the next bytes. Call [`Splitter::next_event`] until it has no more before the next push.
    pub(super) fn push(&mut self, chunk: Bytes) {
        if !self.joined.is_empty() {
            self.joined.extend_from_slice(&chunk);
        } else if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.joined.reserve(self.chunk.len() + chunk.len());
            self.joined.extend_from_slice(&self.chunk);
            self.joined.extend_from_slice(&chunk);
            self.chunk = Bytes::new();
        }
    }

    /// The next complete event with its empty line, if it is there.
    pub(super) fn next_event(&mut self) -> Result<Option<Bytes>, EventTooLarge> {
        let text: &[u8] = if self.joined.is_empty() {
            &self.chunk
        } else {
            &self.joined
        };
        let mut end = None;
        for newline in memchr_iter(b'\n', text.get(self.scanned..).unwrap_or_default()) {
            let newline = self.scanned + newline;
            let line = text.get(self.line..newline).unwrap_or_default();
            self.line = newline + 1;
            if matches!(line, b"" | b"\r") {
                end = Some(newline + 1);
                break;
            }
        }
        let Some(end) = end else {
            self.scanned = text.len();
            self.check(text.len())?;
            return Ok(None);
        };
        self.scanned = 0;
        self.line = 0;
        self.check(end)?;
        Ok(Some(if self.joined.is_empty() {
            self.chunk.split_to(end)
        } else {
            self.joined.split_to(end).freeze()
        }))
    }

    /// What came of the event that is not complete.
    pub(super) fn rest(&self) -> &[u8] {
        if self.joined.is_empty() {
            &self.chunk
        } else {
            &self.joined
        }
    }

    fn check(&self, length: usize) -> Result<(), EventTooLarge> {
        let limit = self.limit;
        if length > limit {
            return Err(EventTooLarge { limit });
        }
        Ok(())
    }
}

/// What an event carries.
pub(super) fn payload(event: &[u8]) -> Payload {
    let mut payload = Payload::Nothing;
    let mut start = 0;
    while start < event.len() {
        let rest = event.get(start..).unwrap_or_default();
        let next = memchr(b'\n', rest).map_or(event.len(), |newline| start + newline + 1);
        let line = rest.get(..next - start).unwrap_or_default();
        if let Some(value) = value_of(line, b"data:") {
            payload = match payload {
                Payload::Data(_) | Payload::Lines => Payload::Lines,
                Payload::Nothing | Payload::Error(_) => {
                    Payload::Data(start + value.start..start + value.end)
                }
            };
        } else if let Some(value) = value_of(line, b"error:")
            && payload == Payload::Nothing
        {
            payload = Payload::Error(start + value.start..start + value.end);
        }
        start = next;
    }
    payload
}

/// Where the value of a field stands in its line: after one optional space, before the line's end.
fn value_of(line: &[u8], field: &[u8]) -> Option<Range<usize>> {
    let value = line.strip_prefix(field)?;
    let start = line.len() - value.strip_prefix(b" ").unwrap_or(value).len();
    let trimmed = line.strip_suffix(b"\n").unwrap_or(line);
    let trimmed = trimmed.strip_suffix(b"\r").unwrap_or(trimmed);
    Some(start..trimmed.len().max(start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &[u8], cuts: &[usize], limit: usize) -> (Vec<Bytes>, bool) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut splitter = Splitter::new(limit);
        let mut events = Vec::new();
        let mut from = 0;
        for cut in cuts {
            splitter.push(Bytes::copy_from_slice(&text[from..cut]));
            while let Some(event) = splitter.next_event().unwrap() {
                events.push(event);
            }
            from = cut;
        }
        (events, !splitter.rest().is_empty())
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_same_events(
            lines in prop::collection::vec(r"(data: ?|: ?|event: )?[a-z{}]{0,6}", 0..12),
            crlf in prop::collection::vec(any::<bool>(), 12),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let mut text = String::new();
            for (line, crlf) in lines.iter().zip(crlf) {
                text.push_str(line);
                text.push_str(if crlf { "\r\n" } else { "\n" });
            }
            let whole = split(text.as_bytes(), &[], 4096);
            prop_assert_eq!(&split(text.as_bytes(), &cuts, 4096), &whole);
            let joined: Vec<u8> = whole.0.concat();
            prop_assert!(text.as_bytes().starts_with(&joined), "no byte is lost or made");
            prop_assert_eq!(whole.1, joined.len() < text.len());
        }

        #[test]
        fn any_bytes_are_split_without_loss(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..64),
            cuts in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            let (events, _) = split(&text, &cuts, 4096);
            for event in &events {
                payload(event);
            }
            prop_assert!(text.starts_with(&events.concat()));
        }
    }

    #[test]
    fn one_chunk_is_split_without_copying() {
        let chunk = Bytes::from_static(b"data: 1\n\ndata: 2\n\n");
        let mut splitter = Splitter::new(64);
        splitter.push(chunk.clone());
        let first = splitter.next_event().unwrap().unwrap();
        assert_eq!(first.as_ptr(), chunk.as_ptr());
        assert_eq!(splitter.next_event().unwrap().unwrap(), "data: 2\n\n");
        assert!(splitter.rest().is_empty());
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused_before_it_is_complete() {
        let mut splitter = Splitter::new(8);
        splitter.push(Bytes::from_static(b"data: 1\n\ndata: 123"));
        assert_eq!(splitter.next_event(), Err(EventTooLarge { limit: 8 }));
        let mut splitter = Splitter::new(9);
        splitter.push(Bytes::from_static(b"data: 1\n\ndata: 12345"));
        assert!(splitter.next_event().unwrap().is_some());
        assert_eq!(splitter.next_event(), Err(EventTooLarge { limit: 9 }));
    }

    #[test]
    fn the_payload_is_found_behind_comments_and_other_fields() {
        assert_eq!(payload(b": x\n\n"), Payload::Nothing);
        assert_eq!(payload(b"data: {}\r\n\r\n"), Payload::Data(6..8));
        assert_eq!(payload(b"event: a\ndata:{}\n\n"), Payload::Data(14..16));
        assert_eq!(payload(b"data: a\ndata: b\n\n"), Payload::Lines);
        assert_eq!(payload(b"error: {}\n\n"), Payload::Error(7..9));
        assert_eq!(payload(b"data:\n\n"), Payload::Data(5..5));
    }
}
