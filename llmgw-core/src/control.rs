//! What an operator can ask and order, as small role traits.
//!
//! The controller implements them inside a control plane; `admin_client` implements them over HTTP. The CLI,
//! Python and the admin API hold a [`Control`] and never know which. [`Activation`] is how the gateway asks for
//! a model that nothing serves.

mod accounts;
mod acting;
mod capacities;
mod engines;
mod events;
mod guard;
mod holds;
mod listing;
mod logs;
mod models;
mod nodes;
mod operators;
mod settings;
mod tenancy;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;

#[cfg(feature = "guard")]
pub use self::guard::{guard_trial, guard_view};
pub use self::{
    accounts::{Accounts, check_price, usage_of},
    acting::{Acting, Actor},
    capacities::{Capacities, check_measurement},
    engines::{Engines, check_choice, check_unchoosing, not_chosen},
    events::{Events, Following},
    guard::Guarding,
    holds::{Holds, check_hold, hold_view, unknown_hold},
    listing::{engines, jobs},
    logs::{LONGEST_WAIT, LogReader, Logs, unknown_log},
    models::{
        check_addition, check_pools, check_removal, check_replacement, check_scaling, is_declared,
        nothing_to_roll, roll_subject,
    },
    nodes::{check_node_order, is_let_in, named_node, node_subject, nothing_frozen},
    operators::{Operators, token_view, unknown_token},
    settings::{
        Settings, check_base, check_document, settings_changes, settings_document,
        settings_version, unknown_version,
    },
    tenancy::{
        Tenancy, Uses, check_key, check_key_name, check_level_removal, check_limited_key,
        check_limited_level, check_new_level, key_subject, key_view, level_views, spending_quotas,
        unknown_level,
    },
};
use crate::{
    api::{
        admin::{
            Explanation, JobView, ModelView, NodeView, OrphanView, Replaced, ReplicaView, Summary,
        },
        decision::Decision,
        frozen::Thawed,
        orders::{
            LogView, NodeStateRequest, NodeStateView, RollRequest, Rolled, ScaleRequest, Scaled,
        },
        whatif::{Change, Outcome, Snapshot},
    },
    cluster::{
        audit::AuditEntry,
        catalog::{DefinitionError, ModelDefinition},
        weights::Sha256Digest,
    },
    error::{Code, Coded},
    id::{KeyId, ModelName, ReplicaId},
    route::Waiting,
};

/// The roles of a control plane, handed around as one.
#[derive(Clone, Debug)]
pub struct Control {
    /// Models: what should run.
    pub catalog: Arc<dyn Catalog>,
    /// Nodes and replicas: what is.
    pub fleet: Arc<dyn Fleet>,
    /// Who may use them: keys, and the levels that they belong to.
    pub tenancy: Arc<dyn Tenancy>,
    /// Usage, and what models cost.
    pub accounts: Arc<dyn Accounts>,
    /// What this control plane was told.
    pub settings: Arc<dyn Settings>,
    /// Long work that is under way.
    pub jobs: Arc<dyn Jobs>,
    /// What was ordered.
    pub audit: Arc<dyn Audit>,
    /// Weights on the nodes' disks.
    pub storage: Arc<dyn Storage>,
    /// Engines: which every node should have.
    pub engines: Arc<dyn Engines>,
    /// Where nothing is placed or moved.
    pub holds: Arc<dyn Holds>,
    /// What models were measured to do.
    pub capacities: Arc<dyn Capacities>,
    /// Who may use the admin API.
    pub operators: Arc<dyn Operators>,
    /// What happens, as it happens.
    pub events: Arc<dyn Events>,
    /// What engines wrote, as they write it.
    pub logs: Arc<dyn Logs>,
    /// What prompts and answers are checked by.
    pub guard: Arc<dyn Guarding>,
    /// The same roles for somebody else.
    pub acting: Arc<dyn Acting>,
}

