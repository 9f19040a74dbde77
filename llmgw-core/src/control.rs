//! What an operator can ask and order, as small role traits.
//!
//! The controller implements them inside a control plane; `admin_client` implements them over HTTP. The CLI,
//! Python and the admin API hold a [`Control`] and never know which. [`Activation`] is how the gateway asks for
//! a model that nothing serves.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;

use crate::{
    api::{
        admin::{
            CreatedKey, EngineView, Explanation, JobKind, JobView, KeyView, ModelView, NodeEngine,
            NodeView, OrphanView, ReplicaView, SettingsView, Summary, UsageView,
        },
        decision::Decision,
        whatif::{Change, Outcome, Snapshot},
    },
    cluster::{
        audit::AuditEntry,
        catalog::{DefinitionError, Model, ModelDefinition, check_fallbacks},
        engine::{ProvisionState, WantedEngine},
        replica::ReplicaState,
        weights::{Sha256Digest, shown},
    },
    error::{Code, Coded},
    id::{EngineName, KeyId, ModelName, ReplicaId},
    route::Waiting,
};

/// The roles of a control plane, handed around as one.
#[derive(Clone, Debug)]
pub struct Control {
    /// Models: what should run.
    pub catalog: Arc<dyn Catalog>,
    /// Nodes and replicas: what is.
    pub fleet: Arc<dyn Fleet>,
    /// Who may use them: keys.
    pub tenancy: Arc<dyn Tenancy>,
    /// Usage.
    pub accounts: Arc<dyn Accounts>,
    /// What this control plane was told.
    pub settings: Arc<dyn Settings>,
    /// Long work that is under way.
    pub jobs: Arc<dyn Jobs>,
    /// What was ordered.
    pub audit: Arc<dyn Audit>,
    /// Weights on the nodes' disks.
    pub storage: Arc<dyn Storage>,
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
    /// in a circle included, and a name or alias that another model has ([`Code::Conflict`]).
    async fn add(&self, definition: ModelDefinition) -> Result<ModelName, ControlError>;

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

    /// All that a plan would be made from now, for whoever wants to plan elsewhere.
    async fn snapshot(&self) -> Result<Snapshot, ControlError>;

    /// What these changes would do, made in this order and all together. Asks, and changes nothing: it is no order,
    /// and leaves no entry in the audit log. Nodes are named by host name or id, models by their own name.
    ///
    /// MUST refuse a change that can't be made ([`Code::InvalidRequest`]); the message begins with its path, such as
    /// `changes[0].drain: `.
    async fn plan(&self, changes: &[Change]) -> Result<Outcome, ControlError>;
}

/// Who may use the models: API keys, so far.
///
/// # Contract
/// As for [`Catalog`]; and a key that was made or revoked is known to every gateway of this process when the
/// answer is given.
#[async_trait]
pub trait Tenancy: fmt::Debug + Send + Sync + 'static {
    /// All keys, by id: without their secrets, which nobody knows.
    async fn keys(&self) -> Result<Vec<KeyView>, ControlError>;

    /// Makes a key. Its secret is in the answer, and never shown again.
    ///
    /// MUST refuse a name that is empty, longer than 128 characters, or has control characters
    /// ([`Code::InvalidRequest`]).
    async fn create_key(&self, name: &str) -> Result<CreatedKey, ControlError>;

    /// Revokes a key.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]).
    async fn revoke_key(&self, id: KeyId) -> Result<(), ControlError>;
}

/// What this control plane was told: its file and its command line.
#[async_trait]
pub trait Settings: fmt::Debug + Send + Sync + 'static {
    /// What is in force.
    async fn settings(&self) -> Result<SettingsView, ControlError>;
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
/// * Every order that changes something is written down, and durable, before it is carried out: an order that
///   then fails has an entry too.
/// * Entries are numbered without gaps and each covers the one before it: see
///   [`verify_chain`](crate::cluster::audit::verify_chain).
#[async_trait]
pub trait Audit: fmt::Debug + Send + Sync + 'static {
    /// The entries after number `after`, in order, at most `limit` and never more than 1,000.
    async fn audit(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, ControlError>;
}

/// Usage.
#[async_trait]
pub trait Accounts: fmt::Debug + Send + Sync + 'static {
    /// What was used, by model and key. Shows what is in the store: a call shows up within a second.
    async fn usage(&self) -> Result<Vec<UsageView>, ControlError>;
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

