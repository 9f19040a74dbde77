//! The `--model` flag.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{
        catalog::{Model, ModelDefinition, OneOrMany, ProfileDefinition},
        weights::{Source, split_digest},
    },
    units::Bytes,
};

use crate::fault::Fault;

/// Reads the `--model` flag: `[NAME=]SOURCE[#sha256=…],memory=SIZE[,context=N][,parallel=N]`, or `starter`.
///
/// # Errors
/// When it can't be right.
pub fn model_flag(text: &str) -> Result<Model, Fault> {
    let wrong = |problem: String, hint: Option<String>| Fault::Settings {
        origin: format!("--model {text}"),
        problem,
        hint,
    };
    if text == crate::starter::FLAG {
        return crate::starter::model().map_err(|error| wrong(error.to_string(), error.hint));
    }
    let mut parts = text.split(',');
    let head = parts.next().unwrap_or_default();
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            return Err(wrong(
                format!("{part:?} is not key=value"),
                Some(FORM.to_owned()),
            ));
        };
        if !seen.insert(key) {
            return Err(wrong(format!("{key} stands there twice"), None));
        }
        fields.insert(key, value);
    }
    // A name ends at the first `=`; a source has its `:` before any.
    let named = head.split_once('=').filter(|(name, _)| !name.contains(':'));
    let (source, digest) = split_digest(named.map_or(head, |(_, source)| source))
        .map_err(|error| wrong(error.to_string(), None))?;
    let parsed: Source = source
        .parse()
        .map_err(|error| wrong(format!("{error}"), Some(FORM.to_owned())))?;
    let name = named.map_or_else(
        || {
            let file = parsed.file_name();
            file.strip_suffix(".gguf").unwrap_or(file).to_lowercase()
        },
        |(name, _)| name.to_owned(),
    );
    let known = |key: &str| matches!(key, "memory" | "context" | "parallel");
    if let Some(key) = fields.keys().find(|key| !known(key)) {
        return Err(wrong(
            format!("{key} is not a setting"),
            Some(FORM.to_owned()),
        ));
    }
    let mut number = |key: &str| {
        let value = fields.remove(key);
        value
            .map(|value| {
                value
                    .parse::<u64>()
                    .map_err(|_| wrong(format!("{key}={value}: not a whole number"), None))
            })
            .transpose()
    };
    let context = number("context")?;
    let parallel = number("parallel")?;
    // What a hub or a web server has is read before it is placed, and a node tells of a file that it has; what is in a
    // package is for a person to say.
    let can_be_estimated = !matches!(parsed, Source::Pip { .. });
    let memory: Option<Bytes> = match fields.remove("memory") {
        Some(text) => Some(
            text.parse()
                .map_err(|error| wrong(format!("memory: {error}"), None))?,
        ),
        None if can_be_estimated => None,
        None => {
            return Err(wrong(
                "memory is missing: how much main memory does it need in all?".to_owned(),
                Some(FORM.to_owned()),
            ));
        }
    };
    let parallel = parallel
        .map(|value| u32::try_from(value).map_err(|_| wrong("parallel is too large".into(), None)))
        .transpose()?;
    Model::try_from(ModelDefinition {
        name,
        description: String::new(),
        aliases: Vec::new(),
        fallbacks: Vec::new(),
        source: OneOrMany::One(source.to_owned()),
        sha256: digest.map(|digest| digest.to_string()),
        size: None,
        files: Vec::new(),
        replicas: None,
        min_replicas: None,
        max_replicas: None,
        idle_timeout: None,
        profiles: vec![ProfileDefinition {
            context,
            parallel,
            memory,
            ..ProfileDefinition::of_memory(Bytes::ZERO)
        }],
    })
    .map_err(|error| wrong(error.to_string(), error.hint))
}

const FORM: &str = "write [NAME=]SOURCE[#sha256=DIGEST][,memory=SIZE][,context=N][,parallel=N], \
                    such as tiny=file:/models/tiny.gguf,memory=1GiB";
