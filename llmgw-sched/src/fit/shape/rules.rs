//! Which architecture is built how.
//!
//! The names are those of llama.cpp (`LLM_ARCH_NAMES` in `src/llama-arch.cpp`) and the `model_type` of
//! `config.json`; the rules are those of `load_arch_hparams` in `src/models/*.cpp`, and of the models' code in
//! `transformers`. What stands in a file comes before what a rule says.

use super::Kind;

/// How the layers of an architecture are told apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// Every layer looks back to the beginning, whatever the file says of windows.
    Full,
    /// Layers with a window stand between layers without.
    Windows(Pattern),
    /// Latent attention (MLA): one compressed row for all heads.
    Latent,
    /// Recurrent where the file gives a layer no heads (of a hybrid, by a list).
    ByHeads,
    /// Gated delta layers, every so-manyth with attention instead.
    Interval,
    /// Attention and recurrence in every layer.
    Both,
    /// Recurrence alone.
    Recurrent,
    /// Nothing is kept: the text is read as a whole.
    Reader,
}

/// How layers with a window alternate with layers without.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pattern {
    /// One in so many has no window; absent when the file must say which.
    pub(super) period: Option<u64>,
    /// Whether that is the first of them, and not the last.
    pub(super) full_first: bool,
    /// The window when the file has none; absent when there is none at all then.
    pub(super) window: Option<u64>,
    /// Layers that keep something of their own, when the file does not say how many share.
    pub(super) own: Option<u64>,
}

impl Rule {
    /// The rule of an architecture of a GGUF file.
    pub(super) fn of_gguf(architecture: &str) -> Option<Self> {
        find(GGUF, architecture)
    }

    /// The rule of a `model_type` of a `config.json`.
    pub(super) fn of_config(model_type: &str) -> Option<Self> {
        find(CONFIG, model_type).or_else(|| find(CONFIG, model_type.strip_suffix("_text")?))
    }

    pub(super) fn kind(self) -> Kind {
        if self == Self::Reader {
            Kind::Reader
        } else {
            Kind::Writer
        }
    }
}

impl Pattern {
    /// Whether the layer has a window.
    pub(super) fn has_window(self, layer: u64, period: u64) -> bool {
        // `llama_hparams::set_swa_pattern`.
        let place = layer.checked_rem(period).unwrap_or(0);
        if period == 0 {
            true
        } else if self.full_first {
            place != 0
        } else {
            place < period.saturating_sub(1)
        }
    }
}

fn find(table: &[(Rule, &[&str])], name: &str) -> Option<Rule> {
    table
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(rule, _)| *rule)
}

/// One in `period` without a window, the last of them.
const fn every(period: u64, window: Option<u64>) -> Rule {
    Rule::Windows(Pattern {
        period: Some(period),
        full_first: false,
        window,
        own: None,
    })
}

/// One in `period` without a window, the first of them.
const fn every_first(period: u64) -> Rule {
    Rule::Windows(Pattern {
        period: Some(period),
        full_first: true,
        window: None,
        own: None,
    })
}

/// The file says which.
const AS_LISTED: Rule = Rule::Windows(Pattern {
    period: None,
    full_first: false,
    window: None,
    own: None,
});

/// Layers from the 21st on use the cache of earlier ones.
const GEMMA_3N: Rule = Rule::Windows(Pattern {
    period: Some(5),
    full_first: false,
    window: None,
    own: Some(20),
});

