use llmgw_core::gguf::{Array, ValueKind};

use super::*;

fn flags(flags: &[bool]) -> Value {
    Value::Array(Array {
        kind: ValueKind::Bool,
        count: u64::try_from(flags.len()).unwrap(),
        elements: Some(flags.iter().copied().map(Value::Bool).collect()),
    })
}

fn window(tokens: u32) -> (&'static str, Value) {
    ("attention.sliding_window", Value::U32(tokens))
}

const STATE: [(&str, Value); 4] = [
    ("ssm.conv_kernel", Value::U32(4)),
    ("ssm.inner_size", Value::U32(512)),
    ("ssm.state_size", Value::U32(16)),
    ("ssm.group_count", Value::U32(1)),
];

/// `4 x [(4 - 1)(512 + 2 x 1 x 16) + 16 x 512]`.
const STATE_BYTES: Bytes = Bytes(4 * (3 * 544 + 16 * 512));

#[test]
fn layers_with_a_window_stand_where_the_architecture_says() {
    assert_eq!(pattern(&shape("llama", &[window(512)])), "ffffffff");
    assert_eq!(pattern(&shape("gemma2", &[])), "wfwfwfwf");
    assert_eq!(pattern(&shape("gpt-oss", &[window(128)])), "wfwfwfwf");
    assert_eq!(pattern(&shape("gemma3", &[window(512)])), "wwwwwfww");
    assert_eq!(pattern(&shape("cohere2", &[window(512)])), "wwwfwwwf");
    assert_eq!(pattern(&shape("smallthinker", &[window(512)])), "fwwwfwww");
    // Without a window there is none.
    assert_eq!(pattern(&shape("olmo2", &[])), "ffffffff");
    // The file's own word comes first.
    let period = ("attention.sliding_window_pattern", Value::U32(2));
    assert_eq!(
        pattern(&shape("gemma3", &[window(512), period])),
        "wfwfwfwf"
    );
}

#[test]
fn a_list_says_which_layers_have_a_window_and_their_own_widths() {
    let listed = flags(&[true, true, false, true, true, false, true, false]);
    let gemma = shape(
        "gemma4",
        &[
            window(512),
            ("attention.sliding_window_pattern", listed),
            ("attention.key_length", Value::U32(512)),
            ("attention.value_length", Value::U32(512)),
            ("attention.key_length_swa", Value::U32(256)),
            ("attention.value_length_swa", Value::U32(256)),
            (
                "attention.head_count_kv",
                Value::u32s(&[8, 8, 2, 8, 8, 2, 8, 2]),
            ),
            ("attention.shared_kv_layers", Value::U32(2)),
        ],
    );
    assert_eq!(pattern(&gemma), "wwfwwf..");
    let cache = |layer: usize| gemma.layers[layer].cache.unwrap();
    assert_eq!(
        (cache(0).heads, cache(0).key, cache(0).value),
        (8, 256, 256)
    );
    assert_eq!(
        (cache(2).heads, cache(2).key, cache(2).value),
        (2, 512, 512)
    );
    assert_eq!(
        refused(&draft("gemma4", &[window(512)])),
        "metadata.gemma4.attention.sliding_window_pattern: is missing"
    );
}

#[test]
fn recurrent_layers_stand_where_the_architecture_says() {
    assert_eq!(pattern(&shape("qwen3next", &STATE)), "rrrfrrrf");
    assert_eq!(pattern(&shape("falcon-h1", &STATE)), "bbbbbbbb");
    assert_eq!(pattern(&shape("mamba2", &STATE)), "rrrrrrrr");
    let heads = (
        "attention.head_count_kv",
        Value::u32s(&[0, 0, 2, 0, 0, 2, 0, 0]),
    );
    let mut fields = STATE.to_vec();
    fields.push(heads);
    assert_eq!(pattern(&shape("granitehybrid", &fields)), "rrfrrfrr");
    fields.push((
        "feed_forward_length",
        Value::u32s(&[0, 64, 0, 64, 0, 0, 64, 0]),
    ));
    assert_eq!(pattern(&shape("nemotron_h", &fields)), "r.f.rf.r");
    assert_eq!(shape("mamba2", &STATE).layers[0].state, STATE_BYTES);
}

#[test]
fn the_state_of_rwkv_and_of_short_convolutions_is_known() {
    let rwkv = shape("rwkv7", &[("wkv.head_size", Value::U32(64))]);
    // Two last tokens and a matrix for each head: 256 x (2 + 64).
    assert_eq!(rwkv.layers[0].state, Bytes(4 * 256 * 66));
    let lfm = shape(
        "lfm2",
        &[
            ("shortconv.l_cache", Value::U32(3)),
            (
                "attention.head_count_kv",
                Value::u32s(&[0, 0, 2, 0, 0, 2, 0, 2]),
            ),
        ],
    );
    assert_eq!(pattern(&lfm), "rrfrrfrf");
    assert_eq!(lfm.layers[0].state, Bytes(4 * 256 * 2));
}

