//! What matters of a header for memory, as a small header of its own.

use super::{
    Header,
    metadata::Value,
    write::{Draft, WriteError},
};

impl Header {
    /// A header with the same tensors and with the metadata that says how the model is built: numbers, short texts and
    /// short lists of numbers. Of the vocabulary its size alone is left.
    ///
    /// # Errors
    /// [`WriteError`] when the size of a tensor can't be told.
    pub fn essence(&self) -> Result<Vec<u8>, WriteError> {
        let mut draft = Draft::default();
        for (key, value) in &self.metadata.0 {
            if matters(key, value) {
                draft = draft.with(key, value.clone());
            }
        }
        let architecture = self.metadata.text("general.architecture").ok().flatten();
        if let (Some(architecture), Some(Value::Array(tokens))) =
            (architecture, self.metadata.value("tokenizer.ggml.tokens"))
        {
            let key = format!("{architecture}.vocab_size");
            if self.metadata.value(&key).is_none() {
                draft = draft.with(&key, Value::U64(tokens.count));
            }
        }
        for tensor in &self.tensors {
            draft = draft.tensor(&tensor.name, &tensor.dimensions, tensor.kind);
        }
        draft.header()
    }
}

fn matters(key: &str, value: &Value) -> bool {
    if key.starts_with("tokenizer.") {
        return false;
    }
    match value {
        Value::Text(text) => text.len() <= MAX_TEXT,
        Value::LongText { .. } => false,
        Value::Array(array) => {
            let elements = array.elements.as_deref();
            elements.is_some_and(|all| {
                !all.iter().any(|one| {
                    matches!(
                        one,
                        Value::Text(_) | Value::LongText { .. } | Value::Array(_)
                    )
                })
            })
        }
        _ => true,
    }
}

/// Names of architectures and kinds are short; templates and licences are not.
const MAX_TEXT: usize = 256;