const GGUF: &[(Rule, &[&str])] = &[
    (
        Rule::Full,
        &[
            "llama",
            "deci",
            "falcon",
            "grok",
            "gpt2",
            "gptj",
            "gptneox",
            "mpt",
            "baichuan",
            "starcoder",
            "starcoder2",
            "refact",
            "bloom",
            "stablelm",
            "qwen",
            "qwen2",
            "qwen2moe",
            "qwen2vl",
            "qwen3",
            "qwen3moe",
            "qwen3vl",
            "qwen3vlmoe",
            "phi2",
            "phi3",
            "phimoe",
            "plamo",
            "codeshell",
            "orion",
            "internlm2",
            "minicpm",
            "minicpm3",
            "gemma",
            "xverse",
            "command-r",
            "dbrx",
            "olmo",
            "olmoe",
            "openelm",
            "arctic",
            "deepseek",
            "chatglm",
            "glm4",
            "glm4moe",
            "bitnet",
            "jais",
            "jais2",
            "nemotron",
            "exaone",
            "granite",
            "granitemoe",
            "chameleon",
            "bailingmoe",
            "bailingmoe2",
            "dots1",
            "arcee",
            "ernie4_5",
            "ernie4_5-moe",
            "hunyuan-moe",
            "hunyuan-dense",
            "hunyuan-vl",
            "smollm3",
            "seed_oss",
            "grovemoe",
            "apertus",
            "minimax-m2",
            "cogvlm",
            "pangu-embedded",
            "mistral3",
            "maincoder",
        ],
    ),
    (every(2, Some(4_096)), &["gemma2"]),
    (every(2, None), &["gpt-oss"]),
    (every(6, None), &["gemma3"]),
    (GEMMA_3N, &["gemma3n"]),
    (AS_LISTED, &["gemma4", "mimo2", "step35"]),
    (
        every(4, None),
        &["cohere2", "exaone4", "exaone-moe", "olmo2", "afmoe"],
    ),
    // Attention by chunks, which are kept as a window of that length.
    (every(4, Some(8_192)), &["llama4"]),
    (every_first(4), &["cohere2moe", "smallthinker", "laguna"]),
    (Rule::Latent, &["deepseek2", "mistral4"]),
    (
        Rule::ByHeads,
        &[
            "jamba",
            "granitehybrid",
            "nemotron_h",
            "nemotron_h_moe",
            "plamo2",
            "lfm2",
            "lfm2moe",
        ],
    ),
    (Rule::Interval, &["qwen3next", "qwen35", "qwen35moe"]),
    (Rule::Both, &["falcon-h1"]),
    (
        Rule::Recurrent,
        &["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"],
    ),
    (
        Rule::Reader,
        &[
            "bert",
            "modern-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "neo-bert",
            "jina-bert-v2",
            "jina-bert-v3",
            "eurobert",
            "gemma-embedding",
        ],
    ),
];

const CONFIG: &[(Rule, &[&str])] = &[
    (
        Rule::Full,
        &[
            "llama",
            "mistral",
            "mistral3",
            "mixtral",
            "falcon",
            "gpt2",
            "gpt_neox",
            "gptj",
            "mpt",
            "bloom",
            "starcoder2",
            "gpt_bigcode",
            "stablelm",
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3",
            "qwen3_moe",
            "qwen3_vl",
            "qwen3_vl_moe",
            "phi",
            "phi3",
            "phimoe",
            "internlm2",
            "minicpm",
            "gemma",
            "cohere",
            "dbrx",
            "olmo",
            "olmo2",
            "olmoe",
            "deepseek",
            "glm",
            "glm4",
            "glm4_moe",
            "bitnet",
            "nemotron",
            "exaone",
            "granite",
            "granitemoe",
            "arcee",
            "ernie4_5",
            "ernie4_5_moe",
            "hunyuan_v1_dense",
            "hunyuan_v1_moe",
            "smollm3",
            "seed_oss",
            "apertus",
            "minimax_m2",
            "dots1",
        ],
    ),
    (every(2, Some(4_096)), &["gemma2"]),
    (every(2, None), &["gpt_oss"]),
    (every(6, None), &["gemma3"]),
    (AS_LISTED, &["gemma4"]),
    (every(4, Some(8_192)), &["llama4"]),
    (every(4, None), &["cohere2", "exaone4", "olmo3"]),
    (
        Rule::Latent,
        &["deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"],
    ),
    (Rule::Interval, &["qwen3_next", "qwen3_5", "qwen3_5_moe"]),
    (
        Rule::Reader,
        &[
            "bert",
            "roberta",
            "xlm-roberta",
            "modernbert",
            "nomic_bert",
            "distilbert",
            "deberta-v2",
            "new",
        ],
    ),
];