/// Models: what should run.
///
/// # Contract
/// * A write that was answered with success survives a crash of the control plane.
/// * Writes are serialised; a read shows every write that was answered before it.
/// * Dropping a future before it is done leaves either the whole effect or none.
#[async_trait]
pub trait Catalog: fmt::Debug + Send + Sync + 'static {
    /// All models, by name.
    async fn models(&self) -> Result<Vec<ModelView>, ControlError>;

    /// Adds a model, and starts to place it.
    ///
    /// MUST refuse a definition that can't be right ([`Code::InvalidRequest`]), fallbacks that are no models or lead
    /// in a circle and pools that there are not included, and a name or alias that another model has
    /// ([`Code::Conflict`]).
    async fn add(&self, definition: ModelDefinition) -> Result<ModelName, ControlError>;

    /// Defines a model that was added otherwise, whole; it is named by its own name, in both. What runs is stale and stays
    /// until it is rolled, what was ordered of its scaling stays in force, and a parked model is tried again once what
    /// failed is defined otherwise.
    ///
    /// MUST refuse what [`Catalog::add`] refuses, but for its own names; another name than the definition has
    /// ([`Code::InvalidRequest`]); an unknown model ([`Code::NotFound`]) and a declared one ([`Code::Conflict`]).
    async fn replace(
        &self,
        name: &ModelName,
        definition: ModelDefinition,
    ) -> Result<Replaced, ControlError>;

    /// Removes a model by its own name, and starts to stop its replicas.
    ///
    /// MUST refuse an unknown model ([`Code::NotFound`]), a declared one, and one that others fall back to
    /// ([`Code::Conflict`]).
    async fn remove(&self, name: &ModelName) -> Result<(), ControlError>;

    /// Why a model is not placed; makes a fresh trial. Accepts an alias.
    async fn explain(&self, name: &ModelName) -> Result<Explanation, ControlError>;

    /// The last decisions after number `after`, on a model or on all, by number, at most `limit` and never more than
    /// 1,000. Accepts an alias. They are kept in memory: a restart begins anew, with number 1.
    ///
    /// MUST refuse an unknown model that no decision is kept of ([`Code::NotFound`]).
    async fn decisions(
        &self,
        model: Option<&ModelName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Decision>, ControlError>;

    /// Lets a parked model be tried again, at once. Accepts an alias.
    async fn retry(&self, name: &ModelName) -> Result<(), ControlError>;

    /// Runs a model between so many replicas from now on, and answers with what is in force. Accepts an alias.
    ///
    /// MUST refuse numbers that contradict each other ([`Code::InvalidRequest`]), an unknown model
    /// ([`Code::NotFound`]) and a declared one ([`Code::Conflict`]).
    async fn scale(&self, name: &ModelName, scale: ScaleRequest) -> Result<Scaled, ControlError>;

    /// Replaces the replicas of a model whose definition has changed since they were started, one after the other.
    /// Accepts an alias. Where there is no room for one more, it waits; when it is forced, an old one stops first.
    ///
    /// MUST refuse an unknown model ([`Code::NotFound`]), and one none of whose replicas is stale
    /// ([`Code::Conflict`]).
    async fn roll(&self, name: &ModelName, roll: RollRequest) -> Result<Rolled, ControlError>;
}

