//! Safetensors, the file of weights that vLLM and SGLang read: its header, bounded, and the index of shards.
//!
//! A file begins with the length of its header (8 bytes, little-endian), then the header: a JSON object from
//! names to types, shapes and places. The format is described in the crate `safetensors`.

mod header;
mod index;
#[cfg(test)]
mod tests;

pub use self::{
    header::{Header, Limits, SafetensorsError, Tensor},
    index::{OpenCause, OpenError, files, open, shards},
};
