//! What is carried to a site with no internet, and how it is checked.
//!
//! A bundle is a directory, a tar or its parts, that holds releases, engines and models with a manifest of what
//! they must be. Whoever brings it may have been deceived, so every byte of it is hostile until it was checked:
//! names, sizes, ratios and digests, before anything is written where others look for it.
//!
//! # What it is not
//! It fetches nothing and runs nothing. It has no async runtime: all of it reads and writes through
//! [`std::io`], and the agent, which checks archives with the same code, calls it from a blocking thread.
//! It trusts no archive for being whole, and no reader for being short.
//!
//! # Modules
//! | module | holds |
//! |---|---|
//! | [`archive`] | tar, tar.gz, tar.zst and zip: listed, extracted whole or one member, checked |
//! | [`digest`] | readers and writers that hash what passes |
//! | [`limits`] | how large, how many and how dense an archive may be |
//! | [`error`] | what was refused: the entry's name and the rule |
//!
//! There are no features: a crate that checks must check the same everywhere.
//!
//! # Example
//! ```
//! use llmgw_bundle::{
//!     archive::{ExtractOptions, extract, extract_member},
//!     limits::Limits,
//! };
//!
//! # fn main() -> Result<(), llmgw_bundle::error::ArchiveError> {
//! # let directory = tempfile::tempdir().expect("a directory for the example");
//! # let path = directory.path().join("demo-1.0-py3-none-any.whl");
//! # let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).expect("a file"));
//! # zip.start_file("demo/weights.gguf", zip::write::SimpleFileOptions::default()).expect("an entry");
//! # std::io::Write::write_all(&mut zip, b"GGUF").expect("its bytes");
//! # zip.finish().expect("the directory");
//! let mut weights = Vec::new();
//! let member = extract_member(&path, "demo/weights.gguf", &mut weights, &Limits::default())?;
//! assert_eq!(member.bytes.0, 4);
//! println!("{} is {}", member.sha256, member.bytes);
//!
//! let options = ExtractOptions {
//!     limits: Limits::default(),
//!     collapse_top: true,
//!     cancelled: &|| false,
//!     progress: &|written| println!("{written}"),
//! };
//! let extracted = extract(&path, &path.with_file_name("demo"), &options)?;
//! assert_eq!(extracted.top.as_deref(), Some("demo"));
//! # Ok(())
//! # }
//! ```

pub mod archive;
pub mod digest;
pub mod error;
pub mod limits;
