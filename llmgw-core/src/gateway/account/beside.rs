//! Usage that an engine tells along with its choices, and not once for the whole answer.
//!
//! llama.cpp ends each choice of `/v1/completions` with its own; vLLM can tell each how far it is. What is told of one
//! choice then says nothing of the others, so that the last word alone would leave most of the answer uncounted.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    api::openai::{PromptTokensDetails, Usage},
    units::Tokens,
};

/// The last word on each choice.
#[derive(Debug)]
pub(super) struct UsageBeside {
    /// By the choice's index, unread.
    told: BTreeMap<u64, Bytes>,
    /// Choices of one prompt stand in a row, so many of them, and each tells the prompt's tokens again.
    per_prompt: u64,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
}

// === impl UsageBeside ===

impl UsageBeside {
    /// For a call that wants so many choices for each prompt.
    pub(super) fn new(per_prompt: u64) -> Self {
        Self {
            told: BTreeMap::new(),
            per_prompt: per_prompt.max(1),
        }
    }

    /// Usage came along with these choices.
    pub(super) fn told(&mut self, choices: &[u8], usage: Bytes) {
        let choices = serde_json::from_slice::<Vec<Choice>>(choices);
        let index = choices
            .ok()
            .and_then(|choices| Some(choices.first()?.index));
        let index = index.unwrap_or(0);
        if self.told.len() < MAX_CHOICES || self.told.contains_key(&index) {
            self.told.insert(index, usage);
        }
    }

    /// All of it; `None` when none was told that can be read.
    pub(super) fn sum(&self) -> Option<Usage> {
        let mut prompts: BTreeMap<u64, (Tokens, Tokens)> = BTreeMap::new();
        let mut completion = 0_u64;
        for (index, json) in &self.told {
            let Ok(usage) = serde_json::from_slice::<Usage>(json) else {
                continue;
            };
            completion = completion.saturating_add(usage.completion_tokens.0);
            let details = usage.prompt_tokens_details;
            let cached = details.and_then(|details| details.cached_tokens);
            let prompt = prompts.entry(index / self.per_prompt).or_default();
            prompt.0 = prompt.0.max(usage.prompt_tokens);
            prompt.1 = prompt.1.max(cached.unwrap_or_default());
        }
        if prompts.is_empty() {
            return None;
        }
        let add = |sum: u64, tokens: &Tokens| sum.saturating_add(tokens.0);
        let cached = prompts.values().map(|(_, cached)| cached).fold(0, add);
        Some(Usage {
            prompt_tokens: Tokens(prompts.values().map(|(all, _)| all).fold(0, add)),
            completion_tokens: Tokens(completion),
            prompt_tokens_details: Some(PromptTokensDetails {
                cached_tokens: Some(Tokens(cached)),
            }),
        })
    }
}

/// More choices than this no engine makes of one call.
const MAX_CHOICES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(per_prompt: u64, told: &[(u64, u64, u64)]) -> Option<(u64, u64)> {
        let mut beside = UsageBeside::new(per_prompt);
        for (index, prompt, completion) in told {
            let usage = serde_json::json!({
                "prompt_tokens": prompt, "completion_tokens": completion,
            });
            let choices = format!("[{{\"text\":\"a\",\"index\":{index}}}]");
            beside.told(choices.as_bytes(), usage.to_string().into());
        }
        let usage = beside.sum()?;
        Some((usage.prompt_tokens.0, usage.completion_tokens.0))
    }

    #[test]
    fn the_last_word_on_each_choice_counts_and_each_prompt_once() {
        assert_eq!(told(1, &[]), None);
        assert_eq!(told(1, &[(0, 5, 1), (0, 5, 2)]), Some((5, 2)));
        // Two prompts, one choice each.
        assert_eq!(told(1, &[(0, 5, 3), (1, 7, 4)]), Some((12, 7)));
        // One prompt, two choices; then two prompts, two choices each.
        assert_eq!(told(2, &[(0, 5, 3), (1, 5, 4)]), Some((5, 7)));
        let both = [(0, 5, 1), (1, 5, 1), (2, 7, 1), (3, 7, 1), (3, 7, 9)];
        assert_eq!(told(2, &both), Some((12, 12)));
        assert_eq!(told(0, &[(0, 5, 3)]), Some((5, 3)));
        let mut odd = UsageBeside::new(1);
        odd.told(b"1", Bytes::from_static(b"{"));
        assert_eq!(odd.sum().map(|usage| usage.completion_tokens), None);
    }
}
