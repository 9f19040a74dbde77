//! Answers of chat completions, as far as other APIs have the same.

use serde::Deserialize;

use crate::units::Tokens;

/// A chunk of an answer, or a whole one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
    /// llama.cpp's own.
    #[serde(default)]
    pub(super) timings: Option<Timings>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice {
    #[serde(default)]
    pub(super) index: u32,
    /// What is said; of completions, `text`.
    #[serde(default, alias = "message")]
    pub(super) delta: Option<Delta>,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) content: Option<String>,
    #[serde(default, alias = "reasoning")]
    pub(super) reasoning_content: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<ToolDelta>>,
}

/// A piece of a call of a tool: its name comes first, its arguments in pieces.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ToolDelta {
    #[serde(default)]
    pub(super) index: Option<usize>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: FunctionDelta,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: Tokens,
    #[serde(default)]
    pub(super) completion_tokens: Tokens,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Timings {
    #[serde(default)]
    pub(super) prompt_ms: f64,
    #[serde(default)]
    pub(super) predicted_ms: f64,
}

/// A call of a tool that is whole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, if the model wrote such.
    pub(super) arguments: String,
}

/// Puts calls of tools together.
#[derive(Debug, Default)]
pub(super) struct ToolCalls(Vec<ToolCall>);

// === impl Chunk ===

impl Chunk {
    /// The first choice: no other API has several.
    pub(super) fn first(&mut self) -> Option<Choice> {
        let at = self.choices.iter().position(|choice| choice.index == 0)?;
        Some(self.choices.swap_remove(at))
    }
}

// === impl Usage ===

impl Usage {
    /// Tokens of the prompt that were cached.
    pub(super) fn cached(&self) -> u64 {
        let details = self.prompt_tokens_details;
        details
            .and_then(|details| details.cached_tokens)
            .unwrap_or(0)
    }
}

// === impl ToolCalls ===

impl ToolCalls {
    /// Adds pieces.
    pub(super) fn add(&mut self, pieces: Vec<ToolDelta>) {
        for (place, piece) in pieces.into_iter().enumerate() {
            let index = piece.index.unwrap_or(place).min(MOST_CALLS);
            if self.0.len() <= index {
                self.0.resize(index + 1, ToolCall::default());
            }
            let Some(call) = self.0.get_mut(index) else {
                continue;
            };
            let FunctionDelta { name, arguments } = piece.function;
            call.id.push_str(&piece.id.unwrap_or_default());
            call.name.push_str(&name.unwrap_or_default());
            call.arguments.push_str(&arguments.unwrap_or_default());
        }
    }

    /// The calls that have a name.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        let mut calls = std::mem::take(&mut self.0);
        calls.retain(|call| !call.name.is_empty());
        calls
    }
}

/// More at once no model makes.
const MOST_CALLS: usize = 255;