#[test]
fn latent_attention_keeps_one_row_and_older_files_all_heads() {
    let latent = [
        ("attention.key_length_mla", Value::U32(192)),
        ("attention.kv_lora_rank", Value::U32(512)),
        ("rope.dimension_count", Value::U32(64)),
    ];
    let new = shape("deepseek2", &latent).layers[0].cache.unwrap();
    assert_eq!((new.heads, new.key, new.value), (1, 576, 0));
    let old = shape(
        "deepseek2",
        &[
            ("attention.head_count_kv", Value::U32(8)),
            ("attention.key_length", Value::U32(192)),
            ("attention.value_length", Value::U32(128)),
        ],
    );
    let old = old.layers[0].cache.unwrap();
    assert_eq!((old.heads, old.key, old.value), (8, 192, 128));
}

#[test]
fn a_model_that_only_reads_keeps_nothing() {
    let bert = shape("bert", &[]);
    assert_eq!(bert.kind, Kind::Reader);
    let found = estimate(&bert, &Request::new(Tokens(512))).unwrap();
    let host = found.host().unwrap();
    assert_eq!((host.cache, host.state), (Bytes::ZERO, Bytes::ZERO));
    assert!(host.compute.most > Bytes::ZERO);
}

#[test]
fn an_architecture_that_is_not_known_is_refused_unless_one_alike_is_named() {
    let unknown = draft("marvin", &[]);
    let error = Shape::from_gguf(&header(&unknown), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot bound marvin: no rule is known for the architecture"
    );
    assert!(error.hint().unwrap().contains("--like"), "{error:?}");
    assert!(
        error.hint().unwrap().contains("profiles: [{memory:"),
        "{error:?}"
    );
    let named = Shape::from_gguf(&header(&unknown), Some("llama")).unwrap();
    assert_eq!(pattern(&named), "ffffffff");
    assert!(Shape::from_gguf(&header(&unknown), Some("ford")).is_err());
}

#[test]
fn weights_are_told_apart_by_where_they_are_used() {
    let mib = Bytes::mib;
    let shape = weighted();
    assert_eq!(
        (shape.input, shape.output, shape.tied),
        (mib(4), mib(4), Bytes::ZERO)
    );
    assert_eq!(shape.layers[7].weights, mib(1));
    assert_eq!(shape.weights(), mib(16));
    // Without weights of its own the output uses those of the input.
    let tied = draft("llama", &[]).tensor("token_embd.weight", &[1024, 2048], TensorType::F16);
    let tied = Shape::from_gguf(&header(&tied), None).unwrap();
    assert_eq!(
        (tied.input, tied.output, tied.tied),
        (mib(4), Bytes::ZERO, mib(4))
    );
}

#[test]
fn a_tensor_whose_size_is_not_known_can_t_be_bounded() {
    let mut header = header(&draft("llama", &[]).tensor("output.weight", &[32], TensorType::F32));
    header.tensors[0].kind = TensorType(200);
    assert_eq!(
        Shape::from_gguf(&header, None).unwrap_err().to_string(),
        "cannot bound llama: the tensor output.weight is of type 200, whose size is not known"
    );
}

#[test]
fn fields_that_can_t_be_are_refused_with_their_path() {
    let with = |name, value| refused(&draft("llama", &[(name, value)]));
    assert_eq!(
        with("block_count", Value::U32(0)),
        "metadata.llama.block_count: 0 can't be"
    );
    assert_eq!(
        with("block_count", Value::U32(1 << 30)),
        "metadata.llama.block_count: 1073741824; at most 1024 are allowed"
    );
    assert_eq!(
        with("attention.head_count_kv", Value::u32s(&[2, 2])),
        "metadata.llama.attention.head_count_kv: has no value for layer 2"
    );
    assert_eq!(
        with("nextn_predict_layers", Value::U32(8)),
        "metadata.llama.nextn_predict_layers: 8 of 8 layers"
    );
    let beyond = draft("llama", &[]).tensor("blk.8.x.weight", &[32], TensorType::F32);
    assert_eq!(
        refused(&beyond),
        "tensors.blk.8.x.weight: the model has 8 layers"
    );
    assert_eq!(
        refused(&Draft::default()),
        "metadata.general.architecture: is missing"
    );
    let ssm = draft("mamba2", &[]);
    assert_eq!(refused(&ssm), "metadata.mamba2.ssm.inner_size: is missing");
}
