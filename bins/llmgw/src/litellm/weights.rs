//! Which weights a deployment's `model` names, such as `hosted_vllm/owner/repo`.

use llmgw_core::cluster::catalog::{GpusDefinition, ProfileDefinition};
use llmgw_core::units::Bytes;

use super::told::short;

/// Weights, and how they are run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) source: String,
    pub(super) profile: ProfileDefinition,
}

/// Why a deployment names no weights, and what would help.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Nameless {
    pub(super) why: String,
    pub(super) help: String,
}

/// The weights that `model` names; `provider` is `custom_llm_provider`, and `is_own` says that there is an `api_base`.
pub(super) fn named(
    group: &str,
    model: &str,
    provider: Option<&str>,
    is_own: bool,
) -> Result<Named, Nameless> {
    let nameless = |why: String, file: &str| Nameless {
        why,
        help: format!("say it: --source {}=hf:OWNER/REPO/{file}", short(group)),
    };
    let (provider, rest) = match (provider, model.split_once('/')) {
        (Some(provider), Some((first, rest))) if first == provider => (provider, rest),
        (Some(provider), _) => (provider, model),
        (None, Some((first, rest))) => (first, rest),
        (None, None) => ("openai", model),
    };
    if model.contains('*') {
        let why =
            "it stands for all models of a provider, and llmgw runs the models that it is given";
        return Err(nameless(why.to_owned(), "FILE"));
    }
    if OLLAMA.contains(&provider) {
        let why = match rest
            .strip_prefix("hf.co/")
            .or_else(|| rest.strip_prefix("huggingface.co/"))
        {
            Some(repo) => format!("{} is a repository of several files", short(repo)),
            None => format!("{} is a name in Ollama's library", short(rest)),
        };
        return Err(nameless(why, "FILE.gguf"));
    }
    let runs_weights = WEIGHTS.contains(&provider) || (COMPATIBLE.contains(&provider) && is_own);
    if !runs_weights {
        let why = format!(
            "{} is a provider elsewhere, and llmgw runs models on your own machines",
            short(provider)
        );
        return Err(nameless(why, "FILE"));
    }
    // Through a provider of the hub's: huggingface/together/owner/repo.
    let parts: Vec<&str> = rest.split('/').collect();
    let repo = match parts.as_slice() {
        [owner, repo] => Some((*owner, *repo)),
        [_, owner, repo] if provider == "huggingface" => Some((*owner, *repo)),
        _ => None,
    };
    let Some((owner, repo)) = repo.filter(|(owner, repo)| is_plain(owner) && is_plain(repo)) else {
        let why = format!("{} is no repository of a hub", short(rest));
        return Err(nameless(why, "FILE"));
    };
    if repo.to_ascii_lowercase().ends_with("-gguf") {
        let why = format!("{owner}/{repo} is a repository of several files");
        return Err(nameless(why, "FILE.gguf"));
    }
    Ok(Named {
        source: format!("hf:{owner}/{repo}/{INDEX}"),
        profile: on_a_gpu(),
    })
}

/// The weights at a source that was said.
pub(super) fn said(source: &str) -> Named {
    let path = source.split(['#', '@', '?']).next().unwrap_or(source);
    let is_safetensors = path.ends_with(".safetensors") || path.ends_with(".json");
    Named {
        source: source.to_owned(),
        profile: if is_safetensors { on_a_gpu() } else { plain() },
    }
}

/// What is said of a source that was made of a repository's name.
pub(super) const GUESSED: &str =
    "the hub is not asked: the source is that of a model of several files";
/// What helps when it is not.
pub(super) const IF_ONE_FILE: &str = "where the repository has one file, write model.safetensors \
                                      in the place of model.safetensors.index.json";

fn on_a_gpu() -> ProfileDefinition {
    ProfileDefinition {
        engine: Some("vllm".to_owned()),
        gpus: Some(GpusDefinition {
            count: 1,
            class: None,
            memory: None,
        }),
        ..plain()
    }
}

fn plain() -> ProfileDefinition {
    ProfileDefinition {
        memory: None,
        ..ProfileDefinition::of_memory(Bytes::ZERO)
    }
}

fn is_plain(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !part.is_empty() && part.chars().all(allowed) && !part.starts_with('.')
}

const INDEX: &str = "model.safetensors.index.json";
const OLLAMA: [&str; 2] = ["ollama", "ollama_chat"];
/// Providers whose models are named as the hub names its repositories.
const WEIGHTS: [&str; 4] = ["hosted_vllm", "vllm", "huggingface", "infinity"];
/// Providers that are a way to talk: with an address, to a server of one's own.
const COMPATIBLE: [&str; 8] = [
    "custom_openai",
    "docker_model_runner",
    "llamafile",
    "lm_studio",
    "openai",
    "openai_like",
    "text-completion-openai",
    "xinference",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn source(model: &str, provider: Option<&str>, is_own: bool) -> Result<String, String> {
        named("m", model, provider, is_own)
            .map(|named| named.source)
            .map_err(|nameless| nameless.why)
    }

    #[test]
    fn repositories_are_named_and_the_models_of_others_are_not() {
        let index = |repo: &str| Ok(format!("hf:{repo}/model.safetensors.index.json"));
        assert_eq!(source("hosted_vllm/o/r", None, true), index("o/r"));
        assert_eq!(
            source("huggingface/together/o/r", None, false),
            index("o/r")
        );
        assert_eq!(source("openai/o/r", None, true), index("o/r"));
        assert_eq!(source("o/r", Some("hosted_vllm"), false), index("o/r"));
        for (model, is_own, why) in [
            ("openai/o/r", false, "openai is a provider elsewhere"),
            ("gpt-4o", false, "openai is a provider elsewhere"),
            ("bedrock/o/r", true, "bedrock is a provider elsewhere"),
            ("openai/m", true, "m is no repository of a hub"),
            ("hosted_vllm/../r", true, "../r is no repository of a hub"),
            (
                "hosted_vllm/o/R-GGUF",
                true,
                "o/R-GGUF is a repository of several files",
            ),
            (
                "ollama/llama3.1:8b",
                true,
                "llama3.1:8b is a name in Ollama's library",
            ),
            (
                "ollama/hf.co/o/r:Q4",
                true,
                "o/r:Q4 is a repository of several files",
            ),
            (
                "anthropic/*",
                false,
                "it stands for all models of a provider",
            ),
        ] {
            let said = source(model, None, is_own).unwrap_err();
            assert!(said.starts_with(why), "{model}: {said}");
        }
    }

    #[test]
    fn a_source_that_was_said_is_run_as_its_file_asks() {
        let engine = |source: &str| said(source).profile.engine;
        assert_eq!(engine("hf:o/r/m.gguf@main"), None);
        assert_eq!(engine("hf:o/r/model.safetensors"), Some("vllm".into()));
        assert_eq!(
            engine("hf:o/r/model.safetensors.index.json@v1"),
            Some("vllm".into())
        );
    }
}
