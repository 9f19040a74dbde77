//! What is found out of weights before any node has them: which bytes they are, and how much memory they need.
//!
//! A job of the leader: for each model whose definition leaves something open, or whose header is not known, it asks a
//! [`WeightsReader`], which does the network's part. What was found is kept by the loop, and is used to pin a model's
//! weights for all nodes at once, to size profiles that name no memory, and for remedies of context and slots.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use llmgw_core::{
    cluster::{
        catalog::{Model, Profile},
        weights::{Source, Weights, shown},
    },
    error::Code,
    id::ModelName,
    route::Waiting,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Shared, loop_task::Event};
use crate::{fit::Shape, planner::sizes::Sizes};

/// Finds out what weights are.
///
/// # Contract
/// * What it finds for the same weights is the same for as long as it can be: a branch of a hub is the commit that it was
///   when it was asked first.
/// * It reads no more than headers; everything that it reads is bounded, and every wait has an end.
/// * Dropping the future ends what was started for it.
#[async_trait]
pub trait WeightsReader: fmt::Debug + Send + Sync + 'static {
    /// Which bytes these weights are, and what they say of themselves.
    ///
    /// # Errors
    /// When it can't be found out which bytes they are. That their header can't be read is no error.
    async fn find_out(&self, weights: &Weights) -> Result<Findings, NotFound>;
}

/// What was found out of weights.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Findings {
    /// The same weights, with a digest for each file.
    pub weights: Weights,
    /// What matters of them for memory, or why that is not known.
    pub shape: Result<Shape, NotFound>,
}

/// Why something was not found out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("{problem}")]
pub struct NotFound {
    /// What went wrong, in one line.
    pub problem: String,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether it may be another answer later.
    pub passing: bool,
}

/// What the loop keeps of a model.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The weights that were asked for: of others, it says nothing.
    of: Weights,
    found: Result<Findings, NotFound>,
    /// How often it was asked in vain, and when it is asked again.
    tried: u32,
    again_at: Option<Duration>,
}

/// What an answer was.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) model: ModelName,
    pub(super) of: Weights,
    pub(super) found: Result<Findings, NotFound>,
}

// === impl NotFound ===

impl NotFound {
    /// What can't be found out, whoever asks and whenever.
    pub fn for_good(problem: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            problem: problem.into(),
            hint,
            passing: false,
        }
    }

    /// What may be found out later, by the kind of failure.
    pub fn with_code(problem: impl Into<String>, hint: Option<String>, code: Code) -> Self {
        Self {
            problem: problem.into(),
            hint,
            passing: matches!(
                code,
                Code::Unavailable | Code::UpstreamTimeout | Code::UpstreamDisconnected
            ),
        }
    }

    fn line(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.problem),
            None => self.problem.clone(),
        }
    }
}

// === impl Finding ===

impl Finding {
    /// What is kept of an answer that came at `now`, after `before`. What `model` could do without is not asked for
    /// for ever: a site without internet has no hub.
    pub(super) fn of(
        answered: Answered,
        before: Option<&Self>,
        model: &Model,
        now: Duration,
    ) -> Self {
        let Answered {
            model: _,
            of,
            found,
        } = answered;
        let is_whole = found.as_ref().is_ok_and(|found| {
            // A header that can't be read now may be readable later, such as on a hub that is down.
            !matches!(&found.shape, Err(error) if error.passing)
        });
        let tried = match before {
            _ if is_whole => 0,
            Some(before) if before.of == of => before.tried.saturating_add(1),
            _ => 1,
        };
        let pause = AGAIN_FIRST.saturating_mul(1 << tried.saturating_sub(1).min(8));
        Self {
            of,
            found,
            tried,
            again_at: (!is_whole && (!model.is_complete() || tried < UNNEEDED))
                .then(|| now + pause.min(AGAIN_MOST)),
        }
    }

    fn shape(&self) -> Option<&Shape> {
        self.found.as_ref().ok()?.shape.as_ref().ok()
    }

    /// Whether it is time to ask about these weights.
    fn is_due(&self, weights: &Weights, now: Duration) -> bool {
        self.of != *weights || self.again_at.is_some_and(|at| now >= at)
    }
}

/// The shapes that were found, for the planner.
pub(super) fn sizes(findings: &BTreeMap<ModelName, Finding>) -> Sizes {
    let mut sizes = Sizes::default();
    for (model, finding) in findings {
        if let Some(shape) = finding.shape() {
            sizes.insert(model.clone(), shape.clone());
        }
    }
    sizes
}

