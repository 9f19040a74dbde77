//! Names in paths, and methods of what stands behind them.

use http::{Method, StatusCode};
use llmgw_server::admin::operations;

use super::{ask, each_is_refused, wrong};

#[tokio::test]
async fn a_path_that_is_no_text_is_refused_in_json_by_every_route_that_takes_a_name() {
    let mut routes = 0;
    for operation in operations() {
        let mut path = operation.path.to_owned();
        for name in ["{id}", "{name}", "{*name}"] {
            path = path.replace(name, "%ff");
        }
        if path == operation.path {
            continue;
        }
        let method: Method = operation.method.parse().unwrap();
        let answer = ask(method.clone(), &path, "").await;
        let body = answer.body();
        let what = format!("{method} {path}: {body}");
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{what}");
        assert_eq!(body["code"], "invalid_request", "{what}");
        let error = body["error"].as_str().unwrap();
        assert!(error.starts_with("in the path: "), "{what}");
        routes += 1;
    }
    assert!(routes >= 14, "{routes}");
}

#[tokio::test]
async fn what_stands_behind_a_model_is_for_its_own_methods() {
    for (method, path, allowed) in [
        (Method::PUT, "/api/v1/models/broken/retry", "POST"),
        (Method::PUT, "/api/v1/models/broken/roll", "POST"),
        (Method::PUT, "/api/v1/models/org/qwen:7b/scale", "POST"),
        (Method::DELETE, "/api/v1/models/broken/retry", "POST"),
        (Method::DELETE, "/api/v1/models/broken/capacity", "PUT"),
        (Method::POST, "/api/v1/models/broken/capacity", "PUT"),
    ] {
        let answer = ask(method.clone(), path, "{}").await;
        let what = format!("{method} {path}: {}", answer.body());
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{what}");
        assert_eq!(answer.body()["code"], "method_not_allowed", "{what}");
        assert_eq!(answer.headers()["allow"], allowed, "{what}");
    }
    // Where the slash belongs to the name, it is a model's.
    each_is_refused([wrong(
        Method::DELETE,
        "/api/v1/models/broken%2Fretry",
        "",
        (404, "not_found", "there is no model broken/retry"),
    )])
    .await;
}
