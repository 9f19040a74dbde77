//! The parts of a description, each checked with the path of its field.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{
    catalog::DefinitionError,
    engine::template::{Placeholder, Template, TemplateError},
};

pub(super) fn checked_command(
    command: &[String],
    field: &dyn Fn(&str) -> String,
) -> Result<(String, Vec<Template>), DefinitionError> {
    let Some((program, args)) = command.split_first() else {
        let hint = "name the program and its arguments: [/opt/mine/server, --port, \"{port}\"]";
        return Err(problem(field("command"), "it is empty", hint));
    };
    if command.len() > MAX_ARGS {
        let hint = "put them into a file that the program reads";
        return Err(problem(
            field("command"),
            "it has more than 256 arguments",
            hint,
        ));
    }
    let at = |index: usize| field(&format!("command[{index}]"));
    let absolute = "name the program by its absolute path";
    let template = checked_template(program, at(0))?;
    if !template.is_plain() {
        return Err(problem(at(0), "the program has a placeholder", absolute));
    }
    let program = template.fill(|_| String::new());
    if !program.starts_with('/') || program.ends_with('/') {
        return Err(problem(at(0), "it is not an absolute path", absolute));
    }
    let args = args
        .iter()
        .enumerate()
        .map(|(index, arg)| checked_template(arg, at(index + 1)))
        .collect::<Result<_, _>>()?;
    Ok((program, args))
}

pub(super) fn checked_env(
    env: BTreeMap<String, String>,
    field: &dyn Fn(&str) -> String,
) -> Result<BTreeMap<String, Template>, DefinitionError> {
    if env.len() > MAX_ARGS {
        let hint = "put them into a file that the program reads";
        return Err(problem(
            field("env"),
            "it has more than 256 variables",
            hint,
        ));
    }
    env.into_iter()
        .map(|(name, value)| {
            let at = field(&format!("env.{name}"));
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || name.len() > MAX_TEXT || !name.chars().all(plain) {
                return Err(problem(
                    at,
                    "it is not the name of a variable",
                    "use letters, digits and _",
                ));
            }
            if name.starts_with("LLMGW_") {
                return Err(problem(
                    at,
                    "names that begin with LLMGW_ are the agent's own",
                    "choose another name",
                ));
            }
            Ok((name, checked_template(&value, at)?))
        })
        .collect()
}

fn checked_template(text: &str, field: String) -> Result<Template, DefinitionError> {
    if text.len() > MAX_ARG || text.contains('\0') {
        return Err(problem(
            field,
            "it is longer than 4096 bytes or contains a zero byte",
            "shorten it",
        ));
    }
    template(text, field)
}

fn template(text: &str, field: String) -> Result<Template, DefinitionError> {
    Template::parse(text).map_err(|error| {
        let hint = match &error {
            TemplateError::Unknown { .. } => {
                let names = Placeholder::ALL.map(|place| format!("{{{}}}", place.as_str()));
                format!("use {}; write {{{{ for a brace", names.join(" "))
            }
            TemplateError::Unbalanced => "write {{ and }} for braces".to_owned(),
        };
        problem(field, &error.to_string(), &hint)
    })
}

/// Checks every text in a body. Its depth is bounded: no reader of YAML or JSON gives deeper ones.
pub(super) fn check_texts(body: &Value, field: &str) -> Result<(), DefinitionError> {
    match body {
        Value::String(text) => {
            let template = template(text, field.to_owned())?;
            let elsewhere = [Placeholder::Model, Placeholder::Port];
            match elsewhere.into_iter().find(|place| template.has(*place)) {
                Some(place) => Err(problem(
                    field.to_owned(),
                    &format!("{{{}}} has no meaning in a request", place.as_str()),
                    "use {name} for the model's name",
                )),
                None => Ok(()),
            }
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, one)| check_texts(one, &format!("{field}[{index}]"))),
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(name, one)| check_texts(one, &format!("{field}.{name}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

pub(super) fn checked_path(path: String, field: String) -> Result<String, DefinitionError> {
    let hint = "write the path alone, such as /health";
    if !path.starts_with('/') {
        return Err(problem(field, "it does not begin with /", hint));
    }
    if path.len() > MAX_TEXT || !path.chars().all(|c| c.is_ascii_graphic() && c != '#') {
        return Err(problem(
            field,
            "it is longer than 256 bytes or has what a path has not",
            hint,
        ));
    }
    Ok(path)
}

pub(super) fn checked_number(name: String, field: String) -> Result<String, DefinitionError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    if name.is_empty() || name.len() > MAX_TEXT || !name.chars().all(allowed) {
        return Err(problem(
            field,
            "it is not the name of a number",
            "write it as the engine does, without labels: mine_requests_running",
        ));
    }
    Ok(name)
}

pub(super) fn checked_text(text: String, field: String) -> Result<String, DefinitionError> {
    if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(problem(
            field,
            "it is empty, longer than 256 bytes or has control characters",
            "write a short text",
        ));
    }
    Ok(text)
}

pub(super) fn problem(field: String, problem: &str, hint: &str) -> DefinitionError {
    DefinitionError {
        field,
        problem: problem.to_owned(),
        hint: Some(hint.to_owned()),
    }
}

const MAX_ARGS: usize = 256;
const MAX_ARG: usize = 4_096;
const MAX_TEXT: usize = 256;
/// Bytes of what makes an engine compute.
pub(super) const MAX_BODY: usize = 16 << 10;
