//! Which layer is where.

use llmgw_core::units::Bytes;

/// Where something is computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Gpu(usize),
    Host,
}

/// The place of every layer and of the output.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    layers: Vec<Place>,
    output: Place,
    copies: u64,
}

impl Placement {
    /// The last `wanted` of the layers and the output, which counts as the last of all, are spread over GPUs in
    /// proportion to their memory: `load_tensors` in llama.cpp's `src/llama-model.cpp`.
    pub(super) fn new(layers: usize, wanted: usize, gpus: &[Option<Bytes>]) -> Self {
        let all = layers.saturating_add(1);
        let offloaded = if gpus.is_empty() { 0 } else { wanted.min(all) };
        let first = all.saturating_sub(offloaded);
        let weights = proportions(gpus);
        let place = |index: usize| match index.checked_sub(first) {
            Some(nth) => Place::Gpu(gpu_of(nth, offloaded, &weights)),
            None => Place::Host,
        };
        Self {
            layers: (0..layers).map(place).collect(),
            output: place(layers),
            // Several GPUs work on several batches at the same time when nothing is left on the host
            // (`GGML_SCHED_MAX_COPIES`).
            copies: if gpus.len() > 1 && offloaded == all {
                4
            } else {
                1
            },
        }
    }

    pub(super) fn layer(&self, index: usize) -> Place {
        self.layers.get(index).copied().unwrap_or(self.output)
    }

    pub(super) fn output(&self) -> Place {
        self.output
    }

    /// Batches whose inputs are kept at the same time.
    pub(super) fn copies(&self) -> u64 {
        self.copies
    }
}

/// The weight of each GPU: its memory, or the same for all when one is not known.
fn proportions(gpus: &[Option<Bytes>]) -> Vec<u64> {
    let known: Option<Vec<u64>> = gpus
        .iter()
        .map(|memory| memory.map(|bytes| (bytes.0 >> 20).max(1)))
        .collect();
    known.unwrap_or_else(|| vec![1; gpus.len()])
}

/// The GPU of the `nth` of `count`: the first whose share, summed up, goes beyond it.
fn gpu_of(nth: usize, count: usize, weights: &[u64]) -> usize {
    let wide = |n: usize| u128::try_from(n).unwrap_or(u128::MAX);
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut sum: u128 = 0;
    for (gpu, weight) in weights.iter().enumerate() {
        sum = sum.saturating_add(u128::from(*weight));
        if sum.saturating_mul(wide(count)) > wide(nth).saturating_mul(total) {
            return gpu;
        }
    }
    weights.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(layers: usize, wanted: usize, gib: &[u64]) -> String {
        let gpus: Vec<_> = gib.iter().map(|gib| Some(Bytes::gib(*gib))).collect();
        let placement = Placement::new(layers, wanted, &gpus);
        (0..=layers)
            .map(|index| match placement.layer(index) {
                Place::Gpu(gpu) => char::from_digit(u32::try_from(gpu).unwrap(), 10).unwrap(),
                Place::Host => 'h',
            })
            .collect()
    }

    #[test]
    fn the_last_layers_go_to_the_gpu_and_the_output_first() {
        assert_eq!(places(4, usize::MAX, &[24]), "00000");
        assert_eq!(places(4, 3, &[24]), "hh000");
        assert_eq!(places(4, 1, &[24]), "hhhh0");
        assert_eq!(places(4, 0, &[24]), "hhhhh");
        assert_eq!(places(4, usize::MAX, &[]), "hhhhh");
    }

    #[test]
    fn layers_are_spread_in_proportion_to_memory() {
        assert_eq!(places(7, usize::MAX, &[24, 24]), "00001111");
        assert_eq!(places(7, usize::MAX, &[48, 16]), "00000011");
        assert_eq!(places(7, 4, &[24, 24]), "hhhh0011");
    }
}
