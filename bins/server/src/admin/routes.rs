//! The table of routes: what each is for, who may ask, who answers.

mod document;
mod keys;
mod rules;

use axum::{
    Router,
    handler::Handler,
    middleware,
    routing::{MethodFilter, on},
};
use llmgw_core::{
    api::{
        admin::{
            Added, CollectRequest, EngineView, Explanation, JobView, ModelView, NodeView,
            OrphanView, Removed, Replaced, ReplicaView, Retried, Summary,
        },
        decision::Decision,
        frozen::Thawed,
        log::LogPart,
        orders::{
            CapacityRequest, CreatedToken, EngineChosen, EngineLifted, EngineRequest, HoldLifted,
            HoldRequest, HoldView, LogView, NodeStateRequest, NodeStateView, RollRequest, Rolled,
            ScaleRequest, Scaled, TokenRequest, TokenRevoked, TokenView,
        },
        whatif::{Outcome, Snapshot, WhatIf},
    },
    cluster::{account::Role, audit::AuditEntry, capacity::Capacity, catalog::ModelDefinition},
};
use schemars::JsonSchema;

use super::{
    caller, decisions, events, fleet, guard, logs, metrics, models,
    openapi::{self, Shape},
    orders, settings, tenancy, weights,
};

/// The routes, as they are collected.
#[derive(Debug, Default)]
pub(super) struct Table {
    router: Router,
    operations: Vec<Operation>,
}

/// One thing that can be asked.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `GET` and so on.
    pub method: &'static str,
    /// The path, with `{name}` where a name stands.
    pub path: &'static str,
    /// Who may ask.
    pub role: Role,
    /// What it is for.
    pub about: &'static str,
    /// What may stand in the query: a name, whether it must, and its schema.
    pub(super) query: Query,
    /// What is sent.
    pub(super) body: Option<Shape>,
    /// Whether it may be left out.
    pub(super) body_is_optional: bool,
    /// What answers; a text when absent.
    pub(super) answer: Option<Shape>,
    /// As what it answers.
    pub(super) media: &'static str,
    /// As what it answers when it is asked to go on.
    pub(super) stream: Option<&'static str>,
}

/// What may stand in a query.
type Query = &'static [(&'static str, bool, &'static str)];

