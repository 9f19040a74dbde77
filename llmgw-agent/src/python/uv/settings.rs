//! What `uv` is told of a machine's package indexes: what `pip` is told.

use std::{collections::BTreeMap, ffi::OsString};

use super::{ANSWER, Place};
use crate::{
    command::{Helper, Inherits, Listener, Patience},
    python::Python,
};

/// What `pip` is told on this machine, as `uv` is told it; nothing where `uv` is configured itself.
pub(super) async fn settings(python: &Python, place: &Place<'_>) -> Vec<(OsString, OsString)> {
    let helper = Helper {
        program: &python.executable,
        args: vec!["-I".into(), "-c".into(), QUESTION.into()],
        env: place.env,
        inherits: Inherits::PackageSettings,
        without: &[],
        directory: place.directory,
        patience: Patience::Whole(ANSWER),
    };
    let Ok(finished) = helper.run(&Listener::NONE).await else {
        return Vec::new();
    };
    let answer = finished.lines.iter().find(|line| line.starts_with('{'));
    let answer: BTreeMap<String, String> = answer
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_default();
    translate(&answer, &|name| std::env::var_os(name).is_some())
}

/// Turns what `pip config list` says into the variables of `uv`; `is_set` tells which variables there are already.
pub(super) fn translate(
    pip: &BTreeMap<String, String>,
    is_set: &dyn Fn(&str) -> bool,
) -> Vec<(OsString, OsString)> {
    // A variable outdoes the section of the command, which outdoes the one for all.
    let said = |name: &str| {
        [":env:", "install", "global"]
            .iter()
            .find_map(|section| pip.get(&format!("{section}.{name}")))
            .map(|value| value.split_whitespace().collect::<Vec<_>>())
            .filter(|values| !values.is_empty())
    };
    let mut settings: Vec<(OsString, OsString)> = Vec::new();
    let mut tell = |variable: &str, value: String| {
        if !is_set(variable) {
            settings.push((variable.into(), value.into()));
        }
    };
    let has_indexes = [
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_EXTRA_INDEX_URL",
    ]
    .iter()
    .any(|name| is_set(name));
    if !has_indexes {
        if let Some(index) = said("index-url") {
            tell("UV_DEFAULT_INDEX", index.join(" "));
        }
        if let Some(more) = said("extra-index-url") {
            tell("UV_INDEX", more.join(" "));
        }
    }
    if said("no-index")
        .is_some_and(|value| matches!(value[..], ["1" | "true" | "True" | "yes" | "on"]))
    {
        tell("UV_NO_INDEX", "1".to_owned());
    }
    if let Some(places) = said("find-links") {
        // `uv` divides this one by commas.
        tell("UV_FIND_LINKS", places.join(","));
    }
    if let Some(hosts) = said("trusted-host") {
        tell("UV_INSECURE_HOST", hosts.join(" "));
    }
    for (name, variable) in [
        ("cert", "SSL_CERT_FILE"),
        ("client-cert", "SSL_CLIENT_CERT"),
        ("proxy", "ALL_PROXY"),
        ("default-timeout", "UV_HTTP_TIMEOUT"),
        ("timeout", "UV_HTTP_TIMEOUT"),
    ] {
        if let Some(value) = said(name) {
            tell(variable, value.join(" "));
        }
    }
    settings
}

/// Says all of `pip`'s settings that are known on the machine, as JSON.
const QUESTION: &str = r#"
import ast, json, subprocess, sys
listed = subprocess.run([sys.executable, "-I", "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
settings = {}
for line in listed.splitlines():
    key, _, value = line.partition("=")
    try:
        settings[key] = str(ast.literal_eval(value))
    except (SyntaxError, ValueError):
        pass
print(json.dumps(settings))
"#;
