//! `model_list`: deployments by the name that clients call, as models with a source, aliases and prices.

use std::collections::{BTreeMap, BTreeSet};

use llmgw_core::{
    api::usage::PriceRequest,
    cluster::catalog::{Model, ModelDefinition, OneOrMany},
    cluster::tenancy::Price,
    id::ModelName,
    units::Micros,
};

use super::{
    Options,
    document::{Fields, Node, Place, Value},
    routing::Routing,
    told::Told,
    weights::{self, GUESSED, IF_ONE_FILE, Named, Nameless},
};

/// Models, as they are gathered from all files.
#[derive(Debug, Default)]
pub(super) struct Models {
    deployments: Vec<Deployment>,
    pub(super) routing: Routing,
}

/// One of `model_list`.
#[derive(Clone, Debug)]
struct Deployment {
    place: Place,
    node: Node,
    group: String,
    weights: Result<Named, Nameless>,
    context: Option<u64>,
    price: Option<(Micros, Option<Micros>, Micros)>,
}

/// Deployments of one name, as one model.
#[derive(Debug)]
struct Group {
    definition: ModelDefinition,
    price: Option<(Micros, Option<Micros>, Micros)>,
}

// === impl Models ===

impl Models {
    pub(super) fn read(&mut self, list: &Node, place: &Place, told: &mut Told) {
        let Some(nodes) = list.list() else {
            told.left(place, list, "it is no list", "");
            return;
        };
        for (index, node) in nodes.iter().enumerate() {
            let place = place.index(index);
            let deployment = Deployment::read(node, &place, told);
            self.deployments.extend(deployment);
        }
    }

    /// The definitions, each of which can be right, and the prices of their models.
    pub(super) fn finish(
        self,
        options: &Options,
        told: &mut Told,
    ) -> (Vec<ModelDefinition>, Vec<PriceRequest>) {
        let Self {
            deployments,
            routing,
        } = self;
        let mut order: Vec<String> = Vec::new();
        let mut by_group: BTreeMap<String, Vec<Deployment>> = BTreeMap::new();
        for deployment in deployments {
            let group = by_group.entry(deployment.group.clone()).or_insert_with(|| {
                order.push(deployment.group.clone());
                Vec::new()
            });
            group.push(deployment);
        }
        let mut groups: Vec<Group> = Vec::new();
        for name in &order {
            let deployments = by_group.remove(name).unwrap_or_default();
            let said = options
                .sources
                .get(name)
                .map(|source| weights::said(source));
            let Some(group) = Group::of(name, &deployments, said, told) else {
                continue;
            };
            let Some(first) = deployments.first() else {
                continue;
            };
            // The same weights under another name are not run twice.
            let twin = groups.iter_mut().find(|other| {
                let (one, two) = (&other.definition, &group.definition);
                one.source == two.source
                    && one.profiles == two.profiles
                    && other.price == group.price
            });
            match twin {
                Some(twin) => {
                    let why = format!(
                        "it is an alias of {}, which has the same weights",
                        twin.definition.name
                    );
                    told.changed(&first.place, &first.node, why, "");
                    twin.definition.aliases.push(name.clone());
                }
                None => groups.push(group),
            }
        }
        let prices = groups.iter().filter_map(Group::price).collect();
        let mut definitions: Vec<ModelDefinition> =
            groups.into_iter().map(|group| group.definition).collect();
        routing.finish(&mut definitions, told);
        (definitions, prices)
    }
}

// === impl Deployment ===

