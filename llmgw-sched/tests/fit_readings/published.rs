//! Shapes of published models, from the fields of their `config.json` as llama.cpp's converter writes them.

use llmgw_core::{
    gguf::{Header, Limits, Value, write::Draft},
    header::Progress,
};
use llmgw_sched::fit::Shape;

/// Fields that all of them have.
struct Fields {
    architecture: &'static str,
    layers: u32,
    embedding: u32,
    feed_forward: u32,
    heads: u32,
    kv_heads: u32,
    head: u32,
    vocabulary: u32,
}

impl Fields {
    fn shape(&self, more: &[(&str, u32)]) -> Shape {
        let Self {
            architecture,
            layers,
            embedding,
            feed_forward,
            heads,
            kv_heads,
            head,
            vocabulary,
        } = *self;
        let fields = [
            ("block_count", layers),
            ("embedding_length", embedding),
            ("feed_forward_length", feed_forward),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", head),
            ("attention.value_length", head),
            ("vocab_size", vocabulary),
        ];
        let draft = Draft::default().with("general.architecture", Value::Text(architecture.into()));
        let draft = fields
            .iter()
            .filter(|(name, _)| !more.iter().any(|(other, _)| other == name))
            .chain(more)
            .fold(draft, |draft, (name, value)| {
                draft.with(&format!("{architecture}.{name}"), Value::U32(*value))
            });
        let header = draft.header().unwrap();
        let Progress::Done(header) = Header::parse(&header, &Limits::default()).unwrap() else {
            panic!("a whole header");
        };
        Shape::from_gguf(&header, None).unwrap()
    }
}

fn fields(
    architecture: &'static str,
    [
        layers,
        embedding,
        feed_forward,
        heads,
        kv_heads,
        head,
        vocabulary,
    ]: [u32; 7],
) -> Fields {
    Fields {
        architecture,
        layers,
        embedding,
        feed_forward,
        heads,
        kv_heads,
        head,
        vocabulary,
    }
}

pub(crate) fn qwen3_30b() -> Shape {
    fields("qwen3moe", [48, 2048, 6144, 32, 4, 128, 151_936]).shape(&[
        ("expert_count", 128),
        ("expert_used_count", 8),
        ("expert_feed_forward_length", 768),
    ])
}

pub(crate) fn gemma3_4b() -> Shape {
    fields("gemma3", [34, 2560, 10_240, 8, 4, 256, 262_208])
        .shape(&[("attention.sliding_window", 1024)])
}

pub(crate) fn gpt_oss_20b() -> Shape {
    fields("gpt-oss", [24, 2880, 2880, 64, 8, 64, 201_088]).shape(&[
        ("attention.sliding_window", 128),
        ("expert_count", 32),
        ("expert_used_count", 4),
        ("expert_feed_forward_length", 2880),
    ])
}

pub(crate) fn deepseek_r1() -> Shape {
    fields("deepseek2", [61, 7168, 18_432, 128, 1, 576, 129_280]).shape(&[
        ("attention.key_length_mla", 192),
        ("attention.value_length_mla", 128),
        ("attention.kv_lora_rank", 512),
        ("rope.dimension_count", 64),
        ("expert_count", 256),
        ("expert_used_count", 8),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 2048),
    ])
}

pub(crate) fn deepseek_v2_lite() -> Shape {
    fields("deepseek2", [27, 2048, 10_944, 16, 1, 576, 102_400]).shape(&[
        ("attention.key_length_mla", 192),
        ("attention.value_length_mla", 128),
        ("attention.kv_lora_rank", 512),
        ("rope.dimension_count", 64),
        ("expert_count", 64),
        ("expert_used_count", 6),
        ("expert_shared_count", 2),
        ("expert_feed_forward_length", 1408),
    ])
}

pub(crate) fn qwen3_next() -> Shape {
    fields("qwen3next", [48, 2048, 5120, 16, 2, 256, 151_936]).shape(&[
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 4096),
        ("ssm.state_size", 128),
        ("ssm.group_count", 16),
        ("expert_count", 512),
        ("expert_used_count", 10),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 512),
    ])
}

pub(crate) fn qwen35_27b() -> Shape {
    // 64 layers and one that drafts.
    fields("qwen35", [65, 5120, 17_408, 24, 4, 256, 248_320]).shape(&[
        ("nextn_predict_layers", 1),
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 6144),
        ("ssm.state_size", 128),
        ("ssm.group_count", 16),
    ])
}

pub(crate) fn qwen35_9b() -> Shape {
    fields("qwen35", [32, 4096, 12_288, 16, 4, 256, 248_320]).shape(&[
        ("ssm.conv_kernel", 4),
        ("ssm.inner_size", 4096),
        ("ssm.state_size", 128),
        ("ssm.group_count", 16),
    ])
}

pub(crate) fn smollm2_135m() -> Shape {
    fields("llama", [30, 576, 1536, 9, 3, 64, 49_152]).shape(&[])
}

pub(crate) fn command_r() -> Shape {
    fields("command-r", [40, 8192, 22_528, 64, 64, 128, 256_000]).shape(&[])
}

pub(crate) fn llama32_3b() -> Shape {
    fields("llama", [28, 3072, 8192, 24, 8, 128, 128_256]).shape(&[])
}

pub(crate) fn llama31_8b() -> Shape {
    fields("llama", [32, 4096, 14_336, 32, 8, 128, 128_256]).shape(&[])
}

pub(crate) fn qwen25_32b() -> Shape {
    fields("qwen2", [64, 5120, 27_648, 40, 8, 128, 152_064]).shape(&[])
}
