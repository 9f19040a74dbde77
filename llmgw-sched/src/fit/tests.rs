//! What a shape is made from, what is refused, and that the most that fits does fit.

mod config;
mod places;
mod search;
mod shapes;

use llmgw_core::{
    gguf::{Header, Limits, TensorType, Value, write::Draft},
    header::Progress,
    units::{Bytes, Tokens},
};

use super::*;

fn header(draft: &Draft) -> Header {
    let bytes = draft.header().unwrap();
    match Header::parse(&bytes, &Limits::default()).unwrap() {
        Progress::Done(header) => header,
        Progress::NeedMore { bytes } => panic!("needs {bytes} bytes"),
    }
}

/// An architecture of 8 layers, with these fields more.
fn draft(architecture: &str, more: &[(&str, Value)]) -> Draft {
    let fields = [
        ("block_count", Value::U32(8)),
        ("embedding_length", Value::U32(256)),
        ("feed_forward_length", Value::U32(1024)),
        ("attention.head_count", Value::U32(8)),
        ("attention.head_count_kv", Value::U32(2)),
        ("vocab_size", Value::U32(1000)),
        ("context_length", Value::U32(4096)),
    ];
    let draft = Draft::default().with("general.architecture", Value::Text(architecture.into()));
    fields
        .iter()
        .filter(|(name, _)| !more.iter().any(|(other, _)| other == name))
        .chain(more)
        .fold(draft, |draft, (name, value)| {
            draft.with(&format!("{architecture}.{name}"), value.clone())
        })
}

fn shape(architecture: &str, more: &[(&str, Value)]) -> Shape {
    Shape::from_gguf(&header(&draft(architecture, more)), None).unwrap()
}

fn refused(draft: &Draft) -> String {
    Shape::from_gguf(&header(draft), None)
        .unwrap_err()
        .to_string()
}

/// Which layers have what: `f` a full cache, `w` a window, `r` a state, `b` cache and state, `.` nothing.
fn pattern(shape: &Shape) -> String {
    let letter = |layer: &Layer| match (layer.cache, layer.state == Bytes::ZERO) {
        (Some(_), false) => 'b',
        (None, false) => 'r',
        (None, true) => '.',
        (Some(cache), true) if cache.reach == Reach::All => 'f',
        (Some(_), true) => 'w',
    };
    shape.layers.iter().map(letter).collect()
}

/// A llama with weights: 8 layers of 1 MiB, embeddings of 4 MiB, an output of 4 MiB.
fn weighted() -> Shape {
    let mut draft = draft("llama", &[])
        .tensor("token_embd.weight", &[1024, 2048], TensorType::F16)
        .tensor("output.weight", &[1024, 2048], TensorType::F16);
    for layer in 0..8 {
        draft = draft.tensor(
            &format!("blk.{layer}.ffn_up.weight"),
            &[1024, 512],
            TensorType::F16,
        );
    }
    Shape::from_gguf(&header(&draft), None).unwrap()
}

#[test]
fn heads_that_can_not_be_are_refused_and_not_called_free() {
    for heads in [0, u32::MAX] {
        let fields = [
            ("attention.head_count", Value::U32(heads)),
            ("attention.head_count_kv", Value::U32(heads)),
        ];
        let problem = refused(&draft("llama", &fields));
        assert!(problem.contains("llama.attention.head_count"), "{problem}");
    }
    // More heads than elements: a key of no width.
    let problem = refused(&draft(
        "llama",
        &[("attention.head_count", Value::U32(512))],
    ));
    assert!(problem.contains("keep anything"), "{problem}");
}