/// The engines that are wanted and those that nodes tell of, by name, then by node.
#[must_use]
pub fn engines(wanted: &[WantedEngine], nodes: &[NodeView]) -> Vec<EngineView> {
    let mut engines: BTreeMap<&EngineName, EngineView> = BTreeMap::new();
    let bare = |name: &EngineName| EngineView {
        name: name.clone(),
        wanted: None,
        nodes: Vec::new(),
    };
    for one in wanted {
        let engine = engines.entry(&one.name).or_insert_with(|| bare(&one.name));
        engine.wanted = Some(one.clone());
    }
    for node in nodes {
        for provision in &node.provision {
            let name = &provision.engine;
            let engine = engines.entry(name).or_insert_with(|| bare(name));
            engine.nodes.push(NodeEngine {
                node: node.id,
                hostname: node.hostname.clone(),
                provision: provision.clone(),
            });
        }
    }
    engines.into_values().collect()
}

/// The jobs that nodes and replicas tell of, by node, then by subject.
#[must_use]
pub fn jobs(nodes: &[NodeView], replicas: &[ReplicaView]) -> Vec<JobView> {
    let mut jobs = Vec::new();
    for node in nodes {
        for provision in &node.provision {
            let percent = match &provision.state {
                ProvisionState::Installing { percent, .. } => *percent,
                _ => continue,
            };
            jobs.push(JobView {
                kind: JobKind::InstallEngine,
                subject: provision.engine.to_string(),
                node: node.id,
                hostname: node.hostname.clone(),
                detail: provision.state.describe(),
                percent,
            });
        }
    }
    for replica in replicas {
        let Some(fetch) = &replica.fetch else {
            continue;
        };
        if replica.state != ReplicaState::Fetching {
            continue;
        }
        jobs.push(JobView {
            kind: JobKind::FetchWeights,
            subject: replica.model.to_string(),
            node: replica.node,
            hostname: replica.hostname.clone(),
            detail: format!("{fetch} from {}", shown(&fetch.source)),
            percent: fetch.percent(),
        });
    }
    jobs.sort_by(|a, b| {
        (&a.hostname, a.node, &a.subject, a.kind).cmp(&(&b.hostname, b.node, &b.subject, b.kind))
    });
    jobs
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

/// Checks a key's name as [`Tenancy::create_key`] must.
///
/// # Errors
/// What `create_key` must answer.
pub fn check_key_name(name: &str) -> Result<&str, ControlError> {
    let wrong = |problem: &str| {
        Err(
            ControlError::new(Code::InvalidRequest, format!("name: {problem}"))
                .with_hint("a key's name says whose it is, such as \"build server\""),
        )
    };
    let name = name.trim();
    if name.is_empty() {
        return wrong("it is empty");
    }
    if name.chars().count() > 128 {
        return wrong("it is longer than 128 characters");
    }
    if name.chars().any(char::is_control) {
        return wrong("it has a control character");
    }
    Ok(name)
}

/// Checks a definition as [`Catalog::add`] must: alone, then against the models there are.
///
/// # Errors
/// What `add` must answer.
pub fn check_addition<'a>(
    definition: ModelDefinition,
    existing: impl IntoIterator<Item = &'a Model>,
) -> Result<Model, ControlError> {
    let model = Model::try_from(definition)?;
    if let Some(error) = model.cannot_start() {
        return Err(error.into());
    }
    let existing: Vec<&Model> = existing.into_iter().collect();
    for other in &existing {
        let names = std::iter::once(model.name()).chain(model.aliases());
        for name in names {
            if other.answers_to(name.as_str()) {
                let what = if other.name() == name {
                    "a model"
                } else {
                    "an alias"
                };
                return Err(ControlError::new(
                    Code::Conflict,
                    format!("{name} is already {what} ({})", other.name()),
                )
                .with_hint("choose another name, or remove that model first"));
            }
        }
    }
    check_fallbacks(&model, existing)?;
    Ok(model)
}

/// Refuses to remove a model that others fall back to, as [`Catalog::remove`] must.
///
/// # Errors
/// What `remove` must answer.
pub fn check_removal<'a>(
    name: &ModelName,
    existing: impl IntoIterator<Item = &'a Model>,
) -> Result<(), ControlError> {
    let falls_back = |model: &&Model| model.fallbacks().contains(name);
    let users = existing.into_iter().filter(falls_back);
    let users: Vec<&str> = users.map(|model| model.name().as_str()).collect();
    if users.is_empty() {
        return Ok(());
    }
    let verb = if users.len() == 1 { "falls" } else { "fall" };
    Err(ControlError::new(
        Code::Conflict,
        format!("{} {verb} back to {name}", users.join(", ")),
    )
    .with_hint("remove those first"))
}