impl Deployment {
    fn read(node: &Node, place: &Place, told: &mut Told) -> Option<Self> {
        let Some(mut fields) = Fields::of(node, place) else {
            told.left(place, node, "it is no deployment", "");
            return None;
        };
        let name_at = place.key("model_name");
        let Some(name) = fields.take("model_name") else {
            told.left(place, node, "it has no model_name", "");
            return None;
        };
        if told.is_variable(&name_at, name) {
            return None;
        }
        let Some(group) = name.text() else {
            told.left(&name_at, name, "it is no name", "");
            return None;
        };
        let params_at = place.key("litellm_params");
        let params = fields.take("litellm_params");
        let Some(mut params) = params.and_then(|params| Fields::of(params, &params_at)) else {
            told.left(place, node, "it has no litellm_params", "");
            return None;
        };
        let model_at = params_at.key("model");
        let Some(model) = params.take("model") else {
            told.left(&params_at, node, "it has no model", "");
            return None;
        };
        if told.is_variable(&model_at, model) {
            return None;
        }
        let Some(text) = model.text() else {
            told.left(&model_at, model, "it is no name", "");
            return None;
        };
        let provider = params.take("custom_llm_provider").and_then(Node::text);
        let is_own = params.take("api_base").is_some();
        let weights = weights::named(group, text, provider, is_own);
        let info_at = place.key("model_info");
        let mut info = fields
            .take("model_info")
            .and_then(|info| Fields::of(info, &info_at));
        let price = price(&mut params, info.as_mut(), told);
        let context = params.take("num_ctx");
        let context = context.or_else(|| info.as_mut()?.take("max_input_tokens"));
        if weights.is_ok() {
            // Of what is not carried at all, not each part is told.
            not_carried(&params, told);
            if let Some(info) = &mut info {
                info.pass_over(&DESCRIBE);
                rest(
                    info,
                    "llmgw reads what a model can do from its weights",
                    "",
                    told,
                );
            }
            rest(
                &fields,
                "llmgw limits keys and levels, not deployments",
                LIMIT_THEM,
                told,
            );
        }
        Some(Self {
            place: place.clone(),
            node: node.clone(),
            group: group.to_owned(),
            weights,
            context: context.and_then(Node::number).and_then(whole),
            price,
        })
    }
}

/// Prices are of a token in dollars there, and of a million in millionths here.
fn price<'a>(
    params: &mut Fields<'a>,
    info: Option<&mut Fields<'a>>,
    told: &mut Told,
) -> Option<(Micros, Option<Micros>, Micros)> {
    let mut found: BTreeMap<&str, (Place, &'a Node, Option<Micros>)> = BTreeMap::new();
    for fields in [Some(params), info].into_iter().flatten() {
        for key in [PROMPT, COMPLETION, CACHED] {
            let place = fields.place.key(key);
            let Some(node) = fields.take(key) else {
                continue;
            };
            if !told.is_variable(&place, node) {
                let amount = node.number().and_then(of_a_million);
                found.entry(key).or_insert((place, node, amount));
            }
        }
    }
    let mut amount = |key: &str| match found.get(key) {
        Some((place, node, None)) => {
            told.left(
                place,
                node,
                "it is no price of a token that llmgw can keep",
                "",
            );
            None
        }
        Some((.., amount)) => *amount,
        None => None,
    };
    match (amount(PROMPT), amount(CACHED), amount(COMPLETION)) {
        (Some(prompt), cached, Some(completion)) => Some((prompt, cached, completion)),
        _ => {
            // LiteLLM has the other from a list of its own.
            let mut alone = [PROMPT, COMPLETION, CACHED].into_iter();
            if let Some((place, node, Some(_))) = alone.find_map(|key| found.get(key)) {
                let why = "a price is that of prompts and of answers, and one of them is not said";
                told.left(place, node, why, SET_PRICE);
            }
            None
        }
    }
}

/// What a million tokens cost, in millionths, of what one costs.
fn of_a_million(dollars: f64) -> Option<Micros> {
    let micros = (dollars * 1e12).round();
    #[expect(clippy::cast_precision_loss, reason = "2^50 is a whole f64")]
    let most = Price::MOST.0 as f64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is a whole number below 2^53"
    )]
    (0.0..=most)
        .contains(&micros)
        .then_some(Micros(micros as i64))
}

/// A whole number that is not negative.
pub(super) fn whole(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=9e15).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number below 2^53"
    )]
    fits.then_some(number as u64)
}

/// What is left of a deployment's parameters, each with its reason.
fn not_carried(params: &Fields<'_>, told: &mut Told) {
    for (key, node) in params.rest() {
        let place = params.place.key(key);
        let (why, help) = match key {
            "rpm"
            | "tpm"
            | "itpm"
            | "otpm"
            | "max_budget"
            | "budget_duration"
            | "default_api_key_tpm_limit"
            | "default_api_key_rpm_limit" => {
                ("llmgw limits keys and levels, not deployments", LIMIT_THEM)
            }
            "max_parallel_requests" => (
                "how many requests run at once is the profile's, as memory is kept for each",
                "write profiles: [{parallel: NUMBER}]",
            ),
            "weight" | "order" => (
                "replicas of a model are alike, and the least loaded one is asked",
                "",
            ),
            "timeout" | "stream_timeout" | "max_retries" => (
                "time-outs and retries are those of the gateway, for all models",
                "",
            ),
            _ if is_secret(key) => (
                "it opens a server that llmgw does not ask: it runs the model itself",
                "",
            ),
            _ if key.contains("cost") => (
                "a price here is of tokens of prompts, cached prompts and answers",
                "",
            ),
            _ => (
                "llmgw sends what the client asked for, with no parameters of its own",
                "set it in the client",
            ),
        };
        told.left(&place, node, why, help);
    }
}

