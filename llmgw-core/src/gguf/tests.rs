//! What the reader takes, what it refuses, and that no bytes make it panic.

mod hostile;
mod mutated;
mod sizes;
mod split;

use super::{Header, Limits, TensorType, Value, write::Draft};
use crate::header::Progress;

/// A file with every kind of value.
fn sample() -> Draft {
    Draft::default()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", Value::U32(2))
        .with("llama.attention.head_count_kv", Value::u32s(&[2, 0]))
        .with("a.u8", Value::U8(250))
        .with("a.i8", Value::I8(-3))
        .with("a.u16", Value::U16(65_000))
        .with("a.i16", Value::I16(-300))
        .with("a.i32", Value::I32(-70_000))
        .with("a.f32", Value::F32(0.5))
        .with("a.bool", Value::Bool(true))
        .with("a.u64", Value::U64(1 << 40))
        .with("a.i64", Value::I64(-(1 << 40)))
        .with("a.f64", Value::F64(0.25))
        .with("tokenizer.ggml.tokens", Value::texts(["<s>", "</s>", "né"]))
        .tensor("token_embd.weight", &[64, 32], TensorType::Q8_0)
        .tensor("blk.0.attn_k.weight", &[64, 32], TensorType::F16)
        .tensor("output_norm.weight", &[64], TensorType::F32)
}

fn done(bytes: &[u8], limits: &Limits) -> Header {
    match Header::parse(bytes, limits).unwrap() {
        Progress::Done(header) => header,
        Progress::NeedMore { bytes } => panic!("needs {bytes} bytes"),
    }
}

fn refusal(bytes: &[u8]) -> String {
    Header::parse(bytes, &Limits::default())
        .unwrap_err()
        .to_string()
}
