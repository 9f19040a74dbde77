//! What is ordered besides models and keys: engines, nodes, holds, measurements, tokens.

use clap::{Args, Subcommand};
use llmgw_core::{
    api::{
        admin::Retried,
        frozen::Frozen,
        orders::{
            EngineChosen, EngineRequest, HoldLifted, HoldRequest, NodeStateRequest, NodeUse,
            RollRequest, ScaleRequest, Scaled, TokenRevoked,
        },
    },
    cluster::{
        account::Role,
        capacity::Measurement,
        catalog::{Model, ModelDefinition},
        node::NodeState,
        order::HoldScope,
    },
    control::{Control, named_node},
    id::{EngineName, HoldName, ModelName, ProfileName, TokenId},
    terminal::one_line,
    units::{Span, Tokens},
};

use super::tables::{self, Messages};
use crate::{
    failure::{Cause, Failure},
    output::{Format, Shown},
};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum EnginesOrder {
    /// Have every node get an engine so, over what the settings say
    ///
    /// What runs goes on until the other build is installed, and for good when it never is.
    Set {
        /// The engine and its version, such as llamacpp=b10991; the name alone to choose a source or a variant
        #[arg(value_name = "ENGINE[=VERSION]")]
        choice: String,
        /// Where builds come from: auto, github, wheel, path:/PATH or lock:/PATH
        #[arg(long)]
        source: Option<String>,
        /// Which form, such as cpu or cuda-13
        #[arg(long)]
        variant: Option<String>,
    },
    /// Take a choice back: what the settings say is in force again
    Unset {
        /// The engine
        name: EngineName,
    },
}

