//! What the engines share that answer as OpenAI does.

use llmgw_core::cluster::replica::ReplicaSpec;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Completion {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// The least request that makes an engine compute.
pub(super) fn one_token(spec: &ReplicaSpec) -> Value {
    json!({
        "model": spec.model,
        "prompt": "One, two,",
        "max_tokens": 1,
        "temperature": 0,
        "stream": false,
    })
}

/// The least request for a vector.
pub(super) fn one_vector(spec: &ReplicaSpec) -> Value {
    json!({ "model": spec.model, "input": "One" })
}

/// The least request for a score.
pub(super) fn one_score(spec: &ReplicaSpec) -> Value {
    json!({ "model": spec.model, "query": "One", "documents": ["Two"] })
}

/// Whether an answer to [`one_vector`] has numbers, or one to [`one_score`] a score.
pub(super) fn is_vector_or_score(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        data: Vec<Vector>,
        #[serde(default)]
        results: Vec<Score>,
    }
    #[derive(Deserialize)]
    struct Vector {
        embedding: Vec<f64>,
    }
    #[derive(Deserialize)]
    struct Score {
        #[serde(rename = "relevance_score")]
        _score: f64,
    }
    serde_json::from_slice::<Answer>(body).is_ok_and(|Answer { data, results }| {
        !results.is_empty() || data.iter().any(|vector| !vector.embedding.is_empty())
    })
}

/// Whether an answer to [`one_token`] counts a token.
pub(super) fn is_token(body: &[u8]) -> bool {
    serde_json::from_slice::<Completion>(body)
        .is_ok_and(|answer| answer.usage.completion_tokens >= 1)
}

/// Where [`one_token`] is sent.
pub(super) const COMPLETIONS: &str = "/v1/completions";
/// Where [`one_vector`] is sent.
pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
/// Where [`one_score`] is sent.
pub(super) const RERANK: &str = "/v1/rerank";

#[cfg(test)]
pub(super) mod tests {
    use llmgw_core::{
        cluster::{
            catalog::{Needs, Profile},
            weights::{Source, Weights},
        },
        fingerprint::Fingerprint,
        id::ReplicaId,
        units::{Bytes, Tokens},
    };

    use super::*;

    /// A replica for tests of engines.
    pub(crate) fn spec(engine: &str) -> ReplicaSpec {
        ReplicaSpec {
            id: ReplicaId::generate(),
            model: "org/tiny:q4".parse().unwrap(),
            profile: Profile {
                name: "default".parse().unwrap(),
                engine: engine.parse().unwrap(),
                memory: Bytes::mib(800),
                context: Tokens(4_096),
                parallel: 4,
                needs: Needs::default(),
            },
            weights: Weights {
                sources: vec![Source::File {
                    path: "/models/tiny".to_owned(),
                }],
                sha256: None,
                size: None,
                files: Vec::new(),
            },
            fingerprint: Fingerprint(1),
            gpus: Vec::new(),
        }
    }

    #[test]
    fn a_vector_has_numbers_and_a_score_is_one() {
        for good in [
            r#"{"data":[{"embedding":[0.5],"index":0}],"usage":{}}"#,
            r#"{"results":[{"index":0,"relevance_score":-1.5}]}"#,
        ] {
            assert!(is_vector_or_score(good.as_bytes()), "{good}");
        }
        for other in [
            r#"{"data":[{"embedding":[]}]}"#,
            r#"{"data":[{"embedding":[null]}]}"#,
            r#"{"results":[]}"#,
            r#"{"error":{"code":501}}"#,
            "<html>",
        ] {
            assert!(!is_vector_or_score(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_token_is_one_that_was_counted() {
        assert!(is_token(
            br#"{"choices":[{"text":"x"}],"usage":{"completion_tokens":1}}"#
        ));
        for other in [
            r#"{"usage":{"completion_tokens":0}}"#,
            r#"{"error":{"code":503}}"#,
            "<html>",
            "",
        ] {
            assert!(!is_token(other.as_bytes()), "{other}");
        }
    }
}
