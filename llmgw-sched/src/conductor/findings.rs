//! What is found out of weights before any node has them: which bytes they are, and how much memory they need.
//!
//! What was found is used to pin a model's weights for all nodes at once, to size profiles that name no memory, and for
//! remedies of context and slots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use llmgw_core::{
    cluster::{
        catalog::{Model, Profile},
        replica::ReplicaStatus,
        weights::{MAX_ASKED, Source, ToldHeader, Weights, shown},
    },
    error::Code,
    id::ModelName,
    route::Waiting,
};
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use crate::{fit::Shape, planner::sizes::Sizes};

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
pub struct Finding {
    /// The weights that were asked for: of others, it says nothing.
    of: Weights,
    found: Result<Findings, NotFound>,
    /// How often it was asked in vain, and when it is asked again.
    tried: u32,
    again_at: Option<Duration>,
}

/// What an answer was.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The model.
    pub model: ModelName,
    /// The weights that were asked for.
    pub of: Weights,
    /// What was found.
    pub found: Result<Findings, NotFound>,
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
    #[must_use]
    pub fn of(answered: Answered, before: Option<&Self>, model: &Model, now: Duration) -> Self {
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
    #[must_use]
    pub fn is_due(&self, weights: &Weights, now: Duration) -> bool {
        self.of != *weights || self.again_at.is_some_and(|at| now >= at)
    }
}

/// The shapes that were found, for the planner, beside what it knows by measuring.
#[must_use]
pub fn sizes(findings: &BTreeMap<ModelName, Finding>, before: &Sizes) -> Sizes {
    let mut sizes = Sizes::default().with_measured_of(before);
    for (model, finding) in findings {
        if let Some(shape) = finding.shape() {
            sizes.insert(model.clone(), shape.clone());
        }
    }
    sizes
}

/// Keeps what replicas were measured to hold: the next of their kind needs it too.
pub fn take_in_measured<'s>(
    sizes: &mut Arc<Sizes>,
    replicas: impl Iterator<Item = &'s ReplicaStatus>,
) {
    for status in replicas {
        let measured = status.measured.as_ref();
        if let Some(memory) = measured.and_then(|measured| measured.main)
            && sizes.most_measured(status.spec.fingerprint) < Some(memory)
        {
            Arc::make_mut(sizes).measured(status.spec.fingerprint, memory);
        }
    }
}

/// The model as it is run: with what was found of it.
#[must_use]
pub fn completed(model: &Model, finding: Option<&Finding>, sizes: &Sizes) -> Model {
    let finding = finding.filter(|finding| finding.of == *model.weights());
    let Some(Finding {
        found: Ok(found), ..
    }) = finding
    else {
        return model.clone();
    };
    model.with_findings(Some(&found.weights), |profile: &Profile| {
        sizes.needed(model.name(), profile, model.fingerprint(profile))
    })
}

/// The weights whose headers nodes that hold them are to tell: those of which nobody far away can tell.
#[must_use]
pub fn asked_of_nodes(snapshot: &Snapshot) -> Vec<Weights> {
    let models = snapshot.entries.values().map(|entry| &entry.model);
    let open = models.filter(|model| {
        let known = snapshot.findings.get(model.name());
        let known = known.filter(|known| known.of == *model.weights());
        !is_far(model) && known.is_none_or(|known| known.again_at.is_some())
    });
    open.take(MAX_ASKED)
        .map(|model| model.weights().clone())
        .collect()
}

/// What a node has told of headers that it was asked for, as the answers of a reader.
#[must_use]
pub fn told_by_node(snapshot: &Snapshot, told: &[ToldHeader]) -> Vec<Answered> {
    if told.is_empty() {
        return Vec::new();
    }
    let mut answers = Vec::new();
    for of in asked_of_nodes(snapshot) {
        let name = ToldHeader::name(&of);
        let Some(told) = told.iter().find(|told| Some(told.of) == name) else {
            continue;
        };
        let found = Findings {
            weights: of.clone(),
            shape: shape_told(told),
        };
        let models = snapshot.entries.values().map(|entry| &entry.model);
        for model in models.filter(|model| *model.weights() == of) {
            // A report says it all, again and again.
            let known = snapshot.findings.get(model.name());
            if known.is_some_and(|known| known.of == of && known.found.as_ref() == Ok(&found)) {
                continue;
            }
            answers.push(Answered {
                model: model.name().clone(),
                of: of.clone(),
                found: Ok(found.clone()),
            });
        }
    }
    answers
}

fn shape_told(told: &ToldHeader) -> Result<Shape, NotFound> {
    let header = told.header().map_err(|problem| NotFound {
        problem: format!("a node that has its weights says: {problem}"),
        hint: Some(DECLARE_IT.to_owned()),
        // The file may be replaced by one that can be read.
        passing: true,
    })?;
    Shape::from_gguf(&header, None).map_err(|error| {
        let hint = error.hint().unwrap_or_else(|| DECLARE_IT.to_owned());
        NotFound::for_good(error.to_string(), Some(hint))
    })
}

/// Whether somebody far away can tell what a model's weights are.
#[must_use]
pub fn is_far(model: &Model) -> bool {
    model.weights().sources.iter().any(is_elsewhere)
}

/// Whether a source is another machine's, which every control plane can ask.
fn is_elsewhere(source: &Source) -> bool {
    !matches!(source, Source::File { .. } | Source::Pip { .. })
}

/// What a model waits for that is not complete.
#[must_use]
pub fn waiting(model: &Model, finding: Option<&Finding>, now: Duration) -> Waiting {
    let name = model.name();
    let mut sources = model.weights().sources.iter();
    let far = sources.clone().find(|source| is_elsewhere(source));
    let Some(finding) = finding.filter(|finding| finding.of == *model.weights()) else {
        return Waiting::Loading(match far {
            Some(source) => format!(
                "{name} waits until it is known what its weights are: asking {}",
                shown(source)
            ),
            None => format!(
                "{name} is pending: header: no node that has {} has told yet what it needs; {DECLARE_IT}",
                sources.next().map(shown).unwrap_or_default()
            ),
        });
    };
    let error = match &finding.found {
        Err(error) => error.clone(),
        Ok(found) => match &found.shape {
            Err(error) => error.clone(),
            Ok(_) => NotFound::for_good(
                "its memory can't be estimated for this engine",
                Some(DECLARE_IT.to_owned()),
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

const DECLARE_IT: &str = "declare it: profiles: [{memory: 12GiB}]";

/// How often it is asked for what is not needed.
const UNNEEDED: u32 = 3;
const AGAIN_FIRST: Duration = Duration::from_secs(10);
const AGAIN_MOST: Duration = Duration::from_secs(600);
