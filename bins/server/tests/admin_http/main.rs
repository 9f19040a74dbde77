//! The admin API as a client sees it that knows HTTP alone.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

mod paths;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use llmgw_core::{
    api::{
        admin::{NodeView, ReplicaView, Summary},
        frozen::Thawed,
        orders::{LogView, NodeStateRequest, NodeStateView},
        whatif::{Change, Outcome, Snapshot},
    },
    control::{Control, ControlError, Fleet},
    error::Code,
    id::ModelName,
    testing::control::MemoryControl,
};
use llmgw_server::admin::{AdminDeps, router};
use serde_json::{Value, json};
use tower::ServiceExt;

const TOKEN: &str = "0123456789abcdef";

/// What is asked, and what must come.
struct Case {
    method: Method,
    path: &'static str,
    body: Body,
    status: StatusCode,
    code: &'static str,
    says: &'static str,
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
}

async fn send(control: Control, request: Request<Body>) -> Response<Value> {
    let deps = AdminDeps::new(control, TOKEN);
    let response = router(deps).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(parts.headers["content-type"], "application/json");
    assert!(parts.headers.contains_key("x-request-id"));
    let json = serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    Response::from_parts(parts, json)
}

async fn ask(method: Method, path: &str, body: impl Into<Body>) -> Response<Value> {
    let request = request(method, path).body(body.into()).unwrap();
    send(MemoryControl::sample().control(), request).await
}

fn wrong(
    method: Method,
    path: &'static str,
    body: impl Into<Body>,
    (status, code, says): (u16, &'static str, &'static str),
) -> Case {
    Case {
        method,
        path,
        body: body.into(),
        status: StatusCode::from_u16(status).unwrap(),
        code,
        says,
    }
}

async fn each_is_refused(cases: impl IntoIterator<Item = Case>) {
    for case in cases {
        let what = format!("{} {}", case.method, case.path);
        let answer = ask(case.method, case.path, case.body).await;
        let body = answer.body();
        assert_eq!(answer.status(), case.status, "{what}: {body}");
        assert_eq!(body["code"], case.code, "{what}: {body}");
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(case.says), "{what}: {error}");
    }
}

#[tokio::test]
async fn lists_are_bare_arrays_and_the_summary_is_an_object() {
    for (path, length) in [
        ("nodes", 3),
        ("models", 4),
        ("replicas", 3),
        ("engines", 1),
        ("replicas?model=tiny", 1),
        ("usage", 2),
        ("decisions", 5),
        ("decisions?model=broken", 2),
        ("decisions?model=tiny", 1),
        ("decisions?model=gone", 1),
        ("decisions?after=2&limit=2", 2),
        ("decisions?model=broken&after=3", 1),
    ] {
        let answer = ask(Method::GET, &format!("/api/v1/{path}"), "").await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(
            answer.body().as_array().map(Vec::len),
            Some(length),
            "{path}: {}",
            answer.body()
        );
    }
    let summary = ask(Method::GET, "/api/v1/summary", "").await.into_body();
    assert_eq!(summary["models_total"], 4);
}

#[tokio::test]
async fn changes_are_answered_with_what_they_would_do() {
    let changes = json!({"changes": [{"drain": "alpha"}, {"add": {
        "name": "new", "source": "file:/new.gguf", "profiles": [{"memory": "400GB"}],
    }}]});
    let answer = ask(Method::POST, "/api/v1/plan", changes.to_string()).await;
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.body());
    let outcome: Outcome = serde_json::from_value(answer.into_body()).unwrap();
    let lacking: Vec<&str> = outcome
        .unplaceable
        .iter()
        .map(|report| report.model.as_str())
        .collect();
    assert_eq!(lacking, ["new", "org/qwen:7b", "smollm2-135m"]);
    let already: Vec<&str> = outcome
        .lacking_already
        .iter()
        .map(|name| name.as_str())
        .collect();
    assert_eq!(already, ["huge"]);
}

