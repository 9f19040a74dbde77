//! The prompts of the check models, as seeds, and what follows them.
//!
//! Found by searching seeds from 0; the tests say what a seed must give, and when one does not they name the first
//! that does.

use crate::gguf::tensor::TensorType;

/// What a model must answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The prompt.
    pub(super) seed: u64,
    /// The tokens that follow it.
    pub(super) tokens: [u32; 2],
}

const fn answer(seed: u64, tokens: [u32; 2]) -> Answer {
    Answer { seed, tokens }
}

/// For the model of several types.
pub(super) const MIXED: Answer = answer(90, [300, 310]);

/// For the models of one type.
pub(super) const ANSWERS: &[(TensorType, Answer)] = &[
    (TensorType::F32, answer(90, [300, 310])),
    (TensorType::F16, answer(90, [300, 310])),
    (TensorType::BF16, answer(90, [300, 310])),
    (TensorType::Q4_0, answer(34, [288, 315])),
    (TensorType::Q4_1, answer(33, [271, 270])),
    (TensorType::Q5_0, answer(90, [300, 310])),
    (TensorType::Q5_1, answer(90, [300, 310])),
    (TensorType::Q8_0, answer(90, [300, 310])),
    (TensorType::Q2_K, answer(143, [313, 260])),
    (TensorType::Q3_K, answer(70, [317, 264])),
    (TensorType::Q4_K, answer(36, [305, 313])),
    (TensorType::Q5_K, answer(36, [305, 313])),
    (TensorType::Q6_K, answer(18, [305, 306])),
    (TensorType::IQ4_NL, answer(97, [291, 276])),
    (TensorType::IQ4_XS, answer(59, [311, 298])),
    (TensorType::MXFP4, answer(18, [305, 306])),
];
