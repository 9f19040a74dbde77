//! vLLM: weights, cache and computation are split over all GPUs of a replica (tensor parallelism).

use llmgw_core::units::Bytes;

use super::{
    estimate::{Bound, Device, Estimate, Footprint, product, share, times},
    request::{Request, RequestError},
    shape::{Cache, Kind, Reach, Shape},
};

pub(super) fn estimate(shape: &Shape, request: &Request) -> Result<Estimate, RequestError> {
    paged(
        shape,
        request,
        &Paging {
            block: BLOCK,
            utilisation: request.utilisation.unwrap_or(UTILISATION),
            static_only: false,
        },
    )
}

/// How an engine with a paged cache divides a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging {
    /// Tokens of a page.
    pub(super) block: u64,
    /// Thousandths of the GPU that may be used.
    pub(super) utilisation: u16,
    /// Whether that is for weights and cache alone, and the rest must do for all else.
    pub(super) static_only: bool,
}

pub(super) fn paged(
    shape: &Shape,
    request: &Request,
    paging: &Paging,
) -> Result<Estimate, RequestError> {
    if request.gpus.is_empty() {
        return Err(RequestError {
            field: "gpus",
            problem: "this engine needs a GPU".to_owned(),
        });
    }
    let parts = u64::try_from(request.gpus.len()).unwrap_or(u64::MAX);
    let weights = share(shape.weights(), parts);
    let cache = match shape.kind {
        Kind::Writer => cache(shape, request, paging.block, parts),
        Kind::Reader => Bytes::ZERO,
    };
    let state = times(share(shape.state(), parts), u64::from(request.parallel));
    let compute = compute(shape, request, parts);
    let overhead = if parts > 1 {
        Bound::new(OVERHEAD_LEAST, OVERHEAD_MANY)
    } else {
        Bound::new(OVERHEAD_LEAST, OVERHEAD_ONE)
    };
    let fixed = weights + cache + state;
    let devices = request.gpus.iter().enumerate().map(|(index, memory)| {
        let limit = memory.map(|memory| {
            let part = thousandths(memory, paging.utilisation);
            if !paging.static_only {
                part
            } else if fixed <= part {
                memory
            } else {
                // What is kept for good does not fit in its part: no more than that part counts.
                part
            }
        });
        Footprint {
            device: Device::Gpu(index),
            limit,
            layers: shape.layers.len(),
            weights,
            cache,
            state,
            compute,
            overhead,
        }
    });
    let mut devices: Vec<Footprint> = devices.collect();
    devices.push(Footprint {
        device: Device::Host,
        limit: request.host,
        layers: 0,
        weights: Bytes::ZERO,
        cache: Bytes::ZERO,
        state: Bytes::ZERO,
        compute: Bound::default(),
        overhead: Bound::new(HOST_LEAST, HOST_MOST),
    });
    Ok(Estimate { devices })
}

/// Pages of all requests: `page_size_bytes` of vLLM's `FullAttentionSpec`, `SlidingWindowSpec` and
/// `MLAAttentionSpec`. Heads are split over GPUs and repeated when there are fewer; a latent row is on each.
fn cache(shape: &Shape, request: &Request, block: u64, parts: u64) -> Bytes {
    let of_layer = |cache: &Cache| {
        let heads = if cache.value == 0 {
            cache.heads
        } else {
            cache.heads.div_ceil(parts)
        };
        let token = request.cache_keys.bytes(heads.saturating_mul(cache.key))
            + request
                .cache_values
                .bytes(heads.saturating_mul(cache.value));
        let tokens = match cache.reach {
            Reach::All => request.context.0,
            Reach::Window(window) => request
                .context
                .0
                .min(window.0.saturating_add(batch(request))),
        };
        let pages = tokens.div_ceil(block);
        times(token, pages.saturating_mul(block))
    };
    let one = shape
        .layers
        .iter()
        .filter_map(|layer| layer.cache.as_ref())
        .map(of_layer)
        .sum();
    times(one, u64::from(request.parallel))
}

/// The peak of a profile run: one batch in 16-bit, the feed-forward part (gate and up together, then their
/// product) beside what comes in and goes on, and the logits of as many requests as run at the same time. Two
/// published runs of Llama 3.1 8B, at 20000 and 29000 tokens, lie on the line `2 x (3 x ff + 3 x embedding)`.
fn compute(shape: &Shape, request: &Request, parts: u64) -> Bound {
    let tokens = batch(request);
    let width = shape.active_feed_forward().div_ceil(parts);
    let wide = width
        .saturating_mul(3)
        .saturating_add(shape.embedding.saturating_mul(3));
    let narrow = width.saturating_mul(2).saturating_add(shape.embedding);
    let line = product(&[tokens, HALF, wide]);
    let experts = shape.experts.map_or(Bytes::ZERO, |experts| {
        product(&[tokens, HALF, experts.used, shape.embedding])
    });
    let inner = product(&[tokens, FULL, shape.recurrent_width.div_ceil(parts), 8]);
    let logits = product(&[
        u64::from(request.parallel.max(SEQUENCES)),
        shape.vocabulary,
        FULL,
    ]);
    Bound::new(
        product(&[tokens, HALF, narrow]),
        line + Bytes(line.0 / 4) + experts + inner + times(logits, 4),
    )
}

fn batch(request: &Request) -> u64 {
    request.batch.map_or(DEFAULT_BATCH, |batch| batch.0)
}

fn thousandths(memory: Bytes, part: u16) -> Bytes {
    let part = u128::from(memory.0).saturating_mul(u128::from(part)) / 1_000;
    Bytes(u64::try_from(part).unwrap_or(u64::MAX))
}

/// Tokens of a page.
const BLOCK: u64 = 16;
/// `gpu_memory_utilization`.
const UTILISATION: u16 = 900;
/// `max_num_batched_tokens` where the server does not say.
const DEFAULT_BATCH: u64 = 8_192;
/// `max_num_seqs`: a profile run takes so many, however few will come.
const SEQUENCES: u32 = 256;
const HALF: u64 = 2;
const FULL: u64 = 4;
/// Driver, libraries and captured graphs. Readings: 0.35 to 1.8 GiB on one GPU, 2.1 to 3.6 on several.
const OVERHEAD_LEAST: Bytes = Bytes::mib(256);
const OVERHEAD_ONE: Bytes = Bytes::mib(2_560);
const OVERHEAD_MANY: Bytes = Bytes::mib(4_608);
/// The Python processes.
const HOST_LEAST: Bytes = Bytes::gib(1);
const HOST_MOST: Bytes = Bytes::gib(8);
