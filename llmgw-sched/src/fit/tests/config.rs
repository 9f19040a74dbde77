use llmgw_core::{
    hf_config::Config,
    safetensors::{Header, Limits},
};
use serde_json::{Value, json};

use super::*;

fn config(value: &Value) -> Config {
    Config::parse(value.to_string().as_bytes()).unwrap()
}

/// Tensors of two layers, of the embeddings and of the output, 8 bytes each.
fn tensors() -> Header {
    let names = [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "lm_head.weight",
    ];
    let entries: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| {
            let entry = json!({"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]});
            ((*name).to_owned(), entry)
        })
        .collect();
    let text = Value::Object(entries).to_string();
    let mut bytes = u64::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    match Header::parse(&bytes, &Limits::default()).unwrap() {
        Progress::Done(header) => header,
        Progress::NeedMore { .. } => panic!("whole"),
    }
}

fn of(value: &Value) -> Result<Shape, String> {
    Shape::from_config(&config(value), &tensors(), None).map_err(|error| error.to_string())
}

/// A config of two layers, with these fields more.
fn with(more: &Value) -> Value {
    let mut value = json!({
        "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 256,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
        "max_position_embeddings": 4096,
    });
    let fields = value.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    value
}

#[test]
fn a_config_gives_the_same_shape_as_a_gguf_file() {
    let shape = of(&with(&json!({}))).unwrap();
    let cache = shape.layers[0].cache.unwrap();
    assert_eq!((cache.heads, cache.key, cache.value), (2, 16, 16));
    assert_eq!(shape.layers[1].weights, Bytes(8));
    assert_eq!((shape.input, shape.output), (Bytes(8), Bytes(8)));
    assert_eq!(shape.trained_context, Some(Tokens(4096)));
}

#[test]
fn the_kinds_of_layers_are_listed_or_follow_from_the_model_type() {
    let listed = json!({
        "model_type": "gpt_oss", "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
    });
    assert_eq!(pattern(&of(&with(&listed)).unwrap()), "wf");
    let by_type = json!({"model_type": "gemma2", "sliding_window": 128});
    assert_eq!(pattern(&of(&with(&by_type)).unwrap()), "wf");
    let chunks = json!({"model_type": "llama4_text", "attention_chunk_size": 64});
    let shape = of(&with(&chunks)).unwrap();
    assert_eq!(pattern(&shape), "ww");
    assert_eq!(
        shape.layers[0].cache.unwrap().reach,
        Reach::Window(Tokens(64))
    );
    // A window that the model type does not use.
    let unused =
        json!({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]});
    assert_eq!(pattern(&of(&with(&unused)).unwrap()), "ff");
    let delta = json!({
        "model_type": "qwen3_next", "full_attention_interval": 2, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_conv_kernel_dim": 4,
    });
    let shape = of(&with(&delta)).unwrap();
    assert_eq!(pattern(&shape), "rf");
    // As llama.cpp logs for the same model: 301.5 MiB for 36 layers and 4 sequences.
    assert_eq!(shape.layers[0].state.0 * 36 * 4, (603 << 20) / 2);
}

#[test]
fn latent_attention_and_experts_are_found_in_the_text_part() {
    let value = json!({"model_type": "kimi_vl", "text_config": with(&json!({
        "model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
        "moe_intermediate_size": 1408,
    }))});
    let shape = of(&value).unwrap();
    let cache = shape.layers[0].cache.unwrap();
    assert_eq!((cache.heads, cache.key, cache.value), (1, 576, 0));
    let experts = shape.experts.unwrap();
    assert_eq!(
        (experts.count, experts.used, experts.feed_forward),
        (64, 8, 1408)
    );
}

#[test]
fn what_can_t_be_is_refused_with_its_path() {
    for (more, expected) in [
        (
            json!({"model_type": "marvin"}),
            "cannot bound marvin: no rule is known for the model type",
        ),
        (json!({"model_type": null}), "model_type: is missing"),
        (
            json!({"num_hidden_layers": 0}),
            "num_hidden_layers: 0; 1 to 1024 are allowed",
        ),
        (
            json!({"vocab_size": "big"}),
            "vocab_size: \"big\" is not a whole number",
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "layer_types: 1 of them for 2 layers",
        ),
        (
            json!({"layer_types": ["full_attention", "psychic"]}),
            "layer_types[1]: \"psychic\" is not known here",
        ),
        (
            json!({"model_type": "deepseek_v3"}),
            "kv_lora_rank: is missing",
        ),
    ] {
        assert_eq!(of(&with(&more)).unwrap_err(), expected);
    }
}
