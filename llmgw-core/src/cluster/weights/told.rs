//! What a node tells of the header of weights that it holds, so that their memory can be estimated elsewhere.

use serde::{Deserialize, Serialize};

use super::Weights;
use crate::{
    fingerprint::Fingerprint,
    gguf::{Header, Limits},
    header::Progress,
};

/// What a node tells of one header that it was asked for: one of both.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ToldHeader {
    /// Of which weights: [`ToldHeader::name`] of those that it was asked for.
    pub of: Fingerprint,
    /// A GGUF header with what matters for memory alone ([`Header::essence`]), in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gguf: Option<String>,
    /// Why it can't be read, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ToldHeader {
    /// What tells the weights that are asked for from others; `None` when they have no form, which none lack.
    #[must_use]
    pub fn name(weights: &Weights) -> Option<Fingerprint> {
        Fingerprint::of(weights)
    }

    /// What came of reading the header of some weights.
    #[must_use]
    pub fn new(of: Fingerprint, read: Result<&Header, String>) -> Self {
        let told = read.and_then(|header| match header.essence() {
            Ok(bytes) if bytes.len() <= MAX_BYTES => Ok(data_encoding::BASE64.encode(&bytes)),
            Ok(bytes) => Err(format!(
                "its header has {} bytes even without its vocabulary, and {MAX_BYTES} can be told",
                bytes.len()
            )),
            Err(error) => Err(format!("its header can't be told: {error}")),
        });
        let (gguf, problem) = match told {
            Ok(gguf) => (Some(gguf), None),
            Err(problem) => (None, Some(problem)),
        };
        Self { of, gguf, problem }
    }

    /// The header that was told.
    ///
    /// # Errors
    /// When there is none, or what was told is no header: why, in one line.
    pub fn header(&self) -> Result<Header, String> {
        let text = match (&self.gguf, &self.problem) {
            (Some(text), _) => text,
            (None, Some(problem)) => return Err(problem.chars().take(MAX_PROBLEM).collect()),
            (None, None) => return Err("a newer agent tells it in a way that is not known".into()),
        };
        if text.len() > MAX_BYTES.saturating_mul(2) {
            return Err(format!("{} characters are no header", text.len()));
        }
        let bytes = data_encoding::BASE64.decode(text.as_bytes());
        let bytes = bytes.map_err(|error| format!("what was told is no base64: {error}"))?;
        match Header::parse(&bytes, &Limits::default()) {
            Ok(Progress::Done(header)) => Ok(header),
            Ok(Progress::NeedMore { bytes }) => Err(format!(
                "what was told ends early: {bytes} bytes are needed"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Headers that a node is asked for at the same time, at most: reports are to stay small.
pub const MAX_ASKED: usize = 8;

/// Thousands of tensors.
const MAX_BYTES: usize = 384 << 10;
const MAX_PROBLEM: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Array, TensorType, Value, ValueKind, write::Draft};

    fn header(draft: &Draft) -> Header {
        let bytes = draft.header().unwrap();
        let Ok(Progress::Done(header)) = Header::parse(&bytes, &Limits::default()) else {
            panic!();
        };
        header
    }

    fn draft() -> Draft {
        let tokens = (0..5_000).map(|n| Value::Text(format!("token {n}")));
        Draft::default()
            .with("general.architecture", Value::Text("llama".into()))
            .with("llama.block_count", Value::U32(2))
            .with(
                "llama.attention.head_count_kv",
                Value::Array(Array {
                    kind: ValueKind::U32,
                    count: 2,
                    elements: Some(vec![Value::U32(8), Value::U32(4)]),
                }),
            )
            .with(
                "tokenizer.ggml.tokens",
                Value::Array(Array {
                    kind: ValueKind::Text,
                    count: 5_000,
                    elements: Some(tokens.collect()),
                }),
            )
            .with("tokenizer.chat_template", Value::Text("x".repeat(3_000)))
            .tensor("token_embd.weight", &[64, 5_000], TensorType::F16)
            .tensor("blk.0.attn_q.weight", &[64, 64], TensorType::Q4_0)
    }

    #[test]
    fn what_matters_of_a_header_survives_the_way_and_its_vocabulary_stays_behind() {
        let whole = header(&draft());
        let told = ToldHeader::new(Fingerprint(1), Ok(&whole));
        let json = serde_json::to_string(&told).unwrap();
        assert!(json.len() < 1_000, "{}", json.len());
        let told: ToldHeader = serde_json::from_str(&json).unwrap();
        let came = told.header().unwrap();
        assert_eq!(came.metadata.number("llama.block_count").unwrap(), Some(2));
        assert_eq!(
            came.metadata.number("llama.vocab_size").unwrap(),
            Some(5_000)
        );
        let heads = "llama.attention.head_count_kv";
        assert_eq!(came.metadata.value(heads), whole.metadata.value(heads));
        let sizes = |header: &Header| -> Vec<_> {
            let tensors = header.tensors.iter();
            tensors.map(|one| (one.name.clone(), one.bytes())).collect()
        };
        assert_eq!(sizes(&came), sizes(&whole));
    }

    #[test]
    fn what_is_no_header_is_told_by_its_problem_whatever_comes() {
        let coded = |bytes: &[u8]| Some(data_encoding::BASE64.encode(bytes));
        for (gguf, problem, says) in [
            (None, Some("it is a page"), "it is a page"),
            (None, None, "newer agent"),
            (Some("…".to_owned()), None, "no base64"),
            (coded(b"GGUF"), None, "ends early"),
            (coded(b"<html>"), None, "no GGUF file"),
            (Some("A".repeat(MAX_BYTES * 2 + 1)), None, "are no header"),
        ] {
            let told = ToldHeader {
                of: Fingerprint(1),
                gguf,
                problem: problem.map(str::to_owned),
            };
            let error = told.header().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
