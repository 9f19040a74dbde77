//! What would make something fit that does not, each tried.

use llmgw_core::units::Tokens;
use serde::Serialize;

use super::{
    CacheType, Engine, FlashAttention, Offload, Request, RequestError, Shape, estimate,
    largest_context, most_layers, most_slots,
};

/// A change of a request with which all certainly fits. What is absent stays as it was asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct FitChange {
    /// Less context of one request: the most that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Tokens>,
    /// Fewer requests at the same time: the most that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// A smaller form of cache, of keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheType>,
    /// Fewer layers on GPUs: the most that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_layers: Option<usize>,
}

/// The changes with which all certainly fits: those of one thing where there are any, else those of several together. Empty
/// when it fits as it is, when no limit is known, and when nothing of this helps.
///
/// # Errors
///
/// [`RequestError`] when the request can't be.
pub fn remedies(shape: &Shape, request: &Request) -> Result<Vec<FitChange>, RequestError> {
    if estimate(shape, request)?.fits() != Some(false) {
        return Ok(Vec::new());
    }
    let caches = smaller_caches(request);
    let mut found = Vec::new();
    let less = largest_context(shape, request)?.filter(|most| *most < request.context);
    found.extend(less.map(|context| FitChange {
        context: Some(context),
        ..FitChange::default()
    }));
    let fewer = most_slots(shape, request)?.filter(|most| *most < request.parallel);
    found.extend(fewer.map(|parallel| FitChange {
        parallel: Some(parallel),
        ..FitChange::default()
    }));
    for cache in &caches {
        if fits(shape, &with_cache(request, *cache)) {
            found.push(FitChange {
                cache: Some(*cache),
                ..FitChange::default()
            });
            break;
        }
    }
    if request.offload == Offload::All {
        let layers = most_layers(shape, request)?;
        found.extend(layers.map(|layers| FitChange {
            gpu_layers: Some(layers),
            ..FitChange::default()
        }));
    }
    if found.is_empty() {
        let alone = Request {
            parallel: 1,
            ..request.clone()
        };
        let forms = std::iter::once(None).chain(caches.into_iter().map(Some));
        for cache in forms {
            let tried = cache.map_or_else(|| alone.clone(), |cache| with_cache(&alone, cache));
            let context = if fits(shape, &tried) {
                None
            } else {
                match largest_context(shape, &tried)? {
                    Some(most) if most < request.context => Some(most),
                    _ => continue,
                }
            };
            found.push(FitChange {
                context,
                parallel: (request.parallel > 1).then_some(1),
                cache,
                gpu_layers: None,
            });
            break;
        }
    }
    Ok(found)
}

/// Forms of cache that take less than what was asked for, the better first. Values in such a form need flash attention
/// (llama.cpp, `src/llama-context.cpp`).
fn smaller_caches(request: &Request) -> Vec<CacheType> {
    let all: &[CacheType] = match request.engine {
        Engine::Llamacpp if request.flash_attention == FlashAttention::On => {
            &[CacheType::Q8_0, CacheType::Q4_0]
        }
        Engine::Llamacpp => &[],
        Engine::Vllm | Engine::Sglang => &[CacheType::F8],
    };
    let size = |cache: CacheType| cache.bytes(1_024);
    let now = size(request.cache_keys) + size(request.cache_values);
    let smaller = all
        .iter()
        .filter(|cache| size(**cache) + size(**cache) < now);
    smaller.copied().collect()
}

fn with_cache(request: &Request, cache: CacheType) -> Request {
    Request {
        cache_keys: cache,
        cache_values: cache,
        ..request.clone()
    }
}

/// What can't be asked for does not fit.
fn fits(shape: &Shape, request: &Request) -> bool {
    estimate(shape, request).is_ok_and(|estimate| estimate.fits() == Some(true))
}