/// Nodes and replicas: what is.
///
/// # Contract
/// Answers come from memory and may be older than now by a heartbeat.
#[async_trait]
pub trait Fleet: fmt::Debug + Send + Sync + 'static {
    /// The state of the whole in one look.
    async fn summary(&self) -> Result<Summary, ControlError>;

    /// All nodes, by host name, then by id.
    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError>;

    /// All replicas, or those of a model, by model, then by id. Accepts an alias.
    ///
    /// MUST refuse an unknown model that has no replica left ([`Code::NotFound`]).
    async fn replicas(&self, model: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError>;

    /// Uses a node otherwise from now on; acts at once, and takes the place of what was ordered of it before. The node is
    /// named by its id or its host name.
    ///
    /// MUST refuse a node that nobody has heard of ([`Code::NotFound`]), a host name that several have
    /// ([`Code::Conflict`]), a reason that is no line, and force for anything but a drain
    /// ([`Code::InvalidRequest`]).
    async fn use_node(
        &self,
        node: &str,
        wanted: NodeStateRequest,
    ) -> Result<NodeStateView, ControlError>;

    /// Goes on without the nodes that fell silent at once, as if they were gone: what they ran is placed elsewhere. They
    /// count again as soon as they are heard. Answers what was frozen.
    ///
    /// MUST refuse it while nothing is frozen ([`Code::Conflict`]).
    async fn thaw(&self) -> Result<Thawed, ControlError>;

    /// Lets a node in that has asked to join.
    ///
    /// MUST refuse a node that nobody has heard of ([`Code::NotFound`]), and one that is let in already
    /// ([`Code::Conflict`]).
    async fn approve(&self, node: &str) -> Result<NodeStateView, ControlError>;

    /// The last lines that the engines of a model's replicas wrote, as far as they are known here: those of replicas that
    /// failed, and of the first of the failures in a row, whether they parked the model or it is tried again. Accepts an alias.
    ///
    /// MUST refuse an unknown model ([`Code::NotFound`]).
    async fn logs(&self, model: &ModelName) -> Result<Vec<LogView>, ControlError>;

    /// All that a plan would be made from now, for whoever wants to plan elsewhere.
    async fn snapshot(&self) -> Result<Snapshot, ControlError>;

    /// What these changes would do, made in this order and all together. Asks, and changes nothing: it is no order,
    /// and leaves no entry in the audit log. Nodes are named by host name or id, models by their own name.
    ///
    /// MUST refuse a change that can't be made ([`Code::InvalidRequest`]); the message begins with its path, such as
    /// `changes[0].drain: `.
    async fn plan(&self, changes: &[Change]) -> Result<Outcome, ControlError>;
}

/// Long work that is under way on nodes: engines being installed, weights being fetched.
///
/// # Contract
/// Answers come from memory and may be older than now by a heartbeat. What has ended is not listed; how it ended
/// is told by the node or the replica.
#[async_trait]
pub trait Jobs: fmt::Debug + Send + Sync + 'static {
    /// All jobs, by node, then by subject.
    async fn jobs(&self) -> Result<Vec<JobView>, ControlError>;
}

/// Weights on the nodes' disks that no model refers to.
///
/// # Contract
/// * Answers come from memory and may be older than now by a minute: a node says what lies on its disk.
/// * Nothing is removed that was not listed, that a model refers to, that a replica uses, or that lies on a disk which
///   another node shares that does not say what it uses. The node itself has the last word.
#[async_trait]
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// All such weights, by node, then by digest. A node whose agent is too old to say lists none.
    async fn orphans(&self) -> Result<Vec<OrphanView>, ControlError>;

    /// Orders these weights to be removed from every node that lists them, and answers with those: with
    /// [`OrphanView::kept`] where they stay, and why.
    ///
    /// MUST refuse a digest that is listed nowhere ([`Code::NotFound`]), and an empty list
    /// ([`Code::InvalidRequest`]).
    async fn collect(&self, digests: &[Sha256Digest]) -> Result<Vec<OrphanView>, ControlError>;
}

/// What was ordered, by whom.
///
/// # Contract
/// * Every order that changes something is written down together with what it changes in the store: both are there,
///   or neither.
/// * Entries are numbered without gaps and each covers the one before it: see
///   [`verify_chain`](crate::cluster::audit::verify_chain).
#[async_trait]
pub trait Audit: fmt::Debug + Send + Sync + 'static {
    /// The entries after number `after`, in order, at most `limit` and never more than 1,000.
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, ControlError>;
}

