//! Compute buffers: bounded, not exact.
//!
//! The buffer holds what is alive at the widest place of the graph, for one batch. Which tensors share a place is
//! the allocator's choice; so the least is what certainly lives at the same time, and the most is what could. A
//! run of llama.cpp on the CPU shows the parts that grow: with flash attention 2 bytes for each cell and token
//! (the mask), without it 4 for each cell, token and head, and 4 for the mask. Releases of 2025 kept a mask of
//! 4 bytes beside, and logits for a whole batch (`vocabulary x batch x 4`).

use llmgw_core::units::Bytes;

use super::{
    super::{
        estimate::{Bound, product, times},
        request::{FlashAttention, Request},
        shape::Shape,
    },
    cache::{Cells, DEFAULT_BATCH},
};

/// What a device computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) layers: usize,
    pub(super) has_output: bool,
    /// Whether layers that draft are among them: they have a graph of their own.
    pub(super) drafts: bool,
    pub(super) host: bool,
    /// Whether there is no other device.
    pub(super) alone: bool,
    /// Batches whose inputs are kept at the same time.
    pub(super) copies: u64,
    /// Weights that come over from the host for a batch.
    pub(super) borrowed: Bytes,
}

/// Bytes of an element.
const F32: u64 = 4;
const F16: u64 = 2;
/// One part in so many of a buffer.
const GAPS: u64 = 8;

pub(super) fn of_writer(shape: &Shape, request: &Request, cells: &Cells, part: &Part) -> Bound {
    let batch = cells.batch;
    // The host looks tokens up, and hands on masks and results, even when it computes no layer.
    if part.layers == 0 && !part.has_output {
        return if part.host {
            lookup(shape, request, cells)
        } else {
            Bound::default()
        };
    }
    let row = product(&[batch, F32]);
    let mask = product(&[batch, cells.masked]);
    let scores = match request.flash_attention {
        FlashAttention::On => Bytes::ZERO,
        FlashAttention::Off => product(&[batch, cells.widest, shape.heads, F32]),
    };
    let narrow = times(row, shape.active_feed_forward().max(shape.embedding));
    let least = narrow.max(match request.flash_attention {
        FlashAttention::On => times(mask, F16),
        FlashAttention::Off => times(mask, F32) + scores,
    });
    let busy = times(row, busiest(shape)) + scores + state(shape, request) + part.borrowed;
    let busy = with_gaps(busy);
    let mut most = match request.flash_attention {
        FlashAttention::On => with_masks(mask, busy, part),
        FlashAttention::Off => times(mask, F32.saturating_mul(part.copies)) + busy,
    };
    if part.has_output {
        // Made when all layers are done, and nothing of theirs is needed any more.
        let logits = shape
            .vocabulary
            .saturating_add(shape.embedding.saturating_mul(2));
        most = most.max(with_gaps(times(row, logits)));
    }
    if part.drafts {
        most = times(most, 2);
    }
    if part.host {
        most = most + results(shape, request);
        if !part.alone {
            most = most + lookup(shape, request, cells).most;
        }
    }
    Bound::new(least, most)
}

/// With what the allocator can't use again between what it does.
fn with_gaps(amount: Bytes) -> Bytes {
    amount + Bytes(amount.0 / GAPS)
}

/// With flash attention a mask of 2 bytes lives with all layers. Where it is made from one of 4 bytes, that is
/// given back before the layers, which then lie in its place as far as they fit; several GPUs keep it for each of
/// their batches.
fn with_masks(mask: Bytes, busy: Bytes, part: &Part) -> Bytes {
    let wide = times(mask, F32);
    let kept = times(mask, F16);
    if part.copies > 1 {
        return kept + times(wide, part.copies) + busy;
    }
    let unused = wide.min(busy);
    kept + wide.max(busy) + Bytes(unused.0 / 4)
}

/// The state of one layer is read, changed and written apart.
fn state(shape: &Shape, request: &Request) -> Bytes {
    let layers = shape.layers.iter().map(|layer| layer.state);
    let largest = layers.max().unwrap_or(Bytes::ZERO);
    times(largest, u64::from(request.parallel).saturating_mul(4))
}

/// A batch holds whole texts, each token of which looks at all others; nothing is kept.
pub(super) fn of_reader(shape: &Shape, request: &Request, part: &Part) -> Bound {
    let batch = request
        .batch
        .map_or(DEFAULT_BATCH, |batch| batch.0)
        .max(request.context.0);
    let row = product(&[batch, F32]);
    if part.layers == 0 && !part.has_output {
        let most = if part.host {
            times(row, shape.embedding)
        } else {
            Bytes::ZERO
        };
        return Bound::new(Bytes::ZERO, most);
    }
    let mask = product(&[batch, batch]);
    let scores = match request.flash_attention {
        FlashAttention::On => times(mask, F16),
        FlashAttention::Off => times(mask, shape.heads.saturating_mul(F32)),
    };
    let least = times(row, shape.feed_forward.max(shape.embedding));
    let most = scores + times(mask, F32 + F16) + times(row, busiest(shape));
    Bound::new(least, most)
}

/// The most elements that live for one token at the widest place of a layer: the feed-forward part four times
/// (gate, up, their product), what comes in and goes on, queries and attended values, and what a recurrent layer
/// works on.
fn busiest(shape: &Shape) -> u64 {
    let experts = shape.experts.map_or(0, |experts| {
        experts
            .used
            .saturating_mul(shape.embedding)
            .saturating_mul(2)
    });
    [
        shape.active_feed_forward().saturating_mul(4),
        shape.embedding.saturating_mul(8),
        shape
            .heads
            .saturating_mul(shape.head_width)
            .saturating_mul(3),
        shape.recurrent_width.saturating_mul(16),
        experts,
    ]
    .iter()
    .fold(0, |all, n| u64::saturating_add(all, *n))
}

/// What the host needs for a batch that GPUs compute.
fn lookup(shape: &Shape, request: &Request, cells: &Cells) -> Bound {
    let tokens = product(&[cells.batch, shape.embedding, F32]);
    let mask = product(&[cells.batch, cells.masked, F16 + F32]);
    Bound::new(tokens, times(tokens, 4) + mask + results(shape, request))
}

/// The results of one token of each slot.
fn results(shape: &Shape, request: &Request) -> Bytes {
    product(&[u64::from(request.parallel), shape.vocabulary, F32])
}
