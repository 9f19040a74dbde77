//! Why bytes are not a header that can be used.

/// Says what in a header can't be right, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem} (at byte {offset})")]
pub struct GgufError {
    /// The path of the field, such as `metadata[3].llama.block_count`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// Where in the file it stands.
    pub offset: u64,
    /// What would help.
    pub hint: Option<String>,
}

impl GgufError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>, offset: u64) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
            offset,
            hint: None,
        }
    }

    pub(super) fn with_hint(self, hint: &str) -> Self {
        Self {
            hint: Some(hint.to_owned()),
            ..self
        }
    }
}
