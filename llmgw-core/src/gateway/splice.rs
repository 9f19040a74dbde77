//! A text with a few places changed, without copying the rest.

use std::{
    convert::Infallible,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A change: what stands at `range` becomes `with`. An empty range is an insertion.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) with: Bytes,
}

/// A request body in parts, in order; cheap to clone, so that a call can be sent again.
#[derive(Clone, Debug)]
pub(super) struct Spliced {
    parts: Vec<Bytes>,
    next: usize,
}

// === impl Spliced ===

impl Spliced {
    /// `text` with `edits`, which are in order and don't overlap.
    pub(super) fn new(text: &Bytes, edits: &[Edit]) -> Self {
        let mut parts = Vec::with_capacity(2 * edits.len() + 1);
        let mut from = 0;
        for edit in edits {
            debug_assert!(from <= edit.range.start && edit.range.end <= text.len());
            parts.push(text.slice(from..edit.range.start));
            parts.push(edit.with.clone());
            from = edit.range.end;
        }
        parts.push(text.slice(from..));
        parts.retain(|part| !part.is_empty());
        Self { parts, next: 0 }
    }

    /// All of it in one piece.
    pub(super) fn into_whole(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.parts) {
            Ok([part]) => part,
            Err(parts) => parts.concat().into(),
        }
    }

    /// The bytes that are still to be sent.
    pub(super) fn len(&self) -> u64 {
        let rest = self.parts.get(self.next..).unwrap_or_default();
        rest.iter().map(|part| part.len() as u64).sum()
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.get(self.next).cloned();
        self.next += 1;
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.next >= self.parts.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn edit(range: Range<usize>, with: &'static str) -> Edit {
        Edit {
            range,
            with: Bytes::from_static(with.as_bytes()),
        }
    }

    #[tokio::test]
    async fn edits_replace_insert_and_cut() {
        let text = Bytes::from_static(b"abcdef");
        let spliced = Spliced::new(&text, &[edit(0..1, "X"), edit(2..2, "--"), edit(4..6, "")]);
        assert_eq!(spliced.len(), 6);
        assert_eq!(spliced.clone().into_whole(), "Xb--cd");
        let sent = spliced.clone().collect().await.unwrap().to_bytes();
        assert_eq!(sent, "Xb--cd");
        let again = spliced.collect().await.unwrap().to_bytes();
        assert_eq!(again, "Xb--cd", "a clone is sent whole again");
    }
}
