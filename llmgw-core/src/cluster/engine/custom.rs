//! An engine that an operator describes: any program that serves a model over HTTP.
//!
//! ```yaml
//! command: [/opt/mine/server, --model, "{model}", --listen, "{host}:{port}", --alias, "{replica}"]
//! health: /health
//! ready: /ready
//! identity: /v1/models
//! stop: SIGINT
//! metrics: {path: /metrics, running: mine_requests_running}
//! probe: {path: /v1/completions, body: {model: "{name}", prompt: hi, max_tokens: 1}, expect: completion_tokens}
//! ```
//!
//! # How a replica is known
//! With `identity`, the answer at that path must contain the replica's id, so that the command hands it over by
//! `{replica}`. Without, the process that listens on the replica's port must be one of the replica's own: that is
//! what a program that knows no names can show, and what one inside a container of another service can't.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::checked::{
    MAX_BODY, check_texts, checked_command, checked_env, checked_number, checked_path,
    checked_text, problem,
};
use super::template::{Placeholder, Template};
use crate::cluster::catalog::DefinitionError;

mod checked;

/// A custom engine as people write it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CustomEngineDefinition {
    /// The program, by an absolute path, and its arguments, with places.
    pub command: Vec<String>,
    /// Variables that it gets besides `PATH`, `HOME`, `LANG` and `TMPDIR`; their values may have places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A path that answers GET with 200 while it is healthy.
    pub health: String,
    /// A path that answers GET with 200 when requests may come; `health` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// A path whose answer contains the replica's id; see the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What its first process is sent when it is to end; `SIGTERM` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopSignal>,
    /// Where it tells its numbers, as Prometheus reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsDefinition>,
    /// A request that makes it compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeDefinition>,
    /// The version that is shown; `custom` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Where a custom engine tells its numbers: a path, or a path and a name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MetricsDefinition {
    /// The path alone.
    Path(String),
    /// The path, and which number counts the requests that are being computed.
    Named {
        /// The path.
        path: String,
        /// The name of the number.
        running: String,
    },
}

/// A request that makes a custom engine compute, as people write it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeDefinition {
    /// Where it is sent by POST.
    pub path: String,
    /// What is sent; its texts may have places.
    pub body: Value,
    /// What the answer must contain; any answer of 200 will do when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
}

/// A signal that asks a process to end.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// SIGINT, as by Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int,
    /// SIGQUIT.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// SIGHUP.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// SIGUSR1.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// SIGUSR2.
    #[serde(rename = "SIGUSR2")]
    Usr2,
}

/// A custom engine, checked.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "CustomEngineDefinition", into = "CustomEngineDefinition")]
pub struct CustomEngine {
    program: String,
    args: Vec<Template>,
    env: BTreeMap<String, Template>,
    health: String,
    ready: String,
    identity: Option<String>,
    stop: StopSignal,
    metrics: Option<CustomMetrics>,
    probe: Option<CustomProbe>,
    version: String,
}

/// Where a custom engine tells its numbers.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CustomMetrics {
    /// The path.
    pub path: String,
    /// Which number counts the requests that are being computed; absent when it was not said.
    pub running: Option<String>,
}

/// A request that makes a custom engine compute.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CustomProbe {
    path: String,
    /// JSON, whose texts are templates.
    body: String,
    expect: Option<String>,
}

// === impl CustomEngineDefinition ===

impl CustomEngineDefinition {
    /// Checks it; `path` is where it stands, such as `engines.mine`.
    ///
    /// # Errors
    /// With the path of the first field that can't be right.
    pub fn checked(self, path: &str) -> Result<CustomEngine, DefinitionError> {
        let field = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let Self {
            command,
            env,
            health,
            ready,
            identity,
            stop,
            metrics,
            probe,
            version,
        } = self;
        let (program, args) = checked_command(&command, &field)?;
        let env = checked_env(env, &field)?;
        let hands_over = |place| {
            args.iter().any(|arg| arg.has(place)) || env.values().any(|value| value.has(place))
        };
        if !hands_over(Placeholder::Port) {
            return Err(problem(
                field("command"),
                "it does not say where to listen",
                "hand over the port: {port}",
            ));
        }
        if identity.is_some() && !hands_over(Placeholder::Replica) {
            return Err(problem(
                field("identity"),
                "the command does not hand over the replica's id, so that no answer can contain it",
                "add {replica} to the command, as an alias say, or leave identity out",
            ));
        }
        let web = |name: &str, path: String| checked_path(path, field(name));
        let metrics = match metrics {
            None => None,
            Some(MetricsDefinition::Path(path)) => Some(CustomMetrics {
                path: web("metrics", path)?,
                running: None,
            }),
            Some(MetricsDefinition::Named { path, running }) => Some(CustomMetrics {
                path: web("metrics.path", path)?,
                running: Some(checked_number(running, field("metrics.running"))?),
            }),
        };
        let health = web("health", health)?;
        Ok(CustomEngine {
            program,
            args,
            env,
            ready: match ready {
                Some(path) => web("ready", path)?,
                None => health.clone(),
            },
            health,
            identity: identity.map(|path| web("identity", path)).transpose()?,
            stop: stop.unwrap_or_default(),
            metrics,
            probe: probe
                .map(|probe| probe.checked(&field("probe")))
                .transpose()?,
            version: match version {
                Some(version) => checked_text(version, field("version"))?,
                None => CustomEngine::UNVERSIONED.to_owned(),
            },
        })
    }
}

