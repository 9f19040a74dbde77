//! Nodes, models, replicas, usage, as frozen classes.

use std::collections::BTreeMap;

use llmgw_core::{
    api::{
        admin::{self, Origin},
        frozen, usage,
    },
    cluster::{
        engine::{self, ProvisionState},
        node::{self, NodeState},
        replica::ReplicaState,
        weights::{self, Source},
    },
};

use crate::view::{Many, Show, view};

view! {
    /// The state of a cluster in one look.
    Summary(admin::Summary) {
        /// The release of the control plane.
        version: String,
        /// Whether this control plane leads.
        leading: bool,
        /// The lease epoch; 0 without a lease.
        epoch: u64,
        /// Whether the store answers.
        store: String,
        /// Seconds since it started.
        uptime_seconds: u64,
        /// Nodes that are used: heard, and neither cordoned nor draining.
        nodes_ready: usize,
        /// All nodes that are known.
        nodes_total: usize,
        /// Models that have all the replicas they should have.
        models_satisfied: usize,
        /// All models.
        models_total: usize,
        /// Replicas that serve.
        replicas_ready: usize,
        /// All replicas.
        replicas_total: usize,
        /// Calls that were answered since the start.
        requests: u64,
        /// What an operator should look at, a sentence each.
        attention: Many<String>,
        /// That nothing is moved, for too many nodes fell silent at once; None while that is not so.
        frozen: Option<Frozen>,
    }
}

view! {
    /// Too many nodes fell silent at once: nothing is moved until they are heard, or `orders.thaw()` goes on.
    Frozen(frozen::Frozen) {
        /// Whole seconds since then.
        seconds: u64,
        /// The nodes that were silent then.
        silent: Many<SilentNode>,
        /// How many nodes there were, those included.
        of: usize,
    }
}

view! {
    /// A node that is not heard.
    SilentNode(frozen::SilentNode) {
        /// What people call it.
        hostname: String,
        /// Its id.
        id: String,
    }
}

view! {
    /// An operating system.
    Os(node::Os) {
        /// Such as `debian`.
        id: String,
        /// Such as `12`; None on a rolling release.
        version: Option<String>,
    }
}

view! {
    /// Something about a machine that its operator should know.
    NodeWarning(node::Warning) {
        /// A stable name, such as `no_avx2`.
        code: String,
        /// The sentence for people.
        text: String,
    }
}

view! {
    /// How far a node is with an engine.
    Provision(engine::Provision) {
        /// Which engine.
        engine: String,
        /// The step: `pending`, `waiting`, `installing`, `installed`, `failed` or `unknown`; `to_dict` has its details.
        state: &'static str,
        /// Which source and why, in one line; None until it was chosen.
        choice: Option<String>,
    }

    /// The step and its details in a few words.
    #[getter]
    fn description(&self) -> String {
        self.0.state.describe()
    }
}

view! {
    /// A GPU that nothing is placed on; `to_dict` has its class too.
    UnhealthyGpu(admin::UnhealthyGpu) {
        /// Its number on its node.
        index: u32,
        /// What is wrong with it.
        fault: String,
    }
}

view! {
    /// A node's port on a network that shards may span.
    FabricPort(node::Fabric) {
        /// `infiniband`, `roce` or `ethernet`.
        kind: String,
        /// Which network it is: nodes that name the same one reach each other.
        name: Option<String>,
        /// The port, such as `mlx5_0/1`.
        port: String,
        /// What it carries, in Gbit/s.
        gbps: Option<u32>,
        /// Whether it carries data now.
        up: bool,
    }
}

view! {
    /// A machine with an agent. What is not known is None, never zero.
    Node(admin::NodeView) {
        /// Its id.
        id: String,
        /// What people call it.
        hostname: String,
        /// What it may be used for: `ready`, `cordoned`, `draining`, `lost` or `pending`.
        state: &'static str,
        /// Whether its agent has looked at it.
        probed: bool,
        /// The operator's own marks.
        labels: BTreeMap<String, String>,
        /// The pools that these make it one of.
        pools: Many<String>,
        /// The operating system.
        os: Option<Os>,
        /// The processor architecture.
        arch: String,
        /// Cores.
        cpu_cores: Option<u32>,
        /// Vector extensions.
        cpu_features: Option<Many<String>>,
        /// The address from which its agent speaks with the control plane.
        mgmt_addr: Option<String>,
        /// GPUs.
        gpu_total: Option<usize>,
        /// GPUs that work, are held by no replica and used by no other program.
        gpu_free: Option<usize>,
        /// The classes of its GPUs, each once, sorted.
        gpu_classes: Option<Many<String>>,
        /// GPUs that nothing is placed on.
        unhealthy_gpus: Option<Many<UnhealthyGpu>>,
        /// Its ports on networks that shards may span.
        fabrics: Option<Many<FabricPort>>,
        /// All main memory, in bytes.
        memory_total: Option<u64>,
        /// The same in whole GiB, rounded down.
        memory_gb: Option<u64>,
        /// What engines may use in all, in bytes.
        memory_allocatable: Option<u64>,
        /// What replicas have reserved, in bytes.
        memory_reserved: u64,
        /// What may still be written to the disk of the weights, in bytes.
        disk_free: Option<u64>,
        /// The same in whole GiB, rounded down.
        disk_free_gb: Option<u64>,
        /// The size of that disk, in bytes.
        disk_total: Option<u64>,
        /// The same in whole GiB, rounded down.
        disk_total_gb: Option<u64>,
        /// How far it is with each wanted engine.
        provision: Many<Provision>,
        /// What makes it slow or unusable.
        warnings: Many<NodeWarning>,
        /// Seconds since it was heard.
        last_seen_ago: u64,
        /// The release of its agent.
        agent_version: String,
        /// How many replicas it has.
        replicas: usize,
        /// Models whose weights lie on its disk; `None` when its agent does not say.
        models_on_disk: Option<Many<String>>,
    }
}

