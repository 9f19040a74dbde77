//! An engine that an operator describes.

use std::time::Duration;

use llmgw_core::{
    cluster::{
        engine::{
            custom::{CustomEngine, StopSignal},
            template::Placeholder,
        },
        replica::ReplicaSpec,
    },
    id::{EngineName, ReplicaId},
};
use serde_json::Value;

use super::{COMPILING, Engine, EngineCommand, HOST, LaunchRequest, WeightsForm, metrics};

/// Runs what the description says.
#[derive(Debug)]
pub(super) struct DescribedEngine {
    name: EngineName,
    description: CustomEngine,
}

// === impl DescribedEngine ===

impl DescribedEngine {
    pub(super) fn new(name: EngineName, description: CustomEngine) -> Self {
        Self { name, description }
    }
}

impl Engine for DescribedEngine {
    fn name(&self) -> &EngineName {
        &self.name
    }

    fn weights(&self) -> WeightsForm {
        WeightsForm::Any
    }

    fn command(&self, request: &LaunchRequest<'_>) -> EngineCommand {
        let LaunchRequest {
            spec,
            weights,
            port,
            ..
        } = request;
        let value = |place| match place {
            Placeholder::Model => weights.display().to_string(),
            Placeholder::Port => port.to_string(),
            other => of_replica(other, spec),
        };
        let mut env = Vec::new();
        let described = self.description.env().iter();
        env.extend(described.map(|(name, text)| (name.into(), text.fill(value).into())));
        EngineCommand {
            program: self.description.program().into(),
            args: self
                .description
                .args()
                .iter()
                .map(|arg| arg.fill(value).into())
                .collect(),
            env,
        }
    }

    fn warm_up(&self) -> Duration {
        // Nobody knows what it is.
        COMPILING
    }

    fn stop_signal(&self) -> Option<StopSignal> {
        Some(self.description.stop())
    }

    fn health_path(&self) -> &str {
        self.description.health()
    }

    fn ready_path(&self) -> &str {
        self.description.ready()
    }

    fn identity_path(&self) -> Option<&str> {
        self.description.identity()
    }

    fn is_identity(&self, body: &[u8], replica: ReplicaId) -> bool {
        contains(body, &replica.to_string())
    }

    fn probe_request(&self, spec: &ReplicaSpec) -> Option<(&str, Value)> {
        let probe = self.description.probe()?;
        Some((probe.path(), probe.body(&|place| of_replica(place, spec))))
    }

    fn probe_answered(&self, body: &[u8]) -> bool {
        let probe = self.description.probe();
        probe
            .and_then(|probe| probe.expect())
            .is_none_or(|expected| contains(body, expected))
    }

    fn busy_path(&self) -> Option<&str> {
        Some(self.description.metrics()?.path.as_str())
    }

    fn busy(&self, body: &[u8]) -> Option<usize> {
        let metrics = self.description.metrics()?;
        match &metrics.running {
            Some(name) => metrics::count(body, name),
            None => USUAL.iter().find_map(|name| metrics::count(body, name)),
        }
    }
}

/// What a place means to a replica, wherever it runs; a path or a port is not known from that.
fn of_replica(place: Placeholder, spec: &ReplicaSpec) -> String {
    match place {
        Placeholder::Name => spec.model.to_string(),
        Placeholder::Replica => spec.id.to_string(),
        Placeholder::Host => HOST.to_owned(),
        Placeholder::Context => spec.profile.context.to_string(),
        Placeholder::Parallel => spec.profile.parallel.to_string(),
        Placeholder::Gpus => {
            let numbers: Vec<String> = spec.gpus.iter().map(ToString::to_string).collect();
            numbers.join(",")
        }
        Placeholder::Model | Placeholder::Port => String::new(),
    }
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len().max(1))
        .any(|part| part == text.as_bytes())
}

/// What engines call the number of requests that they compute, where the description does not say.
const USUAL: [&str; 3] = [
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
];

#[cfg(test)]
mod tests;