/// How the gateway asks for a model that nothing serves.
///
/// # Contract
/// * Never takes longer than two seconds, and joins attempts for the same model into one.
/// * Dropping the future cancels nothing but the wait.
#[async_trait]
pub trait Activation: fmt::Debug + Send + Sync + 'static {
    /// Makes a fresh attempt to place the model; answers with what it waits for then, or with `None` when it is
    /// served by now.
    async fn activate(&self, model: &ModelName) -> Option<Waiting>;
}

/// What the gateway is doing; how the control plane sees it without knowing the gateway.
pub trait Traffic: fmt::Debug + Send + Sync + 'static {
    /// Calls that a replica is answering now.
    fn outstanding(&self, replica: ReplicaId) -> u64;

    /// Calls that a replica was given since the gateway knows it, and how many of them it failed.
    fn calls(&self, replica: ReplicaId) -> (u64, u64);

    /// Calls that wait for a model.
    fn waiting(&self, model: &ModelName) -> u64;

    /// Calls that were taken since the start.
    fn requests(&self) -> u64;
}

/// Why a role did not do what was asked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The stable name of the failure.
    pub code: Code,
    /// What happened, to what.
    pub message: String,
    /// What would help.
    pub hint: Option<String>,
}

// === impl ControlError ===

impl ControlError {
    /// An error without a hint.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// No key has this id.
    #[must_use]
    pub fn unknown_key(id: KeyId) -> Self {
        Self::new(Code::NotFound, format!("there is no key {id}"))
            .with_hint("`llmgw ctl keys` lists those there are")
    }

    /// No model answers to `name`.
    #[must_use]
    pub fn unknown_model(name: &ModelName) -> Self {
        Self::new(Code::NotFound, format!("there is no model {name}"))
            .with_hint("`llmgw ctl models` lists those there are")
    }
}

impl From<DefinitionError> for ControlError {
    /// What can't be right is said with its path.
    fn from(error: DefinitionError) -> Self {
        Self {
            code: Code::InvalidRequest,
            message: error.to_string(),
            hint: error.hint,
        }
    }
}

impl Coded for ControlError {
    fn code(&self) -> Code {
        self.code
    }

    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// The subject of an order to collect these weights, as it stands in the audit log.
#[must_use]
pub fn collected(digests: &[Sha256Digest]) -> String {
    let texts: Vec<String> = digests.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

/// The listed weights of these digests, as [`Storage::collect`] must choose them.
///
/// # Errors
/// What `collect` must answer.
pub fn chosen_orphans(
    listed: Vec<OrphanView>,
    digests: &[Sha256Digest],
) -> Result<Vec<OrphanView>, ControlError> {
    if digests.is_empty() {
        return Err(
            ControlError::new(Code::InvalidRequest, "digests: there is none")
                .with_hint("`llmgw ctl weights orphans` lists what can be collected"),
        );
    }
    let is_listed = |digest: &&Sha256Digest| listed.iter().any(|one| one.sha256 == **digest);
    if let Some(digest) = digests.iter().find(|digest| !is_listed(digest)) {
        let message = format!("no node has weights {digest} that no model refers to");
        return Err(ControlError::new(Code::NotFound, message)
            .with_hint("`llmgw ctl weights orphans` lists what can be collected"));
    }
    let mut chosen = listed;
    chosen.retain(|one| digests.contains(&one.sha256));
    Ok(chosen)
}

/// A subject in the audit log, with what was ordered of it: as the admin API says it. Nothing secret may be in it.
#[must_use]
pub fn ordered<T: Serialize>(subject: &str, order: &T) -> String {
    match serde_json::to_string(order) {
        Ok(order) => format!("{subject} {order}"),
        Err(_) => subject.to_owned(),
    }
}

/// A subject in the audit log, with whether its order was forced.
fn forced(subject: &str, force: bool) -> String {
    if force {
        format!("{subject} force")
    } else {
        subject.to_owned()
    }
}
