//! Ollama's API in front of chat completions and embeddings.

mod answer;
mod request;
mod vectors;

use tokio::time::Instant;

use self::{
    answer::{Answer, Form},
    request::{chat, embed, embeddings, generate},
    vectors::Vectors,
};
use super::{Interpreter, Made};
use crate::{clock::Timestamp, gateway::refusal::Refusal};

/// A route of Ollama's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::gateway) enum Ollama {
    /// `/api/chat`
    Chat,
    /// `/api/generate`
    Generate,
    /// `/api/embed`
    Embed,
    /// `/api/embeddings`, as it was once: one text and one vector.
    Embeddings,
}

// === impl Ollama ===

impl Ollama {
    /// The same call as an engine understands it.
    pub(super) fn request(self, text: &[u8]) -> Result<Made, Refusal> {
        match self {
            Self::Chat => chat(text),
            Self::Generate => generate(text),
            Self::Embed => embed(text),
            Self::Embeddings => embeddings(text),
        }
    }

    /// Puts an answer back, to a call that came in at this time.
    pub(super) fn interpreter(
        self,
        model: String,
        at: Timestamp,
        since: Instant,
    ) -> Box<dyn Interpreter> {
        match self {
            Self::Chat => Box::new(Answer::new(Form::Chat, model, at, since)),
            Self::Generate => Box::new(Answer::new(Form::Generate, model, at, since)),
            Self::Embed => Box::new(Vectors::new(model, since)),
            Self::Embeddings => Box::new(Vectors::old()),
        }
    }
}

#[cfg(test)]
mod tests;