#[derive(Args, Clone, Debug)]
pub(super) struct ScaleArgs {
    /// A model or an alias
    name: ModelName,
    /// Always so many
    #[arg(conflicts_with_all = ["min", "max"], required_unless_present_any = ["min", "max", "idle_timeout"])]
    replicas: Option<u32>,
    /// The fewest; with 0, a request starts the first one
    #[arg(long)]
    min: Option<u32>,
    /// The most; follows --min when left out
    #[arg(long)]
    max: Option<u32>,
    /// How long a replica beyond the fewest may go without a request, such as 15m
    #[arg(long, value_name = "TIME")]
    idle_timeout: Option<Span>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct NodeArgs {
    /// The node's host name or id
    node: String,
    /// Why, for people
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Args, Clone, Debug)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Stop what has no room elsewhere, instead of waiting for that: its requests have a minute to end
    #[arg(long)]
    force: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct RollArgs {
    /// A model or an alias
    name: ModelName,
    /// Stop an old replica first where there is no room for both: its requests have a minute to end
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum HoldOrder {
    /// Place and move nothing in a facility, a pool or on a node; one of that name is replaced
    Set(HoldArgs),
    /// Lift a hold
    Lift {
        /// The hold
        name: HoldName,
    },
}

#[derive(Args, Clone, Debug)]
pub(super) struct HoldArgs {
    /// What it is lifted by
    name: HoldName,
    /// On every node with this label `facility`
    #[arg(long, group = "scope")]
    facility: Option<String>,
    /// On every node of this pool
    #[arg(long, group = "scope")]
    pool: Option<String>,
    /// On this node: its host name or id
    #[arg(long, group = "scope")]
    node: Option<String>,
    /// Why, for people
    #[arg(long, default_value = "")]
    reason: String,
    /// How long, such as 2h; until it is lifted when left out
    #[arg(long = "for", value_name = "TIME")]
    lasts: Option<Span>,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum CapacityOrder {
    /// Keep a measurement, in the place of the last one of that model and profile
    Record(RecordArgs),
}

#[derive(Args, Clone, Debug)]
pub(super) struct RecordArgs {
    /// A model or an alias
    model: ModelName,
    /// The profile that it ran on
    #[arg(long)]
    profile: ProfileName,
    /// Requests at the same time that one replica answered within the goal
    #[arg(long)]
    concurrency: u32,
    /// Tokens of answers in a second, over all those requests
    #[arg(long)]
    tokens_per_second: u32,
    /// The time to the first token that 95 of 100 requests stayed below, in milliseconds
    #[arg(long, value_name = "MS")]
    time_to_first_token: Option<u32>,
    /// The time between two tokens that 95 of 100 stayed below, in milliseconds
    #[arg(long, value_name = "MS")]
    inter_token: Option<u32>,
    /// Tokens of each prompt
    #[arg(long)]
    prompt_tokens: Option<u64>,
    /// Tokens of each answer
    #[arg(long)]
    completion_tokens: Option<u64>,
    /// The goal, for people
    #[arg(long, default_value = "")]
    goal: String,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TokenOrder {
    /// Make a token; its secret is shown this once
    Create {
        /// Whose it is; stands in the audit log
        name: String,
        /// What its holder may do: viewer sees, operator orders, admin says who may
        #[arg(long, default_value = "viewer")]
        role: Role,
    },
    /// Revoke a token: it opens nothing from now on
    Revoke {
        /// The token's id
        id: TokenId,
    },
}

pub(super) async fn engines(
    control: &Control,
    format: Format,
    order: Option<EnginesOrder>,
    messages: Messages,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let engines = control.engines.engines().await?;
            let table = |engines: &[_]| tables::engines(engines, messages);
            format.list(&engines, table, "no engine is wanted")
        }
        Some(EnginesOrder::Set {
            choice,
            source,
            variant,
        }) => {
            let (name, version) = match choice.split_once('=') {
                Some((name, version)) => (name, Some(version.to_owned())),
                None => (choice.as_str(), None),
            };
            let name = name
                .parse()
                .map_err(|error| Failure::new(Cause::Usage, format!("{error}")))?;
            let request = EngineRequest {
                name,
                version,
                source,
                variant,
            };
            let chosen = control.engines.choose(request).await?;
            format.show(&EngineChosen { chosen }, |answer| {
                format!("{}\n", tables::wish(&answer.chosen))
            })
        }
        Some(EnginesOrder::Unset { name }) => {
            let lifted = control.engines.unchoose(&name).await?;
            format.show(&lifted, |answer| match &answer.wanted {
                Some(wanted) => format!("{} again\n", tables::wish(wanted)),
                None => format!("{} is wanted no more\n", answer.lifted),
            })
        }
    }
}

pub(super) async fn replace(
    control: &Control,
    format: Format,
    definition: ModelDefinition,
) -> Result<Shown, Failure> {
    let name: ModelName = definition
        .name
        .parse()
        .map_err(|error| Failure::new(Cause::Usage, format!("name: {error}")))?;
    let defined = Model::try_from(definition.clone()).ok();
    let defined = defined.map(|model| Scaled::from((name.clone(), model.scaling())));
    let replaced = control.catalog.replace(&name, definition).await?;
    let models = control.catalog.models().await?;
    let mut named = models.iter().filter(|view| view.name == replaced.replaced);
    let ordered = named.find(|view| {
        let bounds = (view.min_replicas, view.max_replicas);
        defined
            .as_ref()
            .is_some_and(|defined| (defined.min, defined.max) != bounds)
    });
    let shown = format.show(&replaced, |answer| {
        let name = &answer.replaced;
        match answer.stale {
            0 => format!("replaced {name}\n"),
            1 => {
                format!("replaced {name}; 1 replica runs as before until `llmgw ctl roll {name}`\n")
            }
            more => {
                format!(
                    "replaced {name}; {more} replicas run as before until `llmgw ctl roll {name}`\n"
                )
            }
        }
    })?;
    Ok(match ordered {
        // An order outlives the definition that it was given over.
        Some(view) => shown.with_remark(format!(
            "it stays scaled as it was ordered, from {} to {}: `llmgw ctl scale {}` changes that",
            view.min_replicas, view.max_replicas, view.name
        )),
        None => shown,
    })
}

pub(super) async fn retry(
    control: &Control,
    format: Format,
    name: ModelName,
) -> Result<Shown, Failure> {
    let models = control.catalog.models().await?;
    let mut named = models
        .iter()
        .filter(|view| view.name == name || view.aliases.contains(&name));
    let has_failed = named.any(|view| view.parked || view.failures > 0);
    control.catalog.retry(&name).await?;
    format.show(&Retried { retried: name }, |answer| {
        let name = &answer.retried;
        if has_failed {
            format!("{name} is tried again\n")
        } else {
            format!("{name} is not parked and has not failed: there was nothing to try again\n")
        }
    })
}

pub(super) async fn scale(
    control: &Control,
    format: Format,
    args: ScaleArgs,
) -> Result<Shown, Failure> {
    let scale = ScaleRequest {
        min: args.replicas.or(args.min),
        max: args.replicas.or(args.max),
        idle_timeout: args.idle_timeout,
    };
    let scaled = control.catalog.scale(&args.name, scale).await?;
    format.show(&scaled, |scaled| {
        let (model, min, max) = (&scaled.model, scaled.min, scaled.max);
        match (min, max) {
            (0, 0) => format!("{model} is switched off\n"),
            (min, max) if min == max => format!("{model} runs with {min}\n"),
            (min, max) => {
                let idle = &scaled.idle_timeout_text;
                format!("{model} runs with {min} to {max}; what is beyond {min} stops after {idle} without a request\n")
            }
        }
    })
}

pub(super) async fn use_node(
    control: &Control,
    format: Format,
    args: NodeArgs,
    to: NodeUse,
) -> Result<Shown, Failure> {
    let wanted = NodeStateRequest {
        reason: args.reason,
        ..to.into()
    };
    let answer = control.fleet.use_node(&args.node, wanted).await?;
    format.show(&answer, |answer| used(&args.node, to, answer.state))
}

/// What became of an order on a node.
fn used(node: &str, ordered: NodeUse, state: NodeState) -> String {
    let to = match ordered {
        NodeUse::Ready => "ready",
        NodeUse::Cordoned => "cordoned",
        NodeUse::Draining => "draining",
    };
    if state == NodeState::Lost {
        return format!("{node} is not heard; the order stands, and it is {to} once it is\n");
    }
    format!("{node} is {}\n", state.as_str())
}

pub(super) async fn drain(
    control: &Control,
    format: Format,
    args: DrainArgs,
) -> Result<Shown, Failure> {
    let DrainArgs {
        node: NodeArgs { node, reason },
        force,
    } = args;
    let wanted = NodeStateRequest {
        state: NodeUse::Draining,
        reason,
        force,
    };
    let answer = control.fleet.use_node(&node, wanted).await?;
    format.show(&answer, |answer| {
        let told = used(&node, NodeUse::Draining, answer.state);
        if force {
            format!("{}; what has no room elsewhere stops\n", told.trim_end())
        } else {
            told
        }
    })
}

pub(super) async fn roll(
    control: &Control,
    format: Format,
    RollArgs { name, force }: RollArgs,
) -> Result<Shown, Failure> {
    let rolled = control.catalog.roll(&name, RollRequest { force }).await?;
    let shown = format.show(&rolled, |rolled| {
        let first = if rolled.force {
            ", the old ones first where there is no room for both"
        } else {
            ""
        };
        let (stale, model) = (rolled.stale, &rolled.rolling);
        let replicas = if stale == 1 { "replica" } else { "replicas" };
        format!(
            "{stale} stale {replicas} of {model} will be replaced{first}; `llmgw ctl describe model {model}` says how far \
             it is\n"
        )
    })?;
    if force && !rolled.force {
        let older = "the control plane is of an older release and does not force: where there is no room, the roll waits";
        return Ok(shown.with_remark(older.to_owned()));
    }
    Ok(shown)
}

pub(super) async fn thaw(control: &Control, format: Format) -> Result<Shown, Failure> {
    let thawed = control.fleet.thaw().await?;
    format.show(&thawed, |answer| {
        let Frozen { silent, of, .. } = &answer.thawed;
        let names: Vec<&str> = silent.iter().map(|node| node.hostname.as_str()).collect();
        let names = one_line(&names.join(", "));
        format!("{} of {of} nodes are given up: {names}\n", silent.len())
    })
}

pub(super) async fn approve(
    control: &Control,
    format: Format,
    node: &str,
) -> Result<Shown, Failure> {
    let answer = control.fleet.approve(node).await?;
    format.show(&answer, |answer| {
        format!("{node} is {}\n", answer.state.as_str())
    })
}

pub(super) async fn holds(
    control: &Control,
    format: Format,
    order: Option<HoldOrder>,
    messages: Messages,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let holds = control.holds.holds().await?;
            format.list(
                &holds,
                |holds| tables::holds(holds, messages),
                "nothing is held",
            )
        }
        Some(HoldOrder::Set(args)) => {
            let scope = match (args.facility, args.pool, args.node) {
                (Some(facility), _, _) => HoldScope::Facility(facility),
                (_, Some(pool), _) => HoldScope::Pool(pool),
                (_, _, Some(node)) => {
                    let nodes = control.fleet.nodes().await?;
                    let nodes = nodes.iter().map(|node| (node.id, node.hostname.as_str()));
                    HoldScope::Node(named_node(&node, nodes)?)
                }
                (None, None, None) => {
                    return Err(Failure::new(Cause::Usage, "nothing is named to be held")
                        .with_hint("give --facility, --pool or --node"));
                }
            };
            let request = HoldRequest {
                name: args.name,
                scope,
                reason: args.reason,
                lasts: args.lasts,
            };
            let hold = control.holds.hold(request).await?;
            format.show(&hold, |hold| {
                tables::holds(std::slice::from_ref(hold), messages)
            })
        }
        Some(HoldOrder::Lift { name }) => {
            control.holds.lift(&name).await?;
            format.show(&HoldLifted { lifted: name }, |answer| {
                format!("lifted {}\n", answer.lifted)
            })
        }
    }
}