/// The model as it is run: with what was found of it.
pub(super) fn completed(model: &Model, finding: Option<&Finding>, sizes: &Sizes) -> Model {
    let finding = finding.filter(|finding| finding.of == *model.weights());
    let Some(Finding {
        found: Ok(found), ..
    }) = finding
    else {
        return model.clone();
    };
    model.with_findings(Some(&found.weights), |profile: &Profile| {
        sizes.memory(model.name(), profile)
    })
}

/// What a model waits for that is not complete.
pub(super) fn waiting(model: &Model, finding: Option<&Finding>, now: Duration) -> Waiting {
    let name = model.name();
    let source = model.weights().sources.iter();
    let far = source
        .clone()
        .find(|source| !matches!(source, Source::File { .. } | Source::Pip { .. }));
    let source = far.map(shown).unwrap_or_default();
    let Some(finding) = finding.filter(|finding| finding.of == *model.weights()) else {
        return Waiting::Loading(format!(
            "{name} waits until it is known what its weights are: asking {source}"
        ));
    };
    let error = match &finding.found {
        Err(error) => error.clone(),
        Ok(found) => match &found.shape {
            Err(error) => error.clone(),
            Ok(_) => NotFound::for_good(
                "its memory can't be estimated for this engine",
                Some("declare it: profiles: [{memory: 12GiB}]".to_owned()),
            ),
        },
    };
    match finding.again_at.filter(|_| error.passing) {
        Some(at) => Waiting::Loading(format!(
            "{name} waits until it is known what its weights are, asked again in {} s: {}",
            at.saturating_sub(now).as_secs().saturating_add(1),
            error.line(),
        )),
        None => Waiting::Unplaceable(format!("{name} can't be placed: {}", error.line())),
    }
}

/// Asks about the weights of models, a few at a time, until `stop`.
pub(super) async fn keep_finding_out(
    shared: Arc<Shared>,
    reader: Arc<dyn WeightsReader>,
    stop: CancellationToken,
) {
    let mut snapshots = shared.snapshot.clone();
    let mut asking = FuturesUnordered::new();
    let mut asked: BTreeSet<ModelName> = BTreeSet::new();
    loop {
        if shared.leading.borrow().is_some() {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            let now = shared.clock.monotonic();
            for (name, entry) in &snapshot.entries {
                if asking.len() >= AT_ONCE {
                    break;
                }
                let weights = entry.model.weights();
                let known = snapshot.findings.get(name);
                let is_due = known.is_none_or(|known| known.is_due(weights, now));
                if is_due && is_worth_asking(&entry.model) && asked.insert(name.clone()) {
                    let (reader, name, of) = (Arc::clone(&reader), name.clone(), weights.clone());
                    let ask = async move {
                        let found = match timeout(PATIENCE, reader.find_out(&of)).await {
                            Ok(found) => found,
                            Err(_) => Err(NotFound {
                                problem: format!("no answer within {} s", PATIENCE.as_secs()),
                                hint: None,
                                passing: true,
                            }),
                        };
                        Answered {
                            model: name,
                            of,
                            found,
                        }
                    };
                    asking.push(ask.boxed());
                }
            }
        }
        let answered = tokio::select! {
            () = stop.cancelled() => return,
            Some(answered) = asking.next() => answered,
            changed = snapshots.changed() => match changed {
                Ok(()) => continue,
                // The loop has ended.
                Err(_) => return,
            },
        };
        asked.remove(&answered.model);
        report(&answered);
        let (done, taken_in) = tokio::sync::oneshot::channel();
        let event = Event::Found {
            answered: Box::new(answered),
            done,
        };
        if shared.events.send(event).await.is_err() {
            return;
        }
        // So that the next look sees it; the loop may be gone.
        drop(taken_in.await);
    }
}

/// Whether somebody far away can tell.
fn is_worth_asking(model: &Model) -> bool {
    let mut sources = model.weights().sources.iter();
    sources.any(|source| !matches!(source, Source::File { .. } | Source::Pip { .. }))
}

fn report(answered: &Answered) {
    let Answered { model, found, .. } = answered;
    match found {
        Ok(Findings { shape: Ok(_), .. }) => {
            tracing::info!(%model, "the header of the weights was read");
        }
        Ok(Findings {
            shape: Err(error), ..
        }) => {
            tracing::info!(%model, problem = error.problem, "the header of the weights is not known");
        }
        Err(error) => {
            tracing::warn!(%model, problem = error.problem, "it is not known what the weights are");
        }
    }
}

/// A split model of hundreds of files is a request for each.
const PATIENCE: Duration = Duration::from_secs(300);
/// So that a hundred models do not ask a hub all at once.
const AT_ONCE: usize = 4;
/// How often it is asked for what is not needed.
const UNNEEDED: u32 = 3;
const AGAIN_FIRST: Duration = Duration::from_secs(10);
const AGAIN_MOST: Duration = Duration::from_secs(600);