pub(super) fn is_secret(key: &str) -> bool {
    ["key", "token", "secret", "password", "credential", "auth"]
        .iter()
        .any(|part| key.to_ascii_lowercase().contains(part))
}

fn rest(fields: &Fields<'_>, why: &str, help: &str, told: &mut Told) {
    for (key, node) in fields.rest() {
        told.left(&fields.place.key(key), node, why, help);
    }
}

// === impl Group ===

impl Group {
    /// The model of these deployments, which have one name; `said` is the source that was given for it.
    fn of(
        name: &str,
        deployments: &[Deployment],
        said: Option<Named>,
        told: &mut Told,
    ) -> Option<Self> {
        let first = deployments.first()?;
        let is_said = said.is_some();
        let named = said.or_else(|| {
            let mut named = deployments.iter().flat_map(|one| &one.weights);
            named.next().cloned()
        });
        let Some(named) = named else {
            let mut told_already = BTreeSet::new();
            for one in deployments {
                if let Err(Nameless { why, help }) = &one.weights
                    && told_already.insert(why)
                {
                    told.left(&one.place, &one.node, why, help);
                }
            }
            return None;
        };
        let alike = |one: &&Deployment| is_said || one.weights.as_ref().ok() == Some(&named);
        let replicas = deployments.iter().filter(alike).count();
        let chosen = deployments.iter().find(alike).unwrap_or(first);
        for other in deployments.iter().filter(|one| !alike(one)) {
            let why = format!("{name} has one source of weights: another deployment's");
            let help = "give it a model_name of its own, and name that in fallbacks";
            told.left(&other.place, &other.node, why, help);
        }
        for other in deployments.iter().filter(|one| one.price != chosen.price) {
            let why = format!("{name} has one price: that of another deployment");
            told.left(&other.place, &other.node, why, SET_PRICE);
        }
        let mut profile = named.profile;
        profile.context = chosen.context.filter(|context| CONTEXT.contains(context));
        let definition = ModelDefinition {
            name: name.to_owned(),
            description: String::new(),
            aliases: Vec::new(),
            fallbacks: Vec::new(),
            source: OneOrMany::One(named.source),
            sha256: None,
            size: None,
            files: Vec::new(),
            replicas: (replicas > 1).then(|| u32::try_from(replicas).unwrap_or(u32::MAX)),
            min_replicas: None,
            max_replicas: None,
            idle_timeout: None,
            profiles: vec![profile],
        };
        if let Err(error) = Model::try_from(definition.clone()) {
            let help = error.hint.clone().unwrap_or_default();
            told.left(&chosen.place, &chosen.node, error.to_string(), &help);
            return None;
        }
        if !is_said {
            told.changed(&chosen.place, &chosen.node, GUESSED, IF_ONE_FILE);
        }
        Some(Self {
            definition,
            price: chosen.price,
        })
    }

    fn price(&self) -> Option<PriceRequest> {
        let (prompt, cached, completion) = self.price?;
        Some(PriceRequest {
            model: self.definition.name.parse::<ModelName>().ok()?,
            prompt,
            cached,
            completion,
        })
    }
}

impl Value {
    /// The texts of a list of texts; what else is in it is passed over.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self {
            Self::List(nodes) => nodes.iter().filter_map(Node::text).collect(),
            Self::Text(text) => vec![text],
            _ => Vec::new(),
        }
    }
}

const PROMPT: &str = "input_cost_per_token";
const COMPLETION: &str = "output_cost_per_token";
const CACHED: &str = "cache_read_input_token_cost";
/// What a profile may have.
const CONTEXT: std::ops::RangeInclusive<u64> = 256..=16_777_216;
const SET_PRICE: &str = "`llmgw ctl prices set` sets a model's price";
const LIMIT_THEM: &str =
    "`llmgw ctl tenants limit` and `llmgw ctl keys create` limit levels and keys";
/// What says nothing that would be lost.
const DESCRIBE: [&str; 12] = [
    "id",
    "db_model",
    "mode",
    "base_model",
    "max_tokens",
    "max_output_tokens",
    "created_at",
    "created_by",
    "updated_at",
    "updated_by",
    "description",
    "tier",
];
