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

/// Whether an answer to [`one_token`] counts a token.
pub(super) fn is_token(body: &[u8]) -> bool {
    serde_json::from_slice::<Completion>(body)
        .is_ok_and(|answer| answer.usage.completion_tokens >= 1)
}

/// Where [`one_token`] is sent.
pub(super) const COMPLETIONS: &str = "/v1/completions";

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
