//! Token counts in the words of each API.

use serde::Deserialize;

use crate::{api::openai::Usage, units::Tokens};

/// What an engine told of tokens; absent is what it did not tell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// Of the prompt, or of that part of it that was not cached, when `beside` is told.
    prompt: Option<Tokens>,
    /// Of the prompt too, counted apart: what was read from a cache or written to it.
    beside: Option<Tokens>,
    /// Of the prompt, read from a cache.
    pub(super) cached: Option<Tokens>,
    /// Of the answer.
    pub(super) completion: Option<Tokens>,
}

/// The members of `usage` in any API.
#[derive(Deserialize)]
struct Words {
    // OpenAI's first APIs.
    prompt_tokens: Option<Tokens>,
    completion_tokens: Option<Tokens>,
    total_tokens: Option<Tokens>,
    prompt_tokens_details: Option<Details>,
    // Its later ones, and Anthropic's.
    input_tokens: Option<Tokens>,
    output_tokens: Option<Tokens>,
    input_tokens_details: Option<Details>,
    // Anthropic's alone.
    cache_read_input_tokens: Option<Tokens>,
    cache_creation_input_tokens: Option<Tokens>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<Tokens>,
}

// === impl Told ===

impl Told {
    /// Reads a `usage`; `None` when it can't be read.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        let Words {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_tokens_details,
            input_tokens,
            output_tokens,
            input_tokens_details,
            cache_read_input_tokens: read,
            cache_creation_input_tokens: created,
        } = serde_json::from_slice(json).ok()?;
        let completion = completion_tokens.or(output_tokens);
        // Some rerankers tell nothing else.
        let rest = total_tokens
            .map(|total| Tokens(total.0.saturating_sub(completion.unwrap_or_default().0)));
        let details = prompt_tokens_details.or(input_tokens_details);
        let sum = |one: Tokens, other: Tokens| Tokens(one.0.saturating_add(other.0));
        let beside = match (read, created) {
            (None, None) => None,
            (read, created) => Some(sum(read.unwrap_or_default(), created.unwrap_or_default())),
        };
        Some(Self {
            prompt: prompt_tokens.or(input_tokens).or(rest),
            beside,
            cached: details.and_then(|details| details.cached_tokens).or(read),
            completion,
        })
    }

    /// Tokens of the prompt, all of them.
    pub(super) fn prompt(&self) -> Tokens {
        let part = |tokens: Option<Tokens>| tokens.unwrap_or_default().0;
        Tokens(part(self.prompt).saturating_add(part(self.beside)))
    }

    /// What is known when `later` was told after this.
    pub(super) fn then(self, later: Self) -> Self {
        Self {
            prompt: later.prompt.or(self.prompt),
            beside: later.beside.or(self.beside),
            cached: later.cached.or(self.cached),
            completion: later.completion.or(self.completion),
        }
    }
}

impl From<Usage> for Told {
    fn from(usage: Usage) -> Self {
        let Usage {
            prompt_tokens,
            completion_tokens,
            prompt_tokens_details,
        } = usage;
        Self {
            prompt: Some(prompt_tokens),
            beside: None,
            cached: prompt_tokens_details.and_then(|details| details.cached_tokens),
            completion: Some(completion_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> (u64, Option<u64>, Option<u64>) {
        counts(Told::read(json.as_bytes()).unwrap())
    }

    fn counts(told: Told) -> (u64, Option<u64>, Option<u64>) {
        let plain = |tokens: Option<Tokens>| tokens.map(|tokens| tokens.0);
        (told.prompt().0, plain(told.cached), plain(told.completion))
    }

    #[test]
    fn every_api_has_its_own_words_for_the_same() {
        let chat = r#"{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}"#;
        assert_eq!(read(chat), (5, Some(3), Some(2)));
        let responses = r#"{"input_tokens":5,"output_tokens":2,"input_tokens_details":{"cached_tokens":3},"total_tokens":7}"#;
        assert_eq!(read(responses), (5, Some(3), Some(2)));
        // What Anthropic's clients read as input is what was in no cache.
        let messages = r#"{"input_tokens":1,"cache_read_input_tokens":3,"cache_creation_input_tokens":1,"output_tokens":2}"#;
        assert_eq!(read(messages), (5, Some(3), Some(2)));
        let embeddings = r#"{"prompt_tokens":5,"total_tokens":5}"#;
        assert_eq!(read(embeddings), (5, None, None));
        assert_eq!(read(r#"{"total_tokens":5}"#), (5, None, None));
        let null = r#"{"input_tokens":5,"cache_read_input_tokens":null,"output_tokens":2,"x":[]}"#;
        assert_eq!(read(null), (5, None, Some(2)));
        assert_eq!(Told::read(br#"{"input_tokens":-1}"#), None);
        assert_eq!(Told::read(b"{"), None);
    }

    #[test]
    fn what_is_not_said_again_stays() {
        let start = r#"{"input_tokens":1,"cache_read_input_tokens":30,"output_tokens":0}"#;
        let end = r#"{"output_tokens":4}"#;
        let [start, end] = [start, end].map(|json| Told::read(json.as_bytes()).unwrap());
        assert_eq!(counts(start.then(end)), (31, Some(30), Some(4)));
    }
}