pub(super) async fn capacity(
    control: &Control,
    format: Format,
    order: Option<CapacityOrder>,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let kept = control.capacities.capacities().await?;
            format.list(&kept, tables::capacities, "nothing was measured yet")
        }
        Some(CapacityOrder::Record(args)) => {
            let measurement = Measurement {
                profile: args.profile,
                concurrency: args.concurrency,
                tokens_per_second: args.tokens_per_second,
                time_to_first_token_ms: args.time_to_first_token,
                inter_token_ms: args.inter_token,
                prompt_tokens: args.prompt_tokens.map(Tokens),
                completion_tokens: args.completion_tokens.map(Tokens),
                goal: args.goal,
            };
            let kept = control.capacities.record(&args.model, measurement).await?;
            format.show(&kept, |kept| tables::capacities(std::slice::from_ref(kept)))
        }
    }
}

pub(super) async fn tokens(
    control: &Control,
    format: Format,
    order: Option<TokenOrder>,
) -> Result<Shown, Failure> {
    match order {
        None => {
            let tokens = control.operators.tokens().await?;
            let none = "there is no token but the one of the data directory";
            format.list(&tokens, tables::tokens, none)
        }
        Some(TokenOrder::Create { name, role }) => {
            let created = control.operators.create_token(&name, role).await?;
            format.show(&created, |created| format!("{}\n", created.secret))
        }
        Some(TokenOrder::Revoke { id }) => {
            control.operators.revoke_token(id).await?;
            format.show(&TokenRevoked { revoked: id }, |answer| {
                format!("revoked {}\n", answer.revoked)
            })
        }
    }
}
