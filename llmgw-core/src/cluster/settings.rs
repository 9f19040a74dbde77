//! The cluster's own settings: one document, of which every version is kept.

use crate::clock::Timestamp;

/// A version of the document, as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredSettings {
    /// Counts from 1.
    pub version: u64,
    /// What it says: YAML as a person wrote it, or JSON.
    pub text: String,
    /// What is known of it besides.
    pub about: AboutSettings,
}

impl StoredSettings {
    /// What it is called in the audit log.
    #[must_use]
    pub fn subject(&self) -> String {
        match self.about.brings_back {
            None => format!("version {}", self.version),
            Some(back) => format!("version {} brings back {back}", self.version),
        }
    }
}

/// What is known of a version besides what it says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AboutSettings {
    /// Who wrote it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Whose text it brought back, when it did.
    pub brings_back: Option<u64>,
}

/// The longest document, in bytes.
pub const LONGEST_SETTINGS: usize = 1 << 20;
/// The most versions that are listed at once.
pub const SETTINGS_PAGE: u32 = 1_000;
