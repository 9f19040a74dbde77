//! What holds, by a file, the `--model` flag, and over them the cluster's document: which is written as a file is.
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

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    cluster::{
        catalog::Model,
        engine::{EngineSource, WantedEngine},
        guard::Policy,
        pool::Pools,
        weights::WeightsOrders,
    },
    id::EngineName,
};
use llmgw_sched::{controller::Terms, planner::policy::PolicyName, reconcile::Pacing};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

pub use self::{
    demand::QueueBounds,
    flag::model_flag,
    keys::{KEYS, Key, KeyOf},
    sources::Sources,
};
use crate::weights::WeightsSettings;

mod demand;
mod engines;
mod file;
mod flag;
mod guard;
mod keys;
mod sources;
pub(crate) mod watch;

/// What files, flags and the cluster's document say, checked.
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

impl Settings {
    /// The same, as the controller is told it.
    #[must_use]
    pub fn terms(&self) -> Terms {
        let weights = &self.weights;
        Terms {
            engines: self.wanted_engines(),
            declared: self.models.clone(),
            pools: self.pools.clone(),
            pacing: self.pacing,
            queue: Some(self.queue.into()),
            policy: self.policy,
            weights: WeightsOrders {
                evict: weights.evict,
                mirror: weights.mirror.clone(),
                hub_token: weights.hub_token.clone(),
                ..WeightsOrders::default()
            },
            hub: weights.hub.clone(),
            guard: self.guard.clone(),
        }
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

const LLAMACPP: &str = "llamacpp";

#[cfg(test)]
mod tests;
