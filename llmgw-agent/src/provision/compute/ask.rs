//! Two tokens, asked of an engine on the loopback.

use std::time::Duration;

use hyper::StatusCode;
use llmgw_core::{cluster::replica::ReplicaSpec, gguf::check::CheckModel};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{ComputeProblem, Deadlines, Phase};
use crate::{
    engine::Engine,
    supervise::ask::{Answer, Unanswered, get, post},
};

/// What is asked, of whom.
pub(super) struct Question<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) spec: &'a ReplicaSpec,
    pub(super) model: &'a CheckModel,
    pub(super) port: u16,
    pub(super) deadlines: Deadlines,
    /// Hears that the model is loaded.
    pub(super) loaded: &'a (dyn Fn() + Send + Sync),
}

/// llama.cpp's own answer; builds of before 2025 give no numbers.
#[derive(Deserialize)]
struct Completion {
    content: String,
    #[serde(default)]
    tokens: Option<Vec<u32>>,
}

impl Question<'_> {
    /// Waits until the model is loaded, asks, and compares.
    pub(super) async fn ask(&self) -> Result<(), ComputeProblem> {
        let Deadlines { load, compute } = self.deadlines;
        let hang = |phase, after| move |_| ComputeProblem::Hang { phase, after };
        timeout(load, self.healthy())
            .await
            .map_err(hang(Phase::Loading, load))??;
        (self.loaded)();
        timeout(compute, self.tokens())
            .await
            .map_err(hang(Phase::Computing, compute))?
    }

    async fn healthy(&self) -> Result<(), ComputeProblem> {
        let within = self.deadlines.load;
        loop {
            match get(self.port, self.engine.health_path(), within).await {
                Ok(answer) if answer.status == StatusCode::OK => break,
                Ok(_) | Err(Unanswered::Engine(_)) => sleep(POLL).await,
                Err(Unanswered::Unasked(error)) => {
                    return Err(ComputeProblem::Untried(error.to_string()));
                }
            }
        }
        let Some(identity) = self.engine.identity_path() else {
            return Ok(());
        };
        let answer = get(self.port, identity, within).await;
        let answer = answered(answer).await?;
        if self.engine.is_identity(&answer.body, self.spec.id) {
            Ok(())
        } else {
            let problem = format!("another program took port {}", self.port);
            Err(ComputeProblem::Untried(problem))
        }
    }

    async fn tokens(&self) -> Result<(), ComputeProblem> {
        // By numbers: what the engine makes of text is not in question. Longer than a batch of the kernels for
        // many tokens; the second token is computed by those for one.
        let body = json!({
            "prompt": self.model.prompt(),
            "n_predict": self.model.answer().len(),
            "temperature": 0,
            "return_tokens": true,
            "cache_prompt": false,
            "stream": false,
        });
        let answer = post(self.port, COMPLETION, &body, self.deadlines.compute).await;
        let answer = answered(answer).await?;
        let completion: Completion = serde_json::from_slice(&answer.body)
            .map_err(|_| ComputeProblem::Unanswered("its answer is no completion".to_owned()))?;
        self.compare(&completion)
    }

    fn compare(&self, completion: &Completion) -> Result<(), ComputeProblem> {
        let Completion { content, tokens } = completion;
        let expected = self.model.answer();
        let text = CheckModel::text(&expected);
        match tokens.as_deref().filter(|tokens| !tokens.is_empty()) {
            Some(tokens) if *tokens == expected => Ok(()),
            Some(tokens) => Err(ComputeProblem::WrongTokens {
                expected: format!("{expected:?}"),
                got: shortened(&format!("{tokens:?}")),
            }),
            None if content.is_empty() => {
                Err(ComputeProblem::Unanswered("its answer is empty".to_owned()))
            }
            None if content.trim() == text.trim() => Ok(()),
            None => Err(ComputeProblem::WrongTokens {
                expected: format!("{text:?}"),
                got: shortened(&format!("{content:?}")),
            }),
        }
    }
}

/// An answer that says yes.
async fn answered(answer: Result<Answer, Unanswered>) -> Result<Answer, ComputeProblem> {
    match answer {
        Ok(answer) if answer.status == StatusCode::OK => Ok(answer),
        Ok(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            Err(ComputeProblem::Unanswered(format!(
                "{}: {}",
                answer.status,
                shortened(&body)
            )))
        }
        Err(Unanswered::Unasked(error)) => Err(ComputeProblem::Untried(error.to_string())),
        Err(Unanswered::Engine(problem)) => {
            // A connection breaks before the end of the process that broke it is told. That is the better word.
            sleep(END_IS_TOLD).await;
            Err(ComputeProblem::Unanswered(problem))
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_WORDS).collect()
}

/// llama.cpp's own path: that of the OpenAI API gives no numbers of tokens.
const COMPLETION: &str = "/completion";
/// A good build is ready after 0.2 s.
const POLL: Duration = Duration::from_millis(20);
/// Longer than the rest of a dead program's output is waited for.
const END_IS_TOLD: Duration = Duration::from_secs(3);
const MAX_WORDS: usize = 200;
