//! `openapi.json`: the admin API described for programs, made from the table of routes and from the types that are read
//! and written.

use std::fmt;

use axum::{Extension, Json};
use llmgw_core::api::admin::ErrorBody;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::routes::Operation;

/// The description, made once.
#[derive(Clone)]
pub(super) struct Described(pub(super) std::sync::Arc<Value>);

/// How a value looks, made when it is asked for.
#[derive(Clone, Copy)]
pub(super) struct Shape(fn(&mut SchemaGenerator) -> Schema);

pub(super) async fn openapi(Extension(Described(described)): Extension<Described>) -> Json<Value> {
    Json((*described).clone())
}

/// Describes what can be asked.
pub(super) fn describe(operations: &[Operation]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let refused = generator.subschema_for::<ErrorBody>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = operation.path.replace("{*name}", "{name}");
        let described = described(operation, &path, &mut generator);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(methods) = entry.as_object_mut() {
            methods.insert(operation.method.to_lowercase(), described);
        }
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "llmgw admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"refused": {
                "description": "Not done; the body says why, and what would help",
                "content": {"application/json": {"schema": refused}},
            }},
        },
    })
}

fn described(operation: &Operation, path: &str, generator: &mut SchemaGenerator) -> Value {
    let Operation {
        method,
        role,
        about,
        query,
        body,
        body_is_optional,
        answer,
        media,
        stream,
        ..
    } = operation;
    let mut parameters: Vec<Value> = Vec::new();
    let text = json!({"type": "string", "minLength": 1});
    let number = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    for (name, schema) in [("name", &text), ("id", &text), ("version", &number)] {
        if path.contains(&format!("{{{name}}}")) {
            parameters.push(json!({
                "name": name, "in": "path", "required": true, "schema": schema,
            }));
        }
    }
    for (name, required, schema) in *query {
        let schema: Value = serde_json::from_str(schema).unwrap_or(Value::Bool(true));
        parameters.push(json!({
            "name": name, "in": "query", "required": required, "schema": schema,
        }));
    }
    let text = || json!({"schema": {"type": "string"}});
    let mut content = match answer {
        Some(Shape(shape)) => json!({*media: {"schema": shape(generator)}}),
        None => json!({*media: text()}),
    };
    if let (Some(stream), Some(media)) = (stream, content.as_object_mut()) {
        media.insert((*stream).to_owned(), text());
    }
    let mut described = json!({
        "operationId": operation_id(method, path),
        "summary": about,
        "description": format!("Needs the role {role}."),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": content},
            "4XX": {"$ref": "#/components/responses/refused"},
            "5XX": {"$ref": "#/components/responses/refused"},
        },
    });
    if let (Some(Shape(shape)), Some(fields)) = (body, described.as_object_mut()) {
        let schema = shape(generator);
        let content = json!({"application/json": {"schema": schema}});
        fields.insert(
            "requestBody".to_owned(),
            json!({"required": !body_is_optional, "content": content}),
        );
    }
    described
}

/// Unique, and a name in most languages: `get_nodes_id_state`.
fn operation_id(method: &str, path: &str) -> String {
    let rest = path.trim_start_matches("/api/v1");
    let parts = rest
        .split(['/', '-', '.'])
        .map(|part| part.trim_matches(['{', '}']));
    let named: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    format!("{}_{}", method.to_lowercase(), named.join("_"))
}

// === impl Shape ===

impl Shape {
    /// How a `T` looks.
    pub(super) fn of<T: JsonSchema>() -> Self {
        Self(|generator| generator.subschema_for::<T>())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shape(..)")
    }
}

impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Described(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::admin::operations;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    found.insert(reference.clone());
                }
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_described_once_and_all_that_is_referred_to_is_there() {
        let all = operations();
        let described = describe(&all);
        let paths = described["paths"].as_object().unwrap();
        let count: usize = paths
            .values()
            .map(|path| path.as_object().unwrap().len())
            .sum();
        assert_eq!(count, all.len());
        let mut ids = BTreeSet::new();
        for operation in &all {
            let path = operation.path.replace("{*name}", "{name}");
            let entry = &paths[&path][operation.method.to_lowercase()];
            assert_eq!(entry["summary"], operation.about, "{path}");
            assert!(ids.insert(entry["operationId"].to_string()), "{entry}");
        }
        let mut found = BTreeSet::new();
        references(&described, &mut found);
        assert!(found.len() > 30, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(described.pointer(pointer).is_some(), "{reference}");
        }
    }
}
