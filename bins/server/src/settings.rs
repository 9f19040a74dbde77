//! The file that names models and engines, and the `--model` flag.
//!
//! ```yaml
//! models:
//!   - name: tiny
//!     source: file:/models/tiny.gguf
//!     profiles: [{memory: 1GiB}]
//! engines:
//!   llamacpp: {path: /opt/llama.cpp/llama-server}
//!   vllm: {lock: /etc/llmgw/vllm.txt}
//!   mine: {command: [/opt/mine/server, --model, "{model}", --port, "{port}"], health: /health}
//! pools: {fast: {gpu: h200}}
//! placement: {policy: spread}
//! scaling: {min_residency: 1m}
//! queue: {max_total: 2048}
//! weights: {evict: true, hub_token_file: /etc/llmgw/hub.token}
//! guard: {rules: [{name: secrets, pii: [secret], action: redact}]}
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use llmgw_core::{
    cluster::{
        catalog::{DefinitionError, Model, ModelDefinition, OneOrMany, ProfileDefinition},
        engine::{EngineSource, KNOWN_ENGINES, WantedEngine},
        guard::{Policy, PolicyDefinition},
        pool::{Labels, Pools},
        weights::{HubToken, Source, split_digest},
    },
    control::check_pools,
    id::EngineName,
    units::Bytes,
};
use llmgw_sched::{planner::policy::PolicyName, reconcile::Pacing};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

pub use self::demand::QueueBounds;
use self::{
    demand::{QueueFile, ScalingFile},
    engines::{EngineSettings, known_engines},
};
use crate::{data_dir::read_small, fault::Fault, weights::WeightsSettings};

mod demand;
mod engines;
mod guard;

/// What a settings file says, checked.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Models that should run.
    pub models: Vec<Model>,
    /// What nodes should have, for engines that are named.
    pub engines: BTreeMap<EngineName, WantedEngine>,
    /// Pools of nodes, by the labels that make a node one of them.
    pub pools: Pools,
    /// How fast replicas follow what is asked for.
    pub pacing: Pacing,
    /// How many calls wait for models on demand, and how long.
    pub queue: QueueBounds,
    /// Which policy places.
    pub policy: PolicyName,
    /// What is said of weights.
    pub weights: WeightsSettings,
    /// What prompts and answers are checked by; the baseline when absent.
    pub guard: Option<Policy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    #[serde(default)]
    models: Vec<ModelDefinition>,
    #[serde(default)]
    engines: BTreeMap<EngineName, EngineSettings>,
    #[serde(default)]
    pools: BTreeMap<String, Labels>,
    #[serde(default)]
    scaling: ScalingFile,
    #[serde(default)]
    queue: QueueFile,
    #[serde(default)]
    placement: PlacementSettings,
    #[serde(default)]
    weights: WeightsFile,
    guard: Option<PolicyDefinition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlacementSettings {
    #[serde(default)]
    policy: PolicyName,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightsFile {
    /// Whether those that were used longest ago may be removed when there is no room for others.
    #[serde(default)]
    evict: bool,
    /// The address that `mirror:` sources are fetched beneath.
    mirror: Option<String>,
    /// The hub's address.
    hub: Option<String>,
    /// A file with the token that gated repositories are asked with.
    hub_token_file: Option<PathBuf>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, is larger than 1 MiB, or says what can't be right.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let origin = path.display().to_string();
        let wrong = |problem: String, hint: Option<String>| Fault::Settings {
            origin: origin.clone(),
            problem,
            hint,
        };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(|error| {
                let hint = "name a file that is there and that you may read: --config FILE";
                wrong(format!("can't be read: {error}"), Some(hint.to_owned()))
            })?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_FILE {
            return Err(wrong("is larger than 1 MiB".to_owned(), None));
        }
        let file: SettingsFile =
            read_yaml(&origin, &text).map_err(|Misread { origin, problem }| Fault::Settings {
                origin,
                problem,
                hint: Some(EXAMPLE.to_owned()),
            })?;
        let stray = |error: DefinitionError| wrong(error.to_string(), error.hint);
        let pools = Pools::checked(file.pools).map_err(stray)?;
        let mut models = Vec::new();
        for (index, definition) in file.models.into_iter().enumerate() {
            let model = Model::try_from(definition)
                .map_err(|error| wrong(format!("models[{index}].{error}"), error.hint))?;
            check_pools(&model, &pools)
                .map_err(|error| wrong(format!("models[{index}].{error}"), error.hint))?;
            models.push(model);
        }
        let mut engines = BTreeMap::new();
        for (name, settings) in file.engines {
            let path = format!("engines.{name}");
            let wanted = settings
                .wanted(&name, &path)
                .map_err(|error| wrong(error.to_string(), error.hint))?;
            if let Some(pool) = &wanted.pool {
                pools
                    .require(pool, &format!("{path}.pool"))
                    .map_err(stray)?;
            }
            engines.insert(name, wanted);
        }
        for (index, model) in models.iter().enumerate() {
            for (number, profile) in model.profiles().iter().enumerate() {
                let name = &profile.engine;
                if !KNOWN_ENGINES.contains(&name.as_str()) && !engines.contains_key(name) {
                    let field = format!("models[{index}].profiles[{number}].engine");
                    let hint = Some(known_engines());
                    return Err(wrong(format!("{field}: {name} is not an engine"), hint));
                }
            }
        }
        Ok(Self {
            models,
            engines,
            pools,
            pacing: file.scaling.checked().map_err(stray)?,
            queue: file.queue.checked().map_err(stray)?,
            policy: file.placement.policy,
            guard: file.guard.map(guard::checked).transpose().map_err(stray)?,
            weights: file.weights.checked().map_err(|(field, problem, hint)| {
                wrong(format!("weights.{field}: {problem}"), hint)
            })?,
        })
    }

    /// The engines that nodes should have: llama.cpp, those that are named, and those that models name.
    #[must_use]
    pub fn wanted_engines(&self) -> Vec<WantedEngine> {
        let profiles = self.models.iter().flat_map(Model::profiles);
        let mut names: BTreeSet<EngineName> = self.engines.keys().cloned().collect();
        names.extend(profiles.map(|profile| profile.engine.clone()));
        names.extend(LLAMACPP.parse::<EngineName>());
        names
            .into_iter()
            .map(|name| {
                let wanted = self.engines.get(&name).cloned();
                wanted.unwrap_or_else(|| WantedEngine::new(name, EngineSource::Auto))
            })
            .collect()
    }
}

