//! Which keys there are, and where each may stand: one table, that the documentation follows.

/// A key of the settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key {
    /// Its path; `NAME` stands for any name.
    pub path: &'static str,
    /// Of what it is.
    pub of: KeyOf,
    /// What it says.
    pub about: &'static str,
}

/// Of what a key is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyOf {
    /// The whole cluster: it may stand in the cluster's document, and holds as soon as it is written.
    Cluster,
    /// One machine: it stands in a file there.
    Machine,
}

/// All keys.
pub const KEYS: &[Key] = &[
    cluster("models", "models that should run, by name"),
    cluster(
        "engines.NAME",
        "which engine nodes should have, and from where",
    ),
    cluster("pools.NAME", "the labels that make a node one of a pool"),
    cluster("placement.policy", "which policy places"),
    cluster(
        "scaling.min_residency",
        "how long a model on demand keeps its room at least",
    ),
    cluster(
        "scaling.max_wait",
        "how long requests wait for room that another model's work has",
    ),
    cluster(
        "scaling.evict_idle_after",
        "how long they wait for room that another model does not use",
    ),
    cluster(
        "scaling.scale_up_after",
        "how long there must be more load than slots before a replica is added",
    ),
    cluster(
        "queue.max_per_model",
        "how many requests wait for one model on demand",
    ),
    cluster("queue.max_total", "how many wait for all of them"),
    cluster("queue.activation_timeout", "how long each waits"),
    cluster(
        "weights.evict",
        "whether weights used longest ago may go when there is no room for others",
    ),
    cluster(
        "weights.mirror",
        "the address that mirror: sources are fetched beneath",
    ),
    cluster(
        "weights.hub",
        "the address of the hub that hf: sources are fetched from",
    ),
    Key {
        path: "weights.hub_token_file",
        of: KeyOf::Machine,
        about: "a file with the token that gated repositories are asked with",
    },
    cluster(
        "guard.rules",
        "what is looked for in prompts and answers; the document's policy takes the place of a file's, whole",
    ),
    cluster("guard.levels.NAME", "what a level changes of these rules"),
];

const fn cluster(path: &'static str, about: &'static str) -> Key {
    Key {
        path,
        of: KeyOf::Cluster,
        about,
    }
}
