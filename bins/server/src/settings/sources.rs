//! Where settings are said: a file, flags, and over them the cluster's document.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use llmgw_core::{
    cluster::{
        catalog::{DefinitionError, FallbackFault, Model, ModelDefinition, fallback_faults},
        engine::{KNOWN_ENGINES, WantedEngine},
        pool::Pools,
        settings::LONGEST_SETTINGS,
    },
    control::{ControlError, check_pools},
    error::Code,
    id::EngineName,
};
use llmgw_sched::controller::{Terms, TermsReader};

use super::{
    Misread, Settings, engines::known_engines, file::SettingsFile, flag::model_flag, guard,
    read_yaml,
};
use crate::{fault::Fault, starter};

/// Where this control plane is told what holds, besides the cluster's document.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The settings file.
    pub file: Option<PathBuf>,
    /// What `--model` says, each time it stands there.
    pub flags: Vec<String>,
    /// Whether the starter model runs when neither names a model.
    pub starter: bool,
}

/// One text that says settings.
struct Said {
    origin: String,
    file: SettingsFile,
}

/// A model, and where it is said.
struct Declared {
    origin: String,
    /// Its path there, such as `models[1].`; empty for a flag.
    path: String,
    model: Model,
}

// === impl Sources ===

impl Sources {
    /// Reads everything.
    ///
    /// # Errors
    /// When the file can't be read or is larger than 1 MiB, and what can't be right, with where it stands.
    pub fn read(&self, document: &str) -> Result<Settings, Fault> {
        let file = match &self.file {
            None => Said {
                origin: String::new(),
                file: SettingsFile::default(),
            },
            Some(path) => {
                let origin = path.display().to_string();
                let text = read_file(path, &origin)?;
                Said {
                    file: parsed(&origin, &text)?,
                    origin,
                }
            }
        };
        let document = Said {
            file: of_the_cluster(document)?,
            origin: DOCUMENT.to_owned(),
        };
        let names_a_model = !file.file.models.is_empty() || !self.flags.is_empty();
        let mut flags = self.flags.clone();
        if self.starter && !names_a_model {
            // Who has it keeps it until a file or a flag names another: what the document names is in addition.
            flags.push(starter::FLAG.to_owned());
        }
        together(file, &flags, document)
    }
}

impl TermsReader for Sources {
    fn read(&self, document: &str) -> Result<Terms, ControlError> {
        match Self::read(self, document) {
            Ok(settings) => Ok(settings.terms()),
            Err(fault) => {
                let is_its_own = matches!(
                    &fault,
                    Fault::Settings { origin, .. } if origin.starts_with(DOCUMENT)
                );
                // Of a file that can't be right, whoever writes the document can't know.
                let code = if is_its_own {
                    Code::InvalidRequest
                } else {
                    Code::Conflict
                };
                Err(ControlError {
                    code,
                    message: fault.to_string(),
                    hint: fault.hint(),
                })
            }
        }
    }
}

/// Reads a file of settings.
fn read_file(path: &Path, origin: &str) -> Result<String, Fault> {
    let wrong = |problem: String, hint: Option<&str>| Fault::Settings {
        origin: origin.to_owned(),
        problem,
        hint: hint.map(str::to_owned),
    };
    let longest = u64::try_from(LONGEST_SETTINGS).unwrap_or(u64::MAX);
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(longest + 1).read_to_string(&mut text))
        .map_err(|error| {
            let hint = "name a file that is there and that you may read: --config FILE";
            wrong(format!("can't be read: {error}"), Some(hint))
        })?;
    if text.len() > LONGEST_SETTINGS {
        return Err(wrong("is larger than 1 MiB".to_owned(), None));
    }
    Ok(text)
}

fn parsed(origin: &str, text: &str) -> Result<SettingsFile, Fault> {
    read_yaml(origin, text).map_err(|Misread { origin, problem }| Fault::Settings {
        origin,
        problem,
        hint: Some(EXAMPLE.to_owned()),
    })
}

/// The cluster's document: what is of one machine may not stand there.
fn of_the_cluster(text: &str) -> Result<SettingsFile, Fault> {
    if text.trim().is_empty() {
        return Ok(SettingsFile::default());
    }
    let file = parsed(DOCUMENT, text)?;
    if file.weights.hub_token_file.is_some() {
        return Err(Fault::Settings {
            origin: DOCUMENT.to_owned(),
            problem: "weights.hub_token_file: it names a file of one machine".to_owned(),
            hint: Some("write it into the settings file there".to_owned()),
        });
    }
    Ok(file)
}

