//! Checked extraction of archives that may be made to do harm.
//!
//! An archive is read twice through one open file. The first pass checks every entry against every [`Rule`] and
//! the [`Limits`], and writes nothing; the second writes beneath an open directory, follows no link, and stops
//! when what it sees is not what was checked. What is written becomes visible under its name when it is whole and
//! on the disk, and not before.
//!
//! The headers of tar and zip are read here, byte by byte: libraries for them are made to accept what they can
//! make sense of, and an archive in which two readers find different files is the tool of those who want one
//! program to check what another does not run.
//!
//! | format | from | read with |
//! |---|---|---|
//! | tar | old Unix, ustar, pax and GNU headers, long names | `tar` for the layout of a header |
//! | tar.gz | one gzip member (RFC 1952) | `flate2` |
//! | tar.zst | one zstd frame (RFC 8878), no dictionary | `ruzstd` |
//! | zip | stored and deflated members, zip64 (APPNOTE.TXT) | `flate2` |
//!
//! Of the metadata, whether the owner may execute a file is kept: files get the mode 0644 or 0755, folders 0755.
//! Times, owners and extended attributes are not.

mod content;
mod extraction;
mod fold;
mod format;
mod input;
mod links;
mod listing;
mod member;
mod name;
mod packed;
mod place;
mod reading;
mod tar;
mod tree;
mod walk;
mod zip;

pub use self::{
    extraction::{ExtractOptions, Extracted, extract},
    format::Format,
    input::recognise,
    listing::{Entry, Kind, Listing, inspect},
    member::{Member, extract_member},
};
#[cfg(doc)]
use crate::{error::Rule, limits::Limits};
