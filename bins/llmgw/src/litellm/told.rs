//! What is told of what was not carried, or became something else.

use std::collections::BTreeMap;

use serde::Serialize;

use super::document::{Node, Place};

/// What became of something, and why.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Remark {
    /// The file that it stands in.
    pub file: String,
    /// The line, from 1, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Where it stands in the file, such as `model_list[0].litellm_params.rpm`.
    pub path: String,
    /// How many others there are of its kind, with the same reason.
    #[serde(skip_serializing_if = "is_zero")]
    pub others: usize,
    /// What became of it.
    pub fate: Fate,
    /// Why.
    pub why: String,
    /// What would help, where something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// What became of something.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is not there any more.
    NotCarried,
    /// It became something that is not the same.
    Changed,
}

/// Remarks, as they are made.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<Remark>);

// === impl Told ===

impl Told {
    pub(super) fn left(&mut self, place: &Place, node: &Node, why: impl Into<String>, help: &str) {
        self.tell(Fate::NotCarried, place, node, why.into(), help);
    }

    pub(super) fn changed(
        &mut self,
        place: &Place,
        node: &Node,
        why: impl Into<String>,
        help: &str,
    ) {
        self.tell(Fate::Changed, place, node, why.into(), help);
    }

    /// Says that a value stands in a variable of another process; `false` when it does not.
    pub(super) fn is_variable(&mut self, place: &Place, node: &Node) -> bool {
        let Some(name) = node.variable() else {
            return false;
        };
        let why = format!(
            "its value is in the variable {}, where LiteLLM runs",
            short(name)
        );
        self.left(place, node, why, "write the value in its place");
        true
    }

    fn tell(&mut self, fate: Fate, place: &Place, node: &Node, why: String, help: &str) {
        self.0.push(Remark {
            file: place.file.clone(),
            line: node.line,
            path: short(&place.path),
            others: 0,
            fate,
            why,
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }

    /// All of them, those of a kind as one, in the order of these files and their lines.
    pub(super) fn finish(self, files: &[&str]) -> Vec<Remark> {
        let mut kinds: BTreeMap<(String, String, Fate, String), usize> = BTreeMap::new();
        let mut remarks: Vec<Remark> = Vec::new();
        for remark in self.0 {
            let kind = (
                remark.file.clone(),
                kind(&remark.path),
                remark.fate,
                remark.why.clone(),
            );
            let at = *kinds.entry(kind).or_insert(remarks.len());
            match remarks.get_mut(at) {
                Some(first) => first.others += 1,
                None => remarks.push(remark),
            }
        }
        let file = |remark: &Remark| files.iter().position(|file| *file == remark.file);
        remarks.sort_by_key(|remark| (file(remark), remark.line));
        remarks
    }
}

/// A path without its numbers.
fn kind(path: &str) -> String {
    let mut inside = false;
    path.chars()
        .filter(|c| {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ => return !(inside && c.is_ascii_digit()),
            }
            true
        })
        .collect()
}

/// As much of a text of others as fits a line.
pub(super) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the attribute that names it passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

const MOST: usize = 160;