/// All that the admin API can be asked.
pub(super) fn table() -> Table {
    use Role::{Admin, Operator, Viewer};
    Table::default()
        .tenancy()
        .settings()
        .guard()
        .get(
            "/api/v1/summary",
            Viewer,
            "The whole in one look",
            fleet::summary,
        )
        .answers::<Summary>()
        .get(
            "/api/v1/nodes",
            Viewer,
            "Machines and what they have",
            fleet::nodes,
        )
        .answers::<Vec<NodeView>>()
        .post(
            "/api/v1/nodes/{id}/state",
            Operator,
            "Use a node otherwise",
            orders::use_node,
        )
        .takes::<NodeStateRequest>()
        .answers::<NodeStateView>()
        .post(
            "/api/v1/nodes/{id}/approve",
            Operator,
            "Let a node in that asks to join",
            orders::approve,
        )
        .answers::<NodeStateView>()
        .post(
            "/api/v1/thaw",
            Operator,
            "Go on without the nodes that fell silent at once",
            fleet::thaw,
        )
        .answers::<Thawed>()
        .get(
            "/api/v1/engines",
            Viewer,
            "Engines, and how far each node is",
            orders::engines,
        )
        .answers::<Vec<EngineView>>()
        .post(
            "/api/v1/engines",
            Operator,
            "Have every node get an engine so",
            orders::choose,
        )
        .takes::<EngineRequest>()
        .answers::<EngineChosen>()
        .delete(
            "/api/v1/engines/{name}",
            Operator,
            "Take the choice of an engine back",
            orders::unchoose,
        )
        .answers::<EngineLifted>()
        .get(
            "/api/v1/replicas",
            Viewer,
            "Running copies of models",
            fleet::replicas,
        )
        .asks(MODEL)
        .answers::<Vec<ReplicaView>>()
        .get(
            "/api/v1/replicas/{id}/log",
            Viewer,
            "What a replica's engine wrote, also as it goes on",
            logs::log,
        )
        .asks(LOG)
        .answers::<LogPart>()
        .may_stream("text/event-stream")
        .get(
            "/api/v1/logs",
            Viewer,
            "What the engines of a model said last",
            fleet::logs,
        )
        .asks(THE_MODEL)
        .answers::<Vec<LogView>>()
        .get(
            "/api/v1/capacity",
            Viewer,
            "What models were measured to do",
            orders::capacities,
        )
        .answers::<Vec<Capacity>>()
        .get(
            "/api/v1/tokens",
            Admin,
            "Admin tokens, without their secrets",
            orders::tokens,
        )
        .answers::<Vec<TokenView>>()
        .post(
            "/api/v1/tokens",
            Admin,
            "Make an admin token",
            orders::create_token,
        )
        .takes::<TokenRequest>()
        .answers::<CreatedToken>()
        .delete(
            "/api/v1/tokens/{id}",
            Admin,
            "Revoke an admin token",
            orders::revoke_token,
        )
        .answers::<TokenRevoked>()
        .get(
            "/api/v1/holds",
            Viewer,
            "Where nothing is placed or moved",
            orders::holds,
        )
        .answers::<Vec<HoldView>>()
        .post(
            "/api/v1/holds",
            Operator,
            "Hold a facility, a pool or a node",
            orders::hold,
        )
        .takes::<HoldRequest>()
        .answers::<HoldView>()
        .delete(
            "/api/v1/holds/{name}",
            Operator,
            "Lift a hold",
            orders::lift,
        )
        .answers::<HoldLifted>()
        .get(
            "/api/v1/jobs",
            Viewer,
            "Long work that is under way",
            tenancy::jobs,
        )
        .answers::<Vec<JobView>>()
        .get(
            "/api/v1/jobs/{id}/events",
            Viewer,
            "How a job goes on, as it goes on",
            events::job,
        )
        .streams("text/event-stream")
        .get(
            "/api/v1/audit",
            Viewer,
            "What was ordered, by whom",
            tenancy::audit,
        )
        .asks(PAGE)
        .answers::<Vec<AuditEntry>>()
        .get(
            "/api/v1/events",
            Viewer,
            "What happens, as it happens",
            events::all,
        )
        .streams("text/event-stream")
        .get(
            "/api/v1/weights/orphans",
            Viewer,
            "Weights that no model refers to",
            weights::orphans,
        )
        .answers::<Vec<OrphanView>>()
        .post(
            "/api/v1/weights/collect",
            Operator,
            "Remove such weights",
            weights::collect,
        )
        .takes::<CollectRequest>()
        .answers::<Vec<OrphanView>>()
        .post("/api/v1/plan", Viewer, "What changes would do", fleet::plan)
        .takes::<WhatIf>()
        .answers::<Outcome>()
        .get(
            "/api/v1/snapshot",
            Viewer,
            "All that a plan is made from",
            fleet::snapshot,
        )
        .answers::<Snapshot>()
        .get(
            "/api/v1/explain-placement",
            Viewer,
            "Why a model is not placed",
            models::explain,
        )
        .asks(THE_MODEL)
        .answers::<Explanation>()
        .get(
            "/api/v1/decisions",
            Viewer,
            "What was decided, and why",
            decisions::decisions,
        )
        .asks(DECISIONS)
        .answers::<Vec<Decision>>()
        .get(
            "/metrics",
            Viewer,
            "What Prometheus reads",
            metrics::metrics,
        )
        .streams("text/plain")
        .get("/api/v1/models", Viewer, "What should run", models::list)
        .answers::<Vec<ModelView>>()
        .post("/api/v1/models", Operator, "Add a model", models::add)
        .takes::<ModelDefinition>()
        .answers::<Added>()
        // Names may contain `/`, so that they may take several segments: the router sees them as one.
        .delete(
            "/api/v1/models/{*name}",
            Operator,
            "Remove a model that was added",
            models::remove,
        )
        .answers::<Removed>()
        .post("/api/v1/models/{*name}", Operator, "", models::act)
        .told(
            "POST",
            "/api/v1/models/{name}/scale",
            "Run a model between so many replicas",
        )
        .takes::<ScaleRequest>()
        .answers::<Scaled>()
        .told(
            "POST",
            "/api/v1/models/{name}/retry",
            "Try a parked model again",
        )
        .answers::<Retried>()
        .told(
            "POST",
            "/api/v1/models/{name}/roll",
            "Replace the stale replicas of a model",
        )
        .may_take::<RollRequest>()
        .answers::<Rolled>()
        .put("/api/v1/models/{*name}", Operator, "", models::put)
        .told(
            "PUT",
            "/api/v1/models/{name}",
            "Define a model that was added otherwise",
        )
        .takes::<ModelDefinition>()
        .answers::<Replaced>()
        .told(
            "PUT",
            "/api/v1/models/{name}/capacity",
            "Keep a measurement of a model",
        )
        .takes::<CapacityRequest>()
        .answers::<Capacity>()
        .get(
            "/api/v1/openapi.json",
            Viewer,
            "This description",
            openapi::openapi,
        )
        .answers::<serde_json::Map<String, serde_json::Value>>()
}

