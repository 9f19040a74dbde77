//! The most that fits.

use llmgw_core::units::Tokens;

use super::{
    Request, RequestError, Shape, estimate,
    request::{Engine, MOST_CONTEXT, MOST_SLOTS, Offload},
};

/// The largest context of one request that certainly fits with all else as in `request`, in steps of 256 tokens,
/// up to what the model was trained for; absent when not even that of 256 fits, or no limit is known.
///
/// # Errors
///
/// [`RequestError`] when the request can't be.
pub fn largest_context(shape: &Shape, request: &Request) -> Result<Option<Tokens>, RequestError> {
    // A file may say that it was trained for more than can be asked for.
    let trained = shape.trained_context.unwrap_or(UNTRAINED);
    let trained = trained.min(Tokens(MOST_CONTEXT));
    let most = trained.0.div_ceil(STEP);
    let steps = largest(most.max(1), |steps| {
        fits(
            shape,
            &Request {
                context: Tokens(steps.saturating_mul(STEP)),
                ..request.clone()
            },
        )
    })?;
    Ok(steps.map(|steps| Tokens(steps.saturating_mul(STEP)).min(trained)))
}

/// The most requests at the same time that certainly fit with all else as in `request`; absent when not even one
/// fits, or no limit is known.
///
/// # Errors
///
/// [`RequestError`] when the request can't be.
pub fn most_slots(shape: &Shape, request: &Request) -> Result<Option<u32>, RequestError> {
    let slots = largest(u64::from(MOST_SLOTS), |slots| {
        fits(
            shape,
            &Request {
                parallel: u32::try_from(slots).unwrap_or(MOST_SLOTS),
                ..request.clone()
            },
        )
    })?;
    Ok(slots.and_then(|slots| u32::try_from(slots).ok()))
}

/// The most layers on GPUs, the output counted as one, with which all certainly fits (llama.cpp); absent when
/// nothing does, when no limit is known, or for another engine.
///
/// # Errors
///
/// [`RequestError`] when the request can't be.
pub fn most_layers(shape: &Shape, request: &Request) -> Result<Option<usize>, RequestError> {
    if request.engine != Engine::Llamacpp || request.gpus.is_empty() {
        return Ok(None);
    }
    // One by one: with fewer layers a GPU may need more, as weights come over from the host then.
    for layers in (0..=shape.layers.len().saturating_add(1)).rev() {
        let request = Request {
            offload: Offload::Layers(layers),
            ..request.clone()
        };
        if fits(shape, &request)? {
            return Ok(Some(layers));
        }
    }
    Ok(None)
}

fn fits(shape: &Shape, request: &Request) -> Result<bool, RequestError> {
    Ok(estimate(shape, request)?.fits() == Some(true))
}

/// The largest number from 1 to `most` that fits, given that all smaller ones do too.
fn largest(
    most: u64,
    mut fits: impl FnMut(u64) -> Result<bool, RequestError>,
) -> Result<Option<u64>, RequestError> {
    if !fits(1)? {
        return Ok(None);
    }
    let (mut good, mut bad) = (1, most.saturating_add(1));
    while bad.saturating_sub(good) > 1 {
        let middle = good.midpoint(bad);
        if fits(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(good))
}

const STEP: u64 = 256;
/// As far as is searched when a model does not say what it was trained for.
const UNTRAINED: Tokens = Tokens(1 << 20);
