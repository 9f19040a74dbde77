//! From LiteLLM's proxy: its `config.yaml`, and what its admin API answered, as our settings and accounts.
//!
//! What is carried is never wider than it was there: a limit that has no form here becomes a tighter one, and whoever
//! would lose a limit is left out. What is not carried, and what became something else, is told with its place. Values are
//! never told, as each of them may be a secret: only paths, and the names of models, levels and variables.
//!
//! | there | here |
//! |---|---|
//! | `model_list`, by `model_name` | models, with a source where the weights can be named |
//! | `input_cost_per_token` and its like | prices of a million tokens |
//! | `model_group_alias`, groups of the same weights | aliases |
//! | `fallbacks`, `default_fallbacks` | fallbacks |
//! | organisations, teams, projects | levels |
//! | keys: their names, limits, ends | keys; each gets a new secret |

mod accounts;
mod document;
mod limits;
mod models;
mod routing;
mod sections;
mod told;
mod weights;

use std::collections::BTreeMap;

use llmgw_core::{
    api::{
        tenancy::{KeyRequest, LevelRequest},
        usage::PriceRequest,
    },
    clock::Timestamp,
    cluster::catalog::ModelDefinition,
};
use serde::Serialize;

use self::{
    accounts::Accounts,
    document::{Fields, Node, Place},
    models::Models,
    told::Told,
};
pub use self::{
    document::Misread,
    told::{Fate, Remark},
};

/// A file: the proxy's configuration, or what its admin API answered.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// What it is called in what is told of it.
    pub name: &'a str,
    /// YAML or JSON.
    pub text: &'a str,
}

/// What is known besides the files.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sources of models, by name: for those that the configuration names no weights of, or others than they should have.
    pub sources: BTreeMap<String, String>,
    /// The time, in which keys have ended or not.
    pub now: Timestamp,
}

/// What became of it all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Imported {
    /// The settings file.
    pub settings: SettingsFile,
    /// What the admin API is to be asked for.
    pub accounts: Orders,
    /// What was not carried, or became something else; in the order of files and lines.
    pub remarks: Vec<Remark>,
}

/// The part of a settings file that is made of a configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SettingsFile {
    /// Models that should run.
    pub models: Vec<ModelDefinition>,
}

/// Requests to the admin API, each list in the order in which it is to be carried out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Orders {
    /// Levels, each after the one that it is in.
    pub levels: Vec<LevelRequest>,
    /// Keys; each gets a new secret.
    pub keys: Vec<KeyRequest>,
    /// What models cost.
    pub prices: Vec<PriceRequest>,
}

/// Reads what is given, and makes our own of it.
///
/// # Errors
/// When a file is neither a configuration nor an answer of the admin API, or can't be read as YAML or JSON. What is in it is
/// never an error: it is told.
pub fn read(given: &[Given<'_>], options: &Options) -> Result<Imported, Misread> {
    let mut told = Told::default();
    let mut models = Models::default();
    let mut accounts = Accounts::default();
    let mut documents = Vec::new();
    for file in given {
        documents.push((file.name, Node::parse(file)?));
    }
    for (file, document) in &documents {
        let place = Place::of(file);
        if sections::is_configuration(document) {
            let Some(fields) = Fields::of(document, &place) else {
                continue;
            };
            sections::read(fields, &mut models, &mut accounts, &mut told);
        } else if !accounts.collect(document, &place, &mut told) {
            return Err(Misread {
                origin: (*file).to_owned(),
                problem: NEITHER.to_owned(),
            });
        }
    }
    let (models, prices) = models.finish(options, &mut told);
    let files: Vec<&str> = given.iter().map(|file| file.name).collect();
    let (levels, keys) = accounts.finish(options.now, &mut told);
    Ok(Imported {
        settings: SettingsFile { models },
        accounts: Orders {
            levels,
            keys,
            prices,
        },
        remarks: told.finish(&files),
    })
}

const NEITHER: &str = "it is neither LiteLLM's configuration (model_list, litellm_settings, …) nor what its /key/list, \
                       /team/list, /project/list or /organization/list answered";

#[cfg(test)]
mod tests;
