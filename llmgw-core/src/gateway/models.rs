//! `GET /v1/models` and `GET /v1/models/{id}`.

use http::{Response, StatusCode};

use super::{
    authorise::may_use,
    identify::Caller,
    refusal::Refusal,
    resolve::resolve,
    respond::{AnswerBody, json},
};
use crate::{
    api::openai::{ModelList, ModelObject},
    route::{ModelRoute, NoRoute, RouteTable},
};

/// The models that the caller may use, by name.
pub(super) fn list(caller: &Caller, table: &RouteTable) -> Response<AnswerBody> {
    let models = table.models().filter(|model| may_use(caller, model));
    let list = ModelList {
        object: "list".into(),
        data: models
            .map(|model| object(model, model.name.to_string()))
            .collect(),
    };
    json(StatusCode::OK, &list)
}

/// One model, under the name that the caller used.
pub(super) fn one(
    caller: &Caller,
    table: &RouteTable,
    name: String,
) -> Result<Response<AnswerBody>, Refusal> {
    let model = resolve(table, &name)?;
    if !may_use(caller, &model) {
        return Err(NoRoute::UnknownModel(name).into());
    }
    Ok(json(StatusCode::OK, &object(&model, name)))
}

fn object(model: &ModelRoute, id: String) -> ModelObject {
    ModelObject {
        id,
        object: "model".into(),
        created: model.created_at.0 / 1000,
        owned_by: "llmgw".into(),
    }
}