#[tokio::test]
async fn a_change_that_cannot_be_made_is_named_by_its_path() {
    let path = "/api/v1/plan";
    let case = |body: Value, says| {
        let expected = (400, "invalid_request", says);
        wrong(Method::POST, path, body.to_string(), expected)
    };
    let definition = |memory: &str| json!({"name": "n", "source": "file:/n.gguf", "profiles": [{"memory": memory}]});
    each_is_refused([
        case(
            json!({"changes": [{"drain": "nowhere"}]}),
            "changes[0].drain: there is no node nowhere",
        ),
        case(
            json!({"changes": [{"add": definition("1GiB")}, {"add": definition("0")}]}),
            "changes[1].add.profiles[0].memory: ",
        ),
        case(json!({"changes": [{"paint": "alpha"}]}), "changes[0]"),
        case(
            json!({"changes": [{"add": definition("much")}]}),
            "changes[0].add.profiles[0].memory: ",
        ),
        case(
            json!({"changes": [{"scale": ["tiny", 2]}]}),
            "changes[0].scale: a list stands where an object should",
        ),
        case(
            json!({"changes": [["drain", "alpha"]]}),
            "changes[0]: a list stands where an object should",
        ),
        case(json!({"changes": [1]}), "changes[0]: "),
        case(json!([]), "the body is a list, and should be an object"),
        case(json!({}), "missing field `changes`"),
    ])
    .await;
    let large = format!("{{\"changes\": []}}{}", " ".repeat(1 << 20));
    let expected = (413, "request_too_large", "the body is larger than 1024 KiB");
    each_is_refused([
        wrong(Method::POST, path, large, expected),
        wrong(Method::GET, path, "", (405, "method_not_allowed", "")),
    ])
    .await;
}

#[tokio::test]
async fn what_is_unknown_is_absent() {
    let nodes = ask(Method::GET, "/api/v1/nodes", "").await.into_body();
    let old = nodes
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["probed"] == false)
        .unwrap();
    for field in ["memory_total", "disk_free", "gpu_total", "cpu_cores"] {
        assert_eq!(old.get(field), None, "{old}");
    }
}

