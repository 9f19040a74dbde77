//! What an engine's publisher has released: GitHub's release API, asked once for the whole fleet.
//!
//! [`parse`] reads an answer and is pure; [`ReleaseClient`] asks. The client follows redirects within the API's
//! own host only with its token, respects the limits that the API announces, and reads no more than
//! [`MAX_ANSWER`] bytes.
//!
//! `releases/latest` of a project may name a release that carries no programs at all (some are made for a
//! library or an app), so that "the newest" is looked for among the last releases instead.

mod client;
mod error;
mod parse;

pub use self::{
    client::{Answer, ReleaseClient},
    error::ReleaseError,
    parse::{ParseError, parse, parse_list},
};
use crate::units::Bytes;

/// Where llama.cpp's releases are listed.
pub const LLAMACPP_RELEASES: &str = "https://api.github.com/repos/ggml-org/llama.cpp/releases";

/// The most bytes of an answer that are read. A release with 40 assets has about 100 KiB.
pub const MAX_ANSWER: Bytes = Bytes::mib(8);

#[cfg(test)]
mod tests;
