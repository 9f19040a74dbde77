//! How settings are written, in a file and in the cluster's document, and how one stands over the other.

use std::{collections::BTreeMap, path::PathBuf};

use llmgw_core::{
    cluster::{catalog::ModelDefinition, guard::PolicyDefinition, pool::Labels, weights::HubToken},
    id::EngineName,
};
use llmgw_sched::planner::policy::PolicyName;
use serde::Deserialize;

use super::{
    demand::{QueueFile, ScalingFile},
    engines::EngineSettings,
};
use crate::{data_dir::read_small, weights::WeightsSettings};

/// Settings as they are written. What is not said is absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsFile {
    #[serde(default)]
    pub(super) models: Vec<ModelDefinition>,
    #[serde(default)]
    pub(super) engines: BTreeMap<EngineName, EngineSettings>,
    #[serde(default)]
    pub(super) pools: BTreeMap<String, Labels>,
    #[serde(default)]
    pub(super) scaling: ScalingFile,
    #[serde(default)]
    pub(super) queue: QueueFile,
    #[serde(default)]
    pub(super) placement: PlacementFile,
    #[serde(default)]
    pub(super) weights: WeightsFile,
    pub(super) guard: Option<PolicyDefinition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementFile {
    pub(super) policy: Option<PolicyName>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct WeightsFile {
    /// Whether those that were used longest ago may be removed when there is no room for others.
    pub(super) evict: Option<bool>,
    /// The address that `mirror:` sources are fetched beneath.
    pub(super) mirror: Option<String>,
    /// The hub's address.
    pub(super) hub: Option<String>,
    /// A file with the token that gated repositories are asked with.
    pub(super) hub_token_file: Option<PathBuf>,
}

impl SettingsFile {
    /// This, with what `over` says in the place of what is said here: engines and pools one by one, the guard's policy whole,
    /// everything else field by field. Models are for whoever knows where each stands.
    pub(super) fn under(self, over: Self) -> Self {
        let Self {
            models,
            mut engines,
            mut pools,
            scaling,
            queue,
            placement,
            weights,
            guard,
        } = self;
        engines.extend(over.engines);
        pools.extend(over.pools);
        Self {
            models,
            engines,
            pools,
            scaling: scaling.under(over.scaling),
            queue: queue.under(over.queue),
            placement: PlacementFile {
                policy: over.placement.policy.or(placement.policy),
            },
            weights: WeightsFile {
                evict: over.weights.evict.or(weights.evict),
                mirror: over.weights.mirror.or(weights.mirror),
                hub: over.weights.hub.or(weights.hub),
                hub_token_file: over.weights.hub_token_file.or(weights.hub_token_file),
            },
            guard: over.guard.or(guard),
        }
    }
}

impl WeightsFile {
    /// Reads the token, and checks the rest. Of what is wrong: the field, what it is, and what would help.
    pub(super) fn checked(self) -> Result<WeightsSettings, (&'static str, String, Option<String>)> {
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
            evict: evict.unwrap_or(false),
            mirror,
            hub,
            hub_token,
        })
    }
}
