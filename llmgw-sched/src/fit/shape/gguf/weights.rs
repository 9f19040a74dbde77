//! Weights of a GGUF file by where they are used.

use llmgw_core::{gguf::Header, units::Bytes};

use super::super::ShapeError;

/// Weights by where they are used.
#[derive(Default)]
pub(super) struct Weights {
    /// Of each layer.
    pub(super) layers: Vec<Bytes>,
    /// Looked up on the host: embeddings of tokens, and of tokens for each layer.
    pub(super) input: Bytes,
    /// The embeddings of tokens alone.
    pub(super) embeddings: Bytes,
    /// All else.
    pub(super) output: Bytes,
    /// Whether the output has weights of its own.
    pub(super) has_output: bool,
}

impl Weights {
    /// llama.cpp keeps the embeddings of tokens on the host, layers where they are
    /// computed, and the rest with the output.
    pub(super) fn of(
        header: &Header,
        architecture: &str,
        layers: usize,
    ) -> Result<Self, ShapeError> {
        let mut weights = Self {
            layers: vec![Bytes::ZERO; layers],
            ..Self::default()
        };
        for tensor in &header.tensors {
            let name = &tensor.name;
            let bytes = tensor.bytes().ok_or_else(|| {
                let why = format!(
                    "the tensor {name} is of {}, whose size is not known",
                    tensor.kind
                );
                ShapeError::cannot(architecture, why)
            })?;
            let of_layer = name
                .strip_prefix("blk.")
                .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            if let Some(layer) = of_layer {
                let Some(of_layer) = weights.layers.get_mut(layer) else {
                    let problem = format!("the model has {layers} layers");
                    return Err(ShapeError::field(format!("tensors.{name}"), problem));
                };
                *of_layer = *of_layer + bytes;
            } else if name.starts_with("token_embd.") {
                weights.input = weights.input + bytes;
                weights.embeddings = weights.embeddings + bytes;
            } else if name.starts_with("per_layer_token_embd.") {
                weights.input = weights.input + bytes;
            } else {
                weights.has_output |= name == "output.weight";
                weights.output = weights.output + bytes;
            }
        }
        Ok(weights)
    }
}
