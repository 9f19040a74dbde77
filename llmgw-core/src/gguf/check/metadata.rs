//! What the file says of the model, beside its weights.

use super::{EPSILON, FIRST_BYTE, FIRST_WORD, HEAD, KEYS, ROPE_BASE, VOCABULARY, WIDTH};
use crate::gguf::{
    metadata::{Array, Value, ValueKind},
    write::Draft,
};

/// Adds what an engine has to know of the model, and its vocabulary.
pub(super) fn metadata(draft: Draft) -> Draft {
    let u32s = |key: &str, value: usize| {
        (
            key.to_owned(),
            Value::U32(u32::try_from(value).unwrap_or(u32::MAX)),
        )
    };
    let numbers = [
        u32s("llama.context_length", 2048),
        u32s("llama.embedding_length", WIDTH),
        u32s("llama.block_count", 1),
        u32s("llama.feed_forward_length", WIDTH),
        u32s("llama.rope.dimension_count", HEAD),
        u32s("llama.attention.head_count", WIDTH / HEAD),
        u32s("llama.attention.head_count_kv", KEYS / HEAD),
        u32s("llama.vocab_size", VOCABULARY as usize),
        u32s("tokenizer.ggml.unknown_token_id", 0),
        u32s("tokenizer.ggml.bos_token_id", 1),
        u32s("tokenizer.ggml.eos_token_id", 2),
    ];
    let words: Vec<String> = (0..VOCABULARY).map(text_of).collect();
    let draft = draft
        .with("general.architecture", Value::Text("llama".into()))
        .with("general.name", Value::Text("llmgw check".into()))
        .with(
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(EPSILON),
        )
        .with("llama.rope.freq_base", Value::F32(ROPE_BASE))
        .with("tokenizer.ggml.model", Value::Text("llama".into()))
        .with("tokenizer.ggml.pre", Value::Text("default".into()))
        .with(
            "tokenizer.ggml.tokens",
            Value::texts(words.iter().map(String::as_str)),
        )
        .with(
            "tokenizer.ggml.scores",
            each(ValueKind::F32, |token| Value::F32(-(token as f32))),
        )
        .with(
            "tokenizer.ggml.token_type",
            each(ValueKind::I32, |token| Value::I32(kind_of(token))),
        )
        .with("tokenizer.ggml.add_bos_token", Value::Bool(false));
    numbers
        .into_iter()
        .fold(draft, |draft, (key, value)| draft.with(&key, value))
}

fn each(kind: ValueKind, value: impl Fn(u32) -> Value) -> Value {
    Value::Array(Array {
        kind,
        count: u64::from(VOCABULARY),
        elements: Some((0..VOCABULARY).map(value).collect()),
    })
}

/// The text of a token: a vocabulary that `SentencePiece` could have made: marks, all bytes, words.
pub(super) fn text_of(token: u32) -> String {
    match token {
        0 => "<unk>".to_owned(),
        1 => "<s>".to_owned(),
        2 => "</s>".to_owned(),
        _ if token < FIRST_WORD => format!("<0x{:02X}>", token - FIRST_BYTE),
        _ => format!("\u{2581}w{}", token - FIRST_WORD),
    }
}

/// `llama_token_type` in `llama.h`.
fn kind_of(token: u32) -> i32 {
    match token {
        0 => 2,
        1 | 2 => 3,
        _ if token < FIRST_WORD => 6,
        _ => 1,
    }
}