#[tokio::test]
async fn writes_answer_what_was_done() {
    let memory = MemoryControl::sample();
    let definition = json!({
        "name": "org/new:1",
        "source": "file:/models/new.gguf",
        "profiles": [{"memory": "1GiB"}],
    });
    let steps = [
        (
            Method::POST,
            "/api/v1/models",
            json!({"added": "org/new:1"}),
        ),
        // A slash may come as it is, or encoded.
        (
            Method::POST,
            "/api/v1/models/org/new:1/retry",
            json!({"retried": "org/new:1"}),
        ),
        (
            Method::POST,
            "/api/v1/models/org%2Fnew%3A1/retry",
            json!({"retried": "org/new:1"}),
        ),
        (
            Method::PUT,
            "/api/v1/models/org/new:1",
            json!({"replaced": "org/new:1", "stale": 0}),
        ),
        (
            Method::DELETE,
            "/api/v1/models/org%2Fnew:1",
            json!({"removed": "org/new:1"}),
        ),
    ];
    for (method, path, expected) in steps {
        let request = request(method, path)
            .body(Body::from(definition.to_string()))
            .unwrap();
        let answer = send(memory.control(), request).await;
        assert_eq!(answer.body(), &expected, "{path}");
        assert_eq!(answer.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn what_is_forced_is_said_with_the_field_or_refused() {
    let roll = "/api/v1/models/tiny/roll";
    let state = "/api/v1/nodes/alpha/state";
    let no_need = (409, "conflict", "no replica of smollm2-135m is stale");
    let post = |path: &'static str, body: &'static str, expected| {
        wrong(Method::POST, path, body, expected)
    };
    each_is_refused([
        post(roll, "", no_need),
        post(roll, "{}", no_need),
        post(roll, r#"{"force": true}"#, no_need),
        post(
            roll,
            r#"{"force": 1}"#,
            (400, "invalid_request", "force: invalid type"),
        ),
        post(
            roll,
            r#"{"forse": true}"#,
            (400, "invalid_request", "unknown field `forse`"),
        ),
        post(roll, "yes", (400, "invalid_json", "the body is not JSON")),
        post(
            state,
            r#"{"state": "ready", "force": true}"#,
            (400, "invalid_request", "force: nothing has to go"),
        ),
    ])
    .await;
    let body = r#"{"state": "drain", "force": true}"#;
    let answer = ask(Method::POST, state, body).await;
    assert_eq!(answer.body()["state"], "draining", "{}", answer.body());
}

#[tokio::test]
async fn a_wrong_definition_is_refused_with_the_path_of_the_field() {
    let models = "/api/v1/models";
    let post = |body: &'static str, expected| wrong(Method::POST, models, body, expected);
    each_is_refused([
        post("", (400, "invalid_json", "the body is not JSON: EOF")),
        post("{", (400, "invalid_json", "line 1 column 1")),
        post("name: x", (400, "invalid_json", "the body is not JSON")),
        post("{} {}", (400, "invalid_request", "missing field `name`")),
        post("[]", (400, "invalid_request", "")),
        post(
            r#"{"name":"a","source":"file:/x","profiles":[{"memory":"1GiB"}]} x"#,
            (400, "invalid_json", "trailing characters"),
        ),
        post(
            r#"{"name":"a","source":"file:/x","profiles":[{"memory":"much"}]}"#,
            (400, "invalid_request", r#"profiles[0].memory: "much""#),
        ),
        post(
            r#"{"name":"a","source":"file:/x","profiles":[{"memory":1,"gpu_count":2}]}"#,
            (
                400,
                "invalid_request",
                "profiles[0].gpu_count: unknown field `gpu_count`",
            ),
        ),
        post(
            r#"{"name":"a","nom":"b"}"#,
            (400, "invalid_request", "unknown field `nom`"),
        ),
        post(
            r#"{"name":"a","source":5}"#,
            (
                400,
                "invalid_request",
                "source: not a text or a list of texts",
            ),
        ),
        post(
            r#"{"name":5}"#,
            (400, "invalid_request", "name: invalid type: integer `5`"),
        ),
        post(
            r#"{"name":"a b","source":"file:/x","profiles":[{"memory":1}]}"#,
            (400, "invalid_request", r#"name: "a b" is not a model name"#),
        ),
        post(
            r#"{"name":"a","source":"file:/x","profiles":[{"memory":1,"context":1}]}"#,
            (400, "invalid_request", "profiles[0].context: "),
        ),
        post(
            r#"{"name":"tiny","source":"file:/x","profiles":[{"memory":1}]}"#,
            (409, "conflict", "tiny is already an alias of smollm2-135m"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_list_is_not_taken_for_an_object() {
    each_is_refused([
        wrong(
            Method::POST,
            "/api/v1/keys",
            r#"["ops"]"#,
            (400, "invalid_request", "the body is a list"),
        ),
        wrong(
            Method::POST,
            "/api/v1/models",
            r#"{"name":"a","source":"file:/x","profiles":[["p","llamacpp","1GiB",512,1]]}"#,
            (400, "invalid_request", "profiles[0]: a list stands where"),
        ),
        wrong(
            Method::PUT,
            "/api/v1/tenants",
            r#"{"path":"/","limits":[null,null]}"#,
            (400, "invalid_request", "limits: a list stands where"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_missing() {
    let get = |path, expected| wrong(Method::GET, path, "", expected);
    let post = |path, expected| wrong(Method::POST, path, "", expected);
    let delete = |path, expected| wrong(Method::DELETE, path, "", expected);
    let unknown = (404, "not_found", "there is no model nobody");
    let no_such_path = |says| (404, "unknown_url", says);
    let wrong_method = |says| (405, "method_not_allowed", says);
    each_is_refused([
        delete("/api/v1/models/nobody", unknown),
        post("/api/v1/models/nobody/retry", unknown),
        get("/api/v1/replicas?model=nobody", unknown),
        get("/api/v1/explain-placement?model=nobody", unknown),
        delete(
            "/api/v1/models/smollm2-135m",
            (409, "conflict", "smollm2-135m is declared"),
        ),
        get("/", no_such_path("there is no /")),
        get("/api/v1", no_such_path("there is no /api/v1")),
        get("/api/v1/nodes/", no_such_path("there is no /api/v1/nodes/")),
        post("/api/v1/models/broken/paint", no_such_path("broken/paint")),
        post("/api/v1/models/a%2Fretry", no_such_path("a%2Fretry")),
        post(
            "/api/v1/nodes",
            wrong_method("POST is not for /api/v1/nodes"),
        ),
        delete("/api/v1/models", wrong_method("DELETE is not for")),
        get("/api/v1/models/broken", wrong_method("GET is not for")),
    ])
    .await;
    let answer = ask(Method::POST, "/api/v1/nodes", "").await;
    assert_eq!(answer.headers()["allow"], "GET,HEAD");
}

#[tokio::test]
async fn a_wrong_query_or_name_is_refused_by_name() {
    let get = |path, says| wrong(Method::GET, path, "", (400, "invalid_request", says));
    each_is_refused([
        wrong(
            Method::GET,
            "/api/v1/explain-placement",
            "",
            (400, "missing_field", "model: missing from the query"),
        ),
        get("/api/v1/explain-placement?model=", "model: \"\" is not"),
        get(
            "/api/v1/explain-placement?modell=a",
            "unknown field `modell`",
        ),
        get(
            "/api/v1/replicas?model=a&model=b",
            "duplicate field `model`",
        ),
        get("/api/v1/replicas?model=a%20b", "model: \"a b\" is not"),
        get("/api/v1/decisions?model=a%20b", "model: \"a b\" is not"),
        get("/api/v1/decisions?after=-1", "invalid digit"),
        get("/api/v1/decisions?since=1", "unknown field `since`"),
        wrong(
            Method::DELETE,
            "/api/v1/models/a%20b",
            "",
            (400, "invalid_request", "name: \"a b\" is not"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let large = |bytes: usize| vec![b' '; bytes];
    each_is_refused([
        wrong(
            Method::POST,
            "/api/v1/models",
            large((1 << 20) + 1),
            (413, "request_too_large", "larger than 1024 KiB"),
        ),
        wrong(
            Method::POST,
            "/api/v1/models",
            large(1 << 20),
            (400, "invalid_json", "EOF"),
        ),
        wrong(
            Method::POST,
            "/api/v1/models/broken/retry",
            large((64 << 10) + 1),
            (413, "request_too_large", "larger than 64 KiB"),
        ),
        wrong(
            Method::DELETE,
            "/api/v1/models/broken",
            large((64 << 10) + 1),
            (413, "request_too_large", "larger than 64 KiB"),
        ),
    ])
    .await;
    let within = ask(Method::POST, "/api/v1/models/broken/retry", large(64 << 10)).await;
    assert_eq!(within.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_is_not_said_to_be_json_is_not_read() {
    for content_type in [None, Some("text/plain"), Some("application/x-yaml")] {
        let mut request = request(Method::POST, "/api/v1/models")
            .body(Body::from("{}"))
            .unwrap();
        let headers = request.headers_mut();
        headers.remove("content-type");
        if let Some(value) = content_type {
            headers.insert("content-type", value.parse().unwrap());
        }
        let answer = send(MemoryControl::sample().control(), request).await;
        assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(answer.body()["code"], "invalid_request");
    }
}

#[tokio::test]
async fn every_path_needs_the_token() {
    for path in ["/api/v1/nodes", "/api/v1/nothing", "/"] {
        for (header, says) in [
            (None, "the admin token is missing"),
            (Some("Basic Zm9vOmJhcg=="), "the admin token is missing"),
            (Some("Bearer wrong"), "that is not the admin token"),
        ] {
            let mut request = request(Method::GET, path).body(Body::empty()).unwrap();
            let headers = request.headers_mut();
            headers.remove("authorization");
            if let Some(value) = header {
                headers.insert("authorization", value.parse().unwrap());
            }
            let answer = send(MemoryControl::sample().control(), request).await;
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(answer.body()["error"], says);
            assert_eq!(answer.body()["code"], "invalid_api_key");
            let hint = answer.body()["hint"].as_str().unwrap();
            assert!(hint.contains("admin.token in the data directory"), "{hint}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test]
async fn a_plain_request_id_is_kept_and_another_is_replaced() {
    for (sent, kept) in [("abc-1.2:3", true), ("a b", false), ("", false)] {
        let request = request(Method::GET, "/api/v1/nodes")
            .header("x-request-id", sent)
            .body(Body::empty())
            .unwrap();
        let answer = send(MemoryControl::sample().control(), request).await;
        let id = answer.headers()["x-request-id"].to_str().unwrap();
        assert_eq!(id == sent, kept, "{sent:?}");
        assert!(kept || id.starts_with("req-"), "{id}");
    }
}

#[tokio::test]
async fn what_may_pass_says_when_to_ask_again() {
    let memory = MemoryControl::sample();
    memory.fail_with(Some(ControlError::new(Code::Unavailable, "no store")));
    let request = request(Method::GET, "/api/v1/nodes")
        .body(Body::empty())
        .unwrap();
    let answer = send(memory.control(), request).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "1");
}

/// A fleet that is asked and never answers.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Fleet for Silent {
    async fn summary(&self) -> Result<Summary, ControlError> {
        std::future::pending().await
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, ControlError> {
        std::future::pending().await
    }

    async fn replicas(&self, _: Option<&ModelName>) -> Result<Vec<ReplicaView>, ControlError> {
        std::future::pending().await
    }

    async fn use_node(&self, _: &str, _: NodeStateRequest) -> Result<NodeStateView, ControlError> {
        std::future::pending().await
    }

    async fn thaw(&self) -> Result<Thawed, ControlError> {
        std::future::pending().await
    }

    async fn approve(&self, _: &str) -> Result<NodeStateView, ControlError> {
        std::future::pending().await
    }

    async fn logs(&self, _: &ModelName) -> Result<Vec<LogView>, ControlError> {
        std::future::pending().await
    }

    async fn snapshot(&self) -> Result<Snapshot, ControlError> {
        std::future::pending().await
    }

    async fn plan(&self, _: &[Change]) -> Result<Outcome, ControlError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_does_not_answer_is_not_waited_for() {
    let control = Control {
        fleet: Arc::new(Silent),
        ..MemoryControl::sample().control()
    };
    let request = request(Method::GET, "/api/v1/summary")
        .body(Body::empty())
        .unwrap();
    let started = tokio::time::Instant::now();
    let answer = send(control, request).await;
    assert_eq!(started.elapsed(), Duration::from_secs(30));
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.body()["error"], "no answer within 30 s");
}
