//! How much memory a model needs, and why.
//!
//! [`Shape`] is what matters of a model, taken from the header of its file; [`Request`] is how it should run;
//! [`estimate`] says for each GPU and for the host what weights, cache, recurrent state, compute buffers and
//! overhead take. Weights, cache and state are exact; compute and overhead are a [`Bound`], and what decides
//! whether something fits is the upper end.
//!
//! A model whose architecture is not known is refused ([`ShapeError::CannotBound`]) and not guessed.
//!
//! Sources of the rules: llama.cpp (`src/llama-kv-cache*.cpp`, `src/llama-memory-recurrent.cpp`,
//! `src/llama-model.cpp`, `src/models/*.cpp`), vLLM (`v1/kv_cache_interface.py`, `v1/worker/gpu_worker.py`), SGLang
//! (`mem-fraction-static` in its server arguments), and sizes that users and projects have published, which
//! the tests of this crate hold the rules against.

mod estimate;
mod llamacpp;
mod remedies;
mod request;
mod search;
mod sglang;
mod shape;
#[cfg(test)]
mod tests;
mod vllm;

pub use self::{
    estimate::{Bound, Device, Estimate, Footprint},
    remedies::{FitChange, remedies},
    request::{CacheType, Engine, FlashAttention, Offload, Request, RequestError, Slots, Windows},
    search::{largest_context, most_layers, most_slots},
    shape::{Cache, Experts, Kind, Layer, Reach, Shape, ShapeError},
};

/// What `shape` takes when it runs as `request` says.
///
/// # Errors
///
/// [`RequestError`] when the request can't be, or not with this engine.
pub fn estimate(shape: &Shape, request: &Request) -> Result<Estimate, RequestError> {
    request.check()?;
    match request.engine {
        Engine::Llamacpp => Ok(llamacpp::estimate(shape, request)),
        Engine::Vllm => vllm::estimate(shape, request),
        Engine::Sglang => sglang::estimate(shape, request),
    }
}
