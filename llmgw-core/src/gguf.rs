//! GGUF, the file of weights that llama.cpp reads: its header, bounded, a small writer, and a tiny model to try
//! engines with.
//!
//! Only what stands before the tensors' data is read: metadata and the list of tensors. Vocabularies, which make
//! up most of a header, are counted and not kept. Everything that the file says of itself is bounded by
//! [`Limits`]; what is refused is named with the path of the field.
//!
//! ```
//! use llmgw_core::{
//!     gguf::{Header, Limits, TensorType, Value, write::Draft},
//!     header::Progress,
//! };
//!
//! let bytes = Draft::default()
//!     .with("general.architecture", Value::Text("llama".into()))
//!     .with("llama.block_count", Value::U32(2))
//!     .tensor("token_embd.weight", &[64, 32], TensorType::F16)
//!     .header()?;
//! let Progress::Done(header) = Header::parse(&bytes, &Limits::default())? else { panic!() };
//! assert_eq!(header.metadata.number("llama.block_count")?, Some(2));
//! assert_eq!(header.tensors[0].bytes(), Some(llmgw_core::units::Bytes(64 * 32 * 2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The format is described in ggml's `docs/gguf.md`; versions 2 and 3 are the same but for big-endian files,
//! which version 3 allows and nobody publishes: they are refused by name.

pub mod check;
mod cursor;
mod error;
mod essence;
mod limits;
mod metadata;
mod parse;
pub mod quant;
mod random;
mod split;
mod tensor;
#[cfg(test)]
mod tests;
pub mod write;

pub use self::{
    error::GgufError,
    limits::Limits,
    metadata::{Array, Metadata, Numbers, Value, ValueKind},
    parse::Header,
    split::{OpenCause, OpenError, Split, SplitError, open},
    tensor::{Block, Tensor, TensorType},
};
