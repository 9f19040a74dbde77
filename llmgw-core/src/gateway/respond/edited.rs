//! What is changed in an answer while it passes.

use bytes::Bytes;
use http::{header, response};

use super::vectors::Vectors;
use crate::gateway::{
    inspect::Inspected,
    rewrite::{AnswerRewriter, Output},
};

/// Edits one answer, in pieces.
#[derive(Debug)]
pub(super) struct Edited {
    /// Absent when the answer is no JSON.
    rewriter: Option<AnswerRewriter>,
    /// Where vectors are to be put into another form.
    vectors: Option<(Vectors, Output)>,
}

// === impl Edited ===

impl Edited {
    /// For the answer with this head.
    pub(super) fn new(asked: &Inspected, head: &response::Parts) -> Self {
        let rewriter = || AnswerRewriter::new(&asked.model);
        Self {
            rewriter: (!asked.dialect.forms || is_json(head)).then(rewriter),
            vectors: asked.base64.then(Default::default),
        }
    }

    /// Whether the answer is JSON, as far as its head says.
    pub(super) fn is_json(&self) -> bool {
        self.rewriter.is_some()
    }

    /// Choices that have begun until now.
    pub(super) fn choices(&self) -> u64 {
        self.rewriter.as_ref().map_or(0, AnswerRewriter::choices)
    }

    /// Passes the next piece on.
    pub(super) fn feed(&mut self, piece: Bytes, out: &mut Output) {
        let Self { rewriter, vectors } = self;
        match (rewriter, vectors) {
            (None, _) => out.push(piece),
            (Some(rewriter), None) => rewriter.feed(piece, out),
            (Some(rewriter), Some((vectors, between))) => {
                rewriter.feed(piece, between);
                vectors.feed(&between.take(), out);
            }
        }
    }

    /// The engine's usage, once the answer has passed.
    pub(super) fn into_usage(self) -> Option<Bytes> {
        self.rewriter?.into_usage()
    }
}

fn is_json(head: &response::Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}
