//! What Ollama's clients ask besides answers: which models there are, and which of them run.
//!
//! Of a model, the gateway knows its name and when it was made known; what Ollama also tells (sizes, digests, templates)
//! is left out rather than made up.

use std::time::{Duration, UNIX_EPOCH};

use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    authorise::may_use,
    identify::Caller,
    inspect::not_json,
    refusal::Refusal,
    resolve::resolve,
    respond::{self, AnswerBody},
};
use crate::{
    error::Code,
    route::{ModelRoute, NoRoute, RouteTable},
};

/// A question that the gateway answers itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Question {
    /// `GET /api/tags`: all models.
    Tags,
    /// `GET /api/ps`: those that run.
    Running,
    /// `GET /api/version`
    Version,
    /// `POST /api/show`: one model.
    Show,
}

#[derive(Serialize)]
struct Models {
    models: Vec<Model>,
}

#[derive(Serialize)]
struct Model {
    name: String,
    model: String,
    modified_at: String,
}

#[derive(Deserialize)]
struct Named {
    model: Option<String>,
    /// What it was called once.
    name: Option<String>,
}

// === impl Question ===

impl Question {
    /// The question on a path, and the methods that it is asked with.
    pub(super) fn of(path: &str) -> Option<(Self, &'static str)> {
        Some(match path {
            "/api/tags" => (Self::Tags, "GET, HEAD"),
            "/api/ps" => (Self::Running, "GET, HEAD"),
            "/api/version" => (Self::Version, "GET, HEAD"),
            "/api/show" => (Self::Show, "POST"),
            _ => return None,
        })
    }

    /// Answers; `body` is what came with the question.
    pub(super) fn answer(
        self,
        caller: &Caller,
        table: &RouteTable,
        body: &[u8],
    ) -> Result<Response<AnswerBody>, Refusal> {
        let all = table.models().filter(|model| may_use(caller, model));
        let listed: Vec<Model> = match self {
            Self::Tags => all.map(listed).collect(),
            Self::Running => {
                let running = all.filter(|model| !model.endpoints.is_empty());
                running.map(listed).collect()
            }
            Self::Version => {
                return Ok(respond::json(StatusCode::OK, &json!({"version": SPOKEN})));
            }
            Self::Show => return show(caller, table, body),
        };
        Ok(respond::json(StatusCode::OK, &Models { models: listed }))
    }
}

fn show(caller: &Caller, table: &RouteTable, body: &[u8]) -> Result<Response<AnswerBody>, Refusal> {
    let Named { model, name } = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    let Some(name) = model.or(name) else {
        let missing = Refusal::new(Code::MissingField, "the body has no \"model\"");
        return Err(missing.with_param("model"));
    };
    let model = resolve(table, &name)?;
    if !may_use(caller, &model) {
        return Err(NoRoute::UnknownModel(name).into());
    }
    let shown: Value = json!({
        "modified_at": modified_at(&model),
        "details": {},
        "model_info": {},
        "capabilities": ["completion", "tools"],
    });
    Ok(respond::json(StatusCode::OK, &shown))
}

fn listed(model: &std::sync::Arc<ModelRoute>) -> Model {
    Model {
        name: model.name.to_string(),
        model: model.name.to_string(),
        modified_at: modified_at(model),
    }
}

fn modified_at(model: &ModelRoute) -> String {
    let since = Duration::from_millis(u64::try_from(model.created_at.0).unwrap_or(0));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// The version of Ollama whose API is spoken: clients ask before they use what is new.
const SPOKEN: &str = "0.12.0";