/// What a file and flags say with what the document says over it, checked.
fn together(file: Said, flags: &[String], document: Said) -> Result<Settings, Fault> {
    let of_document: BTreeSet<String> = names(&document.file).collect();
    let engines_of_document: BTreeSet<EngineName> = document.file.engines.keys().cloned().collect();
    let said_there = SaidIn::of(&document.file);
    let (file_origin, mut merged) = (file.origin, file.file);
    let mut definitions: Vec<(String, String, ModelDefinition)> = Vec::new();
    for (index, definition) in std::mem::take(&mut merged.models).into_iter().enumerate() {
        if !of_document.contains(&definition.name) {
            definitions.push((file_origin.clone(), format!("models[{index}]."), definition));
        }
    }
    let of_file = definitions.len();
    for (index, definition) in document.file.models.iter().cloned().enumerate() {
        definitions.push((DOCUMENT.to_owned(), format!("models[{index}]."), definition));
    }
    let merged = merged.under(document.file);
    let origin_of = |in_document: bool| match in_document || file_origin.is_empty() {
        true => DOCUMENT.to_owned(),
        false => file_origin.clone(),
    };
    let stray = |in_document: bool| {
        let origin = origin_of(in_document);
        move |error: DefinitionError| wrong(&origin, error.to_string(), error.hint)
    };
    let pools = Pools::checked(merged.pools).map_err(stray(said_there.pools))?;
    let mut declared = Vec::new();
    for (origin, path, definition) in definitions {
        let misplaced =
            |error: DefinitionError| wrong(&origin, format!("{path}{error}"), error.hint);
        let model = Model::try_from(definition).map_err(misplaced)?;
        check_pools(&model, &pools).map_err(misplaced)?;
        declared.push(Declared {
            origin,
            path,
            model,
        });
    }
    let is_named = |name: &str| of_document.contains(name);
    let of_flags = flags.iter().map(|text| {
        Ok(Declared {
            origin: format!("--model {text}"),
            path: String::new(),
            model: model_flag(text)?,
        })
    });
    let mut of_flags = of_flags.collect::<Result<Vec<Declared>, Fault>>()?;
    // Nobody has written the starter model there.
    of_flags.retain(|one| {
        !(one.origin.ends_with(starter::FLAG) && is_named(one.model.name().as_str()))
    });
    declared.splice(of_file..of_file, of_flags);
    let mut engines: BTreeMap<EngineName, WantedEngine> = BTreeMap::new();
    for (name, settings) in merged.engines {
        let path = format!("engines.{name}");
        let stray = stray(engines_of_document.contains(&name));
        let wanted = settings.wanted(&name, &path).map_err(&stray)?;
        if let Some(pool) = &wanted.pool {
            pools
                .require(pool, &format!("{path}.pool"))
                .map_err(&stray)?;
        }
        engines.insert(name, wanted);
    }
    for Declared {
        origin,
        path,
        model,
    } in &declared
    {
        for (number, profile) in model.profiles().iter().enumerate() {
            let name = &profile.engine;
            if !KNOWN_ENGINES.contains(&name.as_str()) && !engines.contains_key(name) {
                let problem = format!("{path}profiles[{number}].engine: {name} is not an engine");
                return Err(wrong(origin, problem, Some(known_engines())));
            }
        }
    }
    let pacing = merged.scaling.checked();
    let queue = merged.queue.checked();
    let weights = merged.weights.checked();
    let guard = merged.guard.map(guard::checked).transpose();
    let (models, origins): (Vec<Model>, Vec<String>) = declared
        .into_iter()
        .map(|one| (one.model, one.origin))
        .unzip();
    refuse_names_of_two(&models, &origins)?;
    refuse_wrong_fallbacks(&models, &origins)?;
    Ok(Settings {
        models,
        engines,
        pools,
        pacing: pacing.map_err(stray(said_there.scaling))?,
        queue: queue.map_err(stray(said_there.queue))?,
        policy: merged.placement.policy.unwrap_or_default(),
        weights: weights.map_err(|(field, problem, hint)| {
            let origin = origin_of(said_there.weights);
            wrong(&origin, format!("weights.{field}: {problem}"), hint)
        })?,
        guard: guard.map_err(stray(said_there.guard))?,
    })
}

/// Which parts are said at all.
struct SaidIn {
    pools: bool,
    scaling: bool,
    queue: bool,
    weights: bool,
    guard: bool,
}

impl SaidIn {
    fn of(file: &SettingsFile) -> Self {
        let SettingsFile {
            pools,
            scaling,
            queue,
            weights,
            guard,
            ..
        } = file;
        Self {
            pools: !pools.is_empty(),
            scaling: *scaling != Default::default(),
            queue: *queue != Default::default(),
            weights: *weights != Default::default(),
            guard: guard.is_some(),
        }
    }
}

/// Refuses two models that answer to one name; the second is named, with where it stands.
fn refuse_names_of_two(models: &[Model], origins: &[String]) -> Result<(), Fault> {
    let mut taken: BTreeMap<&str, (&Model, &String)> = BTreeMap::new();
    for (model, origin) in models.iter().zip(origins) {
        for name in std::iter::once(model.name()).chain(model.aliases()) {
            let Some((other, first)) = taken.insert(name.as_str(), (model, origin)) else {
                continue;
            };
            let whose = if other.name() == name {
                "a model".to_owned()
            } else {
                format!("the model {}", other.name())
            };
            let place = if first == origin {
                "above it".to_owned()
            } else {
                format!("in {first}")
            };
            return Err(Fault::Settings {
                origin: origin.clone(),
                problem: format!(
                    "the name {name} is declared twice: {whose} {place} answers to it already"
                ),
                hint: Some(
                    "give each model a name and aliases of its own, or remove one of the two"
                        .to_owned(),
                ),
            });
        }
    }
    Ok(())
}

/// Refuses a fallback that is no declared model, and a circle of them; all models are looked at together.
fn refuse_wrong_fallbacks(models: &[Model], origins: &[String]) -> Result<(), Fault> {
    let all: Vec<&Model> = models.iter().collect();
    let Some(FallbackFault { at, error }) = fallback_faults(&all).into_iter().next() else {
        return Ok(());
    };
    Err(Fault::Settings {
        origin: origins.get(at).cloned().unwrap_or_default(),
        problem: format!("models[{at}].{error}"),
        hint: error.hint,
    })
}

fn names(file: &SettingsFile) -> impl Iterator<Item = String> {
    file.models.iter().map(|model| model.name.clone())
}

fn wrong(origin: &str, problem: String, hint: Option<String>) -> Fault {
    Fault::Settings {
        origin: origin.to_owned(),
        problem,
        hint,
    }
}

const DOCUMENT: &str = "document";
const EXAMPLE: &str = "settings are such as `models: [{name: tiny, source: file:/models/tiny.gguf, \
                       profiles: [{memory: 1GiB}]}]`";