impl WeightsFile {
    /// Reads the token, and checks the rest. Of what is wrong: the field, what it is, and what would help.
    fn checked(self) -> Result<WeightsSettings, (&'static str, String, Option<String>)> {
        let Self {
            evict,
            mirror,
            hub,
            hub_token_file,
        } = self;
        for (field, address) in [("mirror", &mirror), ("hub", &hub)] {
            let is_one =
                |text: &String| text.starts_with("https://") || text.starts_with("http://");
            if let Some(text) = address.as_ref().filter(|text| !is_one(text)) {
                let hint = "write an address, such as https://mirror.example/models";
                return Err((
                    field,
                    format!("{text:?} is no address"),
                    Some(hint.to_owned()),
                ));
            }
        }
        let hub_token = match hub_token_file {
            None => None,
            Some(path) => {
                let wrong = |problem: String| {
                    let hint =
                        "put the token, and nothing else, into a file that llmgw alone may read";
                    let problem = format!("{}: {problem}", path.display());
                    ("hub_token_file", problem, Some(hint.to_owned()))
                };
                let text = read_small(&path).map_err(|error| wrong(error.to_string()))?;
                let token = HubToken::parse(&text);
                Some(token.ok_or_else(|| wrong("it holds no token".to_owned()))?)
            }
        };
        Ok(WeightsSettings {
            evict,
            mirror,
            hub,
            hub_token,
        })
    }
}

/// Why a text in YAML or JSON is not what it should be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct Misread {
    /// The text's name, with line and column where they are known: `llmgw.yaml:2:9`.
    pub origin: String,
    /// What is wrong there.
    pub problem: String,
}

/// Reads a text in YAML or JSON that is called `name` in what is said of it.
///
/// # Errors
/// The place and what is wrong there. Of a text that is broken, that it is: what it lacks may only be unread.
pub fn read_yaml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Misread> {
    serde_saphyr::from_str(text).map_err(|error| {
        let broken = serde_saphyr::from_str::<IgnoredAny>(text).err();
        let error = broken.unwrap_or(error);
        let error = error.without_snippet();
        let origin = match error.location() {
            Some(place) => format!("{name}:{}:{}", place.line(), place.column()),
            None => name.to_owned(),
        };
        let problem = UserMessageFormatter.format_message(error).into_owned();
        Misread { origin, problem }
    })
}

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

const LLAMACPP: &str = "llamacpp";
const MAX_FILE: u64 = 1 << 20;
const EXAMPLE: &str = "a settings file is such as `models: [{name: tiny, source: file:/models/tiny.gguf, \
                       profiles: [{memory: 1GiB}]}]`";
const FORM: &str = "write [NAME=]SOURCE[#sha256=DIGEST][,memory=SIZE][,context=N][,parallel=N], \
                    such as tiny=file:/models/tiny.gguf,memory=1GiB";

#[cfg(test)]
mod tests;
