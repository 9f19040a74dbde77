//! Archives that are what they should be, and archives that are made to do harm.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

mod corpora;
mod craft;
mod destination;
mod gnu_tar;
mod links;
mod member;
mod memory;
mod mutated;
mod names;
mod site;
mod streams;
mod tar_headers;
mod trees;
mod zip_structure;
