//! Vectors in Ollama's form.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::gateway::{
    rewrite::Output,
    translate::{Interpreter, chat::Usage},
};

/// Puts an answer of embeddings into Ollama's form; the vectors stay as they are written.
#[derive(Debug)]
pub(super) struct Vectors {
    /// The model and when it was asked; absent in the older form, which has one vector and nothing else.
    asked: Option<(String, Instant)>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Vec<Vector<'a>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Vector<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Serialize)]
struct Embedded<'a> {
    model: &'a str,
    embeddings: Vec<&'a RawValue>,
    total_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u64>,
}

#[derive(Serialize)]
struct Embedding<'a> {
    embedding: Option<&'a RawValue>,
}

// === impl Vectors ===

impl Vectors {
    pub(super) fn new(model: String, since: Instant) -> Self {
        Self {
            asked: Some((model, since)),
        }
    }

    pub(super) fn old() -> Self {
        Self { asked: None }
    }
}

impl Interpreter for Vectors {
    fn chunk(&mut self, _: &[u8], _: &mut Output) -> serde_json::Result<()> {
        // It is never asked for in chunks.
        Ok(())
    }

    fn end(&mut self, _: &mut Output) {}

    fn whole(&mut self, answer: &[u8]) -> serde_json::Result<String> {
        let Answer { mut data, usage } = serde_json::from_slice(answer)?;
        data.sort_by_key(|vector| vector.index);
        let mut embeddings = data.iter().map(|vector| vector.embedding);
        let Some((model, since)) = &self.asked else {
            let embedding = embeddings.next();
            return serde_json::to_string(&Embedding { embedding });
        };
        serde_json::to_string(&Embedded {
            model,
            embeddings: embeddings.collect(),
            total_duration: u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            prompt_eval_count: usage.map(|usage| usage.prompt_tokens.0),
        })
    }
}