view! {
    /// One way to run a model.
    Profile(admin::ProfileView) {
        /// Its name.
        name: String,
        /// Its engine.
        engine: String,
        /// Main memory for one replica, in bytes; `None` while what its definition does not say is not known.
        memory: Option<u64>,
        /// Whether that was estimated from what the weights say of themselves, and not declared.
        memory_estimated: bool,
        /// Tokens of context for each request.
        context: u64,
        /// Requests at the same time.
        parallel: u32,
    }
}

view! {
    /// A model that should run.
    Model(admin::ModelView) {
        /// What clients call it.
        name: String,
        /// For people.
        description: String,
        /// Other names that clients may use.
        aliases: Many<String>,
        /// Models that clients are to be served by when this one can't, in the order of preference.
        fallbacks: Many<String>,
        /// Where its weights come from.
        source: Many<String>,
        /// Where it was said: `declared` in the settings or `added` by the API.
        origin: &'static str,
        /// How many replicas should run.
        desired: u32,
        /// How many serve.
        ready_replicas: usize,
        /// How many there are, in any state.
        total_replicas: usize,
        /// Ways to run it.
        profiles: Many<Profile>,
        /// Whether it is not tried again by itself after too many failures.
        parked: bool,
        /// Failures in a row.
        failures: u32,
        /// The last failure.
        last_error: Option<String>,
        /// Why a wanted replica is not placed, in one line.
        unplaceable: Option<String>,
    }
}

view! {
    /// How far the fetch of weights is.
    FetchProgress(weights::FetchProgress) {
        /// The source being read.
        source: String,
        /// Bytes that are on the disk.
        bytes_done: u64,
        /// Bytes in all; None when the source did not say.
        bytes_total: Option<u64>,
    }
}

view! {
    /// One running copy of a model.
    Replica(admin::ReplicaView) {
        /// Its id.
        id: String,
        /// What it serves.
        model: String,
        /// How it runs.
        profile: String,
        /// The pool that its profile asks for.
        pool: Option<String>,
        /// Whether its definition has changed since it was started.
        stale: bool,
        /// How far it is, such as `starting` or `ready`.
        state: &'static str,
        /// The id of the node where it runs.
        node: String,
        /// What people call that node.
        hostname: String,
        /// Where it listens on that node; None until it does.
        endpoint: Option<String>,
        /// Seconds since it was placed or adopted.
        age_seconds: u64,
        /// Calls that it is answering now.
        in_flight: u64,
        /// Why it failed.
        error: Option<String>,
        /// The last lines of its log, when it failed.
        log_tail: Many<String>,
        /// How far the fetch of its weights is.
        fetch: Option<FetchProgress>,
    }
}

view! {
    /// What was used of a model, with a key, at a level, within a time, as far as was asked.
    Usage(usage::UsageView) {
        /// When the hour, the day or the month began, in milliseconds since the Unix epoch; None over the whole time.
        at: Option<i64>,
        /// The level that the key belonged to; None when it is summed up over all.
        level: Option<String>,
        /// The model; None when it is summed up over all.
        model: Option<String>,
        /// The key's id; None when it is summed up over all.
        key: Option<String>,
        /// Calls.
        requests: u64,
        /// Calls that ended with a status of 400 or more.
        errors: u64,
        /// Tokens of all prompts.
        prompt_tokens: u64,
        /// Tokens of prompts that the engines had in their caches.
        cached_tokens: u64,
        /// Tokens of all answers.
        completion_tokens: u64,
        /// What it cost, in millionths of the cluster's currency.
        cost_micros: i64,
        /// When the last call came in, in milliseconds since the Unix epoch.
        last_at: Option<i64>,
    }

    /// `key`, or what such a level is called; None when the line is of neither.
    #[getter]
    fn scope(&self) -> Option<String> {
        self.0.of.scope.clone()
    }

    /// The key's id, or the level's path.
    #[getter]
    fn id(&self) -> Option<String> {
        self.0.of.id.clone()
    }

    /// What people call it; None for a key that was revoked.
    #[getter]
    fn name(&self) -> Option<String> {
        self.0.of.name.clone()
    }

    /// Keys that it has now.
    #[getter]
    fn keys(&self) -> Option<usize> {
        self.0.of.keys
    }

    /// Its own budget, in millionths of the cluster's currency.
    #[getter]
    fn budget_micros(&self) -> Option<i64> {
        self.0.of.budget_micros.map(|amount| amount.0)
    }

    /// The budget's period.
    #[getter]
    fn budget_period(&self) -> Option<&'static str> {
        self.0.of.budget_period.map(llmgw_core::cluster::tenancy::Period::as_str)
    }

    /// How much of the budget is spent in the period that it is now: 1 is all of it.
    #[getter]
    fn fraction(&self) -> Option<f64> {
        self.0.of.fraction
    }
}

// === impl Show ===

impl Show<&'static str> for NodeState {
    fn show(&self) -> &'static str {
        self.as_str()
    }
}

impl Show<&'static str> for ReplicaState {
    fn show(&self) -> &'static str {
        self.as_str()
    }
}

impl Show<&'static str> for Origin {
    fn show(&self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Added => "added",
        }
    }
}

impl Show<&'static str> for ProvisionState {
    fn show(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting { .. } => "waiting",
            Self::Installing { .. } => "installing",
            Self::Installed { .. } => "installed",
            Self::Failed { .. } => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl Show<String> for Source {
    fn show(&self) -> String {
        self.to_string()
    }
}