impl ProbeDefinition {
    fn checked(self, field: &str) -> Result<CustomProbe, DefinitionError> {
        let Self { path, body, expect } = self;
        check_texts(&body, &format!("{field}.body"))?;
        let body = body.to_string();
        if body.len() > MAX_BODY {
            let hint = "ask for little: one token is enough";
            return Err(problem(
                format!("{field}.body"),
                "it is larger than 16 KiB",
                hint,
            ));
        }
        Ok(CustomProbe {
            path: checked_path(path, format!("{field}.path"))?,
            body,
            expect: expect
                .map(|text| checked_text(text, format!("{field}.expect")))
                .transpose()?,
        })
    }
}

// === impl CustomEngine ===

impl CustomEngine {
    /// What is shown of an engine that no version was given for.
    pub const UNVERSIONED: &'static str = "custom";

    /// The absolute path of its program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The program's arguments.
    #[must_use]
    pub fn args(&self) -> &[Template] {
        &self.args
    }

    /// The same as a view may tell it: without the values of variables, and of arguments that are named like secrets.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut told = self.clone();
        for value in told.env.values_mut() {
            *value = Template::hidden("");
        }
        let mut follows = false;
        for arg in &mut told.args {
            let shown = arg.to_string();
            let (name, value) = match shown.split_once('=') {
                Some((name, _)) => (name, true),
                None => (shown.as_str(), false),
            };
            let is_flag = name.starts_with('-');
            if is_flag && value && is_named_like_a_secret(name) {
                *arg = Template::hidden(&format!("{name}="));
            } else if follows && !is_flag {
                *arg = Template::hidden("");
            }
            follows = is_flag && !value && is_named_like_a_secret(name);
        }
        told
    }

    /// The variables that it gets.
    #[must_use]
    pub fn env(&self) -> &BTreeMap<String, Template> {
        &self.env
    }

    /// Answers 200 while it is healthy.
    #[must_use]
    pub fn health(&self) -> &str {
        &self.health
    }

    /// Answers 200 when requests may come.
    #[must_use]
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// Answers with a text that contains the replica's id; absent when it can't.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// What its first process is sent when it is to end.
    #[must_use]
    pub fn stop(&self) -> StopSignal {
        self.stop
    }

    /// Where it tells its numbers.
    #[must_use]
    pub fn metrics(&self) -> Option<&CustomMetrics> {
        self.metrics.as_ref()
    }

    /// What makes it compute.
    #[must_use]
    pub fn probe(&self) -> Option<&CustomProbe> {
        self.probe.as_ref()
    }

    /// The version that is shown.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn is_named_like_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "auth"]
        .iter()
        .any(|part| name.contains(part))
}

impl TryFrom<CustomEngineDefinition> for CustomEngine {
    type Error = DefinitionError;

    fn try_from(definition: CustomEngineDefinition) -> Result<Self, DefinitionError> {
        definition.checked("")
    }
}

impl From<CustomEngine> for CustomEngineDefinition {
    fn from(engine: CustomEngine) -> Self {
        let CustomEngine {
            program,
            args,
            env,
            health,
            ready,
            identity,
            stop,
            metrics,
            probe,
            version,
        } = engine;
        let mut command = vec![program.replace('{', "{{").replace('}', "}}")];
        command.extend(args.iter().map(ToString::to_string));
        Self {
            command,
            env: env
                .into_iter()
                .map(|(name, value)| (name, value.to_string()))
                .collect(),
            ready: (ready != health).then_some(ready),
            health,
            identity,
            stop: Some(stop),
            metrics: metrics.map(|CustomMetrics { path, running }| match running {
                Some(running) => MetricsDefinition::Named { path, running },
                None => MetricsDefinition::Path(path),
            }),
            probe: probe.map(|CustomProbe { path, body, expect }| ProbeDefinition {
                path,
                // It was made from a value.
                body: serde_json::from_str(&body).unwrap_or_default(),
                expect,
            }),
            version: Some(version),
        }
    }
}

// === impl CustomProbe ===

impl CustomProbe {
    /// Where it is sent by POST.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the answer must contain.
    #[must_use]
    pub fn expect(&self) -> Option<&str> {
        self.expect.as_deref()
    }

    /// What is sent, with every place in its texts filled by `value`.
    #[must_use]
    pub fn body(&self, value: &dyn Fn(Placeholder) -> String) -> Value {
        fn filled(body: Value, value: &dyn Fn(Placeholder) -> String) -> Value {
            match body {
                Value::String(text) => match Template::parse(&text) {
                    Ok(template) => Value::String(template.fill(value)),
                    Err(_) => Value::String(text),
                },
                Value::Array(items) => items.into_iter().map(|one| filled(one, value)).collect(),
                Value::Object(fields) => fields
                    .into_iter()
                    .map(|(name, one)| (name, filled(one, value)))
                    .collect(),
                other => other,
            }
        }
        filled(serde_json::from_str(&self.body).unwrap_or_default(), value)
    }
}

#[cfg(test)]
mod tests;
