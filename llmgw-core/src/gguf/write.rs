//! Writes small GGUF files: for tests, and for a model that an engine can be tried with.

use std::io::{self, Write};

use super::{
    metadata::{Value, ValueKind},
    parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC},
    tensor::{Tensor, TensorType},
};

/// A file that is being put together. Version 3, little-endian, alignment 32.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, TensorType)>,
}

/// Why a file can't be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The size of the type is not known.
    #[error("{name}: the size of {kind} is not known")]
    UnknownType {
        /// The tensor.
        name: String,
        /// Its type.
        kind: TensorType,
    },
    /// A value was read without its content.
    #[error("{key}: its content was not kept")]
    NotKept {
        /// The key.
        key: String,
    },
    /// The data is not as long as the tensor.
    #[error("{name}: {given} bytes of data for a tensor of {needed}")]
    Length {
        /// The tensor.
        name: String,
        /// Bytes that were given.
        given: u64,
        /// Bytes that it has.
        needed: u64,
    },
    /// The bytes could not be written.
    #[error("writing the file")]
    Io(#[from] io::Error),
}

// === impl Draft ===

impl Draft {
    /// Adds a value to the metadata.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor; the first dimension is the one that lies together in memory.
    #[must_use]
    pub fn tensor(mut self, name: &str, dimensions: &[u64], kind: TensorType) -> Self {
        self.tensors
            .push((name.to_owned(), dimensions.to_vec(), kind));
        self
    }

    /// The header alone, up to where the data begins.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when a size is not known, or a value is not there.
    pub fn header(&self) -> Result<Vec<u8>, WriteError> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&3u32.to_le_bytes());
        put_count(&mut out, self.tensors.len());
        put_count(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            put_text(&mut out, key);
            put_kind(&mut out, value.kind());
            put_value(&mut out, key, value)?;
        }
        for tensor in self.placed()? {
            put_text(&mut out, &tensor.name);
            let rank = u32::try_from(tensor.dimensions.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&rank.to_le_bytes());
            for dimension in &tensor.dimensions {
                out.extend_from_slice(&dimension.to_le_bytes());
            }
            out.extend_from_slice(&tensor.kind.0.to_le_bytes());
            out.extend_from_slice(&tensor.offset.to_le_bytes());
        }
        pad(&mut out, self.alignment());
        Ok(out)
    }

    /// Writes the whole file; `data` gives the bytes of each tensor, in the order in which they were added.
    ///
    /// # Errors
    ///
    /// [`WriteError`] when a size is not known, data has the wrong length, or `out` fails.
    pub fn write(
        &self,
        out: &mut impl Write,
        mut data: impl FnMut(&Tensor) -> Vec<u8>,
    ) -> Result<(), WriteError> {
        out.write_all(&self.header()?)?;
        for tensor in self.placed()? {
            let mut bytes = data(&tensor);
            let given = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let needed = size(&tensor)?;
            if given != needed {
                let name = tensor.name;
                return Err(WriteError::Length {
                    name,
                    given,
                    needed,
                });
            }
            pad(&mut bytes, self.alignment());
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// The tensors with their places.
    fn placed(&self) -> Result<Vec<Tensor>, WriteError> {
        let mut next: u64 = 0;
        self.tensors
            .iter()
            .map(|(name, dimensions, kind)| {
                let tensor = Tensor {
                    name: name.clone(),
                    dimensions: dimensions.clone(),
                    kind: *kind,
                    offset: next,
                };
                next = next
                    .saturating_add(size(&tensor)?)
                    .checked_next_multiple_of(self.alignment())
                    .unwrap_or(u64::MAX);
                Ok(tensor)
            })
            .collect()
    }

    fn alignment(&self) -> u64 {
        self.metadata
            .iter()
            .find_map(|(key, value)| match value {
                Value::U32(alignment) if key == ALIGNMENT_KEY => Some(u64::from(*alignment)),
                _ => None,
            })
            .filter(|alignment| alignment.is_power_of_two())
            .unwrap_or(DEFAULT_ALIGNMENT)
    }
}

fn size(tensor: &Tensor) -> Result<u64, WriteError> {
    tensor
        .bytes()
        .map(|bytes| bytes.0)
        .ok_or_else(|| WriteError::UnknownType {
            name: tensor.name.clone(),
            kind: tensor.kind,
        })
}

fn put_value(out: &mut Vec<u8>, key: &str, value: &Value) -> Result<(), WriteError> {
    let not_kept = || WriteError::NotKept {
        key: key.to_owned(),
    };
    match value {
        Value::U8(number) => out.push(*number),
        Value::I8(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::U16(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::I16(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::U32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::I32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::F32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::U64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::I64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::F64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Bool(yes) => out.push(u8::from(*yes)),
        Value::Text(text) => put_text(out, text),
        Value::LongText { .. } => return Err(not_kept()),
        Value::Array(array) => {
            let elements = array.elements.as_ref().ok_or_else(not_kept)?;
            put_kind(out, array.kind);
            put_count(out, elements.len());
            for element in elements {
                put_value(out, key, element)?;
            }
        }
    }
    Ok(())
}

fn put_kind(out: &mut Vec<u8>, kind: ValueKind) {
    out.extend_from_slice(&kind.number().to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
}

fn pad(out: &mut Vec<u8>, alignment: u64) {
    let step = usize::try_from(alignment).unwrap_or(1);
    out.resize(
        out.len()
            .checked_next_multiple_of(step)
            .unwrap_or(out.len()),
        0,
    );
}
