//! The key-value cache: cells, and bytes of a cell.

use llmgw_core::units::Bytes;

use super::super::{
    estimate::times,
    request::{Request, Slots, Windows},
    shape::{Cache, Reach, Shape},
};

/// Cells of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells {
    /// Of one stream, for layers that look back to the beginning.
    full: u64,
    /// Streams: one for each slot, or one for all.
    pub(super) streams: u64,
    /// Tokens computed at once.
    pub(super) batch: u64,
    slots: u64,
    windows: Windows,
    /// Cells that a mask is made over: one mask for each kind of layer.
    pub(super) masked: u64,
    /// The most cells that a layer looks at.
    pub(super) widest: u64,
}

impl Cells {
    pub(super) fn of(shape: &Shape, request: &Request) -> Self {
        let slots = u64::from(request.parallel);
        // `n_ctx_seq` is rounded up (`GGML_PAD` in `src/llama-context.cpp`). Releases of 2025 rounded to 32
        // without flash attention: never to more.
        let (full, streams) = match request.slots {
            Slots::Apart => (rounded(request.context.0), slots),
            Slots::Shared => (rounded(request.context.0.saturating_mul(slots)), 1),
        };
        let mut cells = Self {
            full,
            streams,
            batch: batch(request).min(full.saturating_mul(streams)),
            slots,
            windows: request.windows,
            masked: 0,
            widest: 0,
        };
        let mut kinds: Vec<u64> = shape
            .layers
            .iter()
            .filter_map(|layer| layer.cache.as_ref())
            .map(|cache| cells.of_stream(cache))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        cells.widest = kinds.last().copied().unwrap_or(0);
        cells.masked = kinds.iter().fold(0, |all, n| u64::saturating_add(all, *n));
        cells
    }

    /// Cells of one stream for a layer.
    fn of_stream(&self, cache: &Cache) -> u64 {
        match (cache.reach, self.windows) {
            (Reach::All, _) | (Reach::Window(_), Windows::Full) => self.full,
            // `llama_kv_cache_iswa`: the windows of all slots of the stream and one batch.
            (Reach::Window(window), Windows::Kept) => {
                let slots = self.slots.checked_div(self.streams).unwrap_or(1);
                let needed = window.0.saturating_mul(slots).saturating_add(self.batch);
                rounded(needed.min(self.full))
            }
        }
    }

    /// What a layer keeps for all slots.
    pub(super) fn bytes(&self, cache: &Cache, request: &Request) -> Bytes {
        let keys = request
            .cache_keys
            .bytes(cache.heads.saturating_mul(cache.key));
        let values = request
            .cache_values
            .bytes(cache.heads.saturating_mul(cache.value));
        times(
            keys + values,
            self.of_stream(cache).saturating_mul(self.streams),
        )
    }
}

fn batch(request: &Request) -> u64 {
    request.batch.map_or(DEFAULT_BATCH, |batch| batch.0)
}

fn rounded(cells: u64) -> u64 {
    cells.checked_next_multiple_of(CELLS).unwrap_or(u64::MAX)
}

/// The cache grows by so many cells.
const CELLS: u64 = 256;
/// `--ubatch-size`.
pub(super) const DEFAULT_BATCH: u64 = 512;
