//! The tree that an archive would make, as far as it is known.

use std::collections::BTreeMap;

use super::{fold::fold, listing::Kind};
use crate::{error::Rule, limits::Limits};

/// Folders, files and links by their places.
#[derive(Debug)]
pub(super) struct Tree {
    /// The first is the folder that all are in.
    nodes: Vec<Node>,
    text: u64,
}

/// A place of it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) parent: usize,
    pub(super) what: What,
    /// By the folded name: what a file system takes for the same is the same.
    children: BTreeMap<String, usize>,
}

/// What stands at a place.
#[derive(Debug)]
pub(super) enum What {
    /// A folder, and whether an entry is its own.
    Folder {
        named: bool,
    },
    File,
    Link {
        target: String,
    },
}

impl Tree {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node {
                name: String::new(),
                parent: ROOT,
                what: What::Folder { named: true },
                children: BTreeMap::new(),
            }],
            text: 0,
        }
    }

    /// Adds an entry, and the folders that its name implies.
    pub(super) fn add(&mut self, path: &str, kind: &Kind, limits: &Limits) -> Result<(), Rule> {
        let (above, name) = match path.rsplit_once('/') {
            Some((above, name)) => (Some(above), name),
            None => (None, path),
        };
        let mut place = ROOT;
        for part in above.into_iter().flat_map(|above| above.split('/')) {
            place = self.enter(place, part, limits)?;
        }
        let folded = fold(name);
        let Some(there) = self.child(place, &folded) else {
            let what = match kind {
                Kind::Folder => What::Folder { named: true },
                Kind::File { .. } => What::File,
                Kind::Link { target } => What::Link {
                    target: target.clone(),
                },
            };
            return self.insert(place, name, folded, what, limits).map(drop);
        };
        let Some(node) = self.nodes.get_mut(there) else {
            return Ok(());
        };
        if node.name != name {
            return Err(Rule::SameFolded);
        }
        match (&mut node.what, kind) {
            (What::Folder { named }, Kind::Folder) if !*named => {
                *named = true;
                Ok(())
            }
            (What::Folder { named: false }, _) => Err(Rule::FileAsFolder),
            (What::Link { .. }, Kind::File { .. } | Kind::Folder) => Err(Rule::OverLink),
            _ => Err(Rule::Duplicate),
        }
    }

    /// The only thing at the top, when that is a folder.
    pub(super) fn top(&self) -> Option<(usize, &str)> {
        let root = self.nodes.first()?;
        let mut children = root.children.values();
        let (Some(only), None) = (children.next(), children.next()) else {
            return None;
        };
        let node = self.nodes.get(*only)?;
        matches!(node.what, What::Folder { .. }).then_some((*only, node.name.as_str()))
    }

    pub(super) fn node(&self, place: usize) -> Option<&Node> {
        self.nodes.get(place)
    }

    /// Each place with its number.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate()
    }

    /// What stands in `folder` under the name that folds to `folded`.
    pub(super) fn child(&self, folder: usize, folded: &str) -> Option<usize> {
        self.nodes.get(folder)?.children.get(folded).copied()
    }

    /// The whole name of a place.
    pub(super) fn path(&self, place: usize) -> String {
        let mut parts = Vec::new();
        let mut at = place;
        while at != ROOT {
            let Some(node) = self.nodes.get(at) else {
                break;
            };
            parts.push(node.name.as_str());
            at = node.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// The folder `part` of `place`, made when there is none.
    fn enter(&mut self, place: usize, part: &str, limits: &Limits) -> Result<usize, Rule> {
        let folded = fold(part);
        let Some(there) = self.child(place, &folded) else {
            let what = What::Folder { named: false };
            return self.insert(place, part, folded, what, limits);
        };
        match self.nodes.get(there) {
            Some(node) if node.name != part => Err(Rule::SameFolded),
            Some(Node {
                what: What::File, ..
            }) => Err(Rule::FileAsFolder),
            Some(Node {
                what: What::Link { .. },
                ..
            }) => Err(Rule::ThroughLink),
            _ => Ok(there),
        }
    }

    fn insert(
        &mut self,
        parent: usize,
        name: &str,
        folded: String,
        what: What,
        limits: &Limits,
    ) -> Result<usize, Rule> {
        // The root is no entry.
        if self.nodes.len() > limits.entries {
            return Err(Rule::TooManyEntries(limits.entries));
        }
        let target = match &what {
            What::Link { target } => target.len(),
            What::Folder { .. } | What::File => 0,
        };
        let text = u64::try_from(name.len().saturating_add(target)).unwrap_or(u64::MAX);
        self.text = self.text.saturating_add(text);
        if self.text > limits.text.0 {
            return Err(Rule::TooMuchText(limits.text));
        }
        let place = self.nodes.len();
        self.nodes.push(Node {
            name: name.to_owned(),
            parent,
            what,
            children: BTreeMap::new(),
        });
        if let Some(folder) = self.nodes.get_mut(parent) {
            folder.children.insert(folded, place);
        }
        Ok(place)
    }
}

/// The folder that all are in.
pub(super) const ROOT: usize = 0;
