//! SGLang: as vLLM, but for pages of one token, and a share of the GPU that is for weights and cache alone.

use super::{
    estimate::Estimate,
    request::{Request, RequestError},
    shape::Shape,
    vllm::{Paging, paged},
};

pub(super) fn estimate(shape: &Shape, request: &Request) -> Result<Estimate, RequestError> {
    paged(
        shape,
        request,
        &Paging {
            block: 1,
            utilisation: request.utilisation.unwrap_or(STATIC_PART),
            static_only: true,
        },
    )
}

/// `mem_fraction_static` where the server does not say: SGLang takes 0.84 to 0.9 by the size of the GPU.
const STATIC_PART: u16 = 880;