// === impl Table ===

impl Table {
    fn get<H, T>(self, path: &'static str, role: Role, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        self.add((MethodFilter::GET, "GET"), path, (role, about), handler)
    }

    fn post<H, T>(self, path: &'static str, role: Role, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        self.add((MethodFilter::POST, "POST"), path, (role, about), handler)
    }

    fn put<H, T>(self, path: &'static str, role: Role, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        self.add((MethodFilter::PUT, "PUT"), path, (role, about), handler)
    }

    fn delete<H, T>(self, path: &'static str, role: Role, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        self.add(
            (MethodFilter::DELETE, "DELETE"),
            path,
            (role, about),
            handler,
        )
    }

    fn add<H, T>(
        mut self,
        (filter, method): (MethodFilter, &'static str),
        path: &'static str,
        (role, about): (Role, &'static str),
        handler: H,
    ) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        let guarded =
            on(filter, handler).route_layer(middleware::from_fn_with_state(role, caller::require));
        self.router = self.router.route(path, guarded);
        // What one handler tells apart by the end of the path is told of one by one.
        if !about.is_empty() {
            self.operations.push(Operation {
                method,
                path,
                role,
                about,
                query: &[],
                body: None,
                body_is_optional: false,
                answer: None,
                media: "application/json",
                stream: None,
            });
        }
        self
    }

    /// Tells of one of the things that the handler before does.
    fn told(mut self, method: &'static str, path: &'static str, about: &'static str) -> Self {
        self.operations.push(Operation {
            method,
            path,
            role: Role::Operator,
            about,
            query: &[],
            body: None,
            body_is_optional: false,
            answer: None,
            media: "application/json",
            stream: None,
        });
        self
    }

    /// Says what may stand in the query of the last operation.
    fn asks(self, query: Query) -> Self {
        self.with_last(|last| last.query = query)
    }

    /// Says what is sent to the last operation.
    fn takes<T: JsonSchema>(self) -> Self {
        self.with_last(|last| last.body = Some(Shape::of::<T>()))
    }

    /// The same, where no body at all is right too.
    fn may_take<T: JsonSchema>(self) -> Self {
        self.with_last(|last| {
            last.body = Some(Shape::of::<T>());
            last.body_is_optional = true;
        })
    }

    /// Says what the last operation answers.
    fn answers<T: JsonSchema>(self) -> Self {
        self.with_last(|last| last.answer = Some(Shape::of::<T>()))
    }

    /// Says that the last operation answers with no JSON.
    fn streams(self, media: &'static str) -> Self {
        self.with_last(|last| last.media = media)
    }

    /// Says that the last operation answers so when it is asked to go on.
    fn may_stream(self, media: &'static str) -> Self {
        self.with_last(|last| last.stream = Some(media))
    }

    fn with_last(mut self, change: impl FnOnce(&mut Operation)) -> Self {
        if let Some(last) = self.operations.last_mut() {
            change(last);
        }
        self
    }

    pub(super) fn into_parts(self) -> (Router, Vec<Operation>) {
        let Self { router, operations } = self;
        (router, operations)
    }
}

const MODEL: Query = &[("model", false, NAME)];
const THE_MODEL: Query = &[("model", true, NAME)];
const LOG: Query = &[
    ("lines", false, LIMIT),
    ("after", false, NUMBER),
    (
        "wait",
        false,
        r#"{"enum": ["1s", "5s"], "description": "a length of time; 10s at most"}"#,
    ),
    ("follow", false, r#"{"type": "boolean"}"#),
];
const PAGE: Query = &[("after", false, NUMBER), ("limit", false, LIMIT)];
const DECISIONS: Query = &[
    ("model", false, NAME),
    ("after", false, NUMBER),
    ("limit", false, LIMIT),
];
const NAME: &str = r##"{"$ref": "#/components/schemas/ModelName"}"##;
const NUMBER: &str = r#"{"type": "integer", "minimum": 0, "maximum": 18446744073709551615}"#;
const LIMIT: &str = r#"{"type": "integer", "minimum": 0, "maximum": 4294967295}"#;
