//! `model_group_alias` and the fallbacks.

use std::collections::BTreeSet;

use llmgw_core::{cluster::catalog::ModelDefinition, id::ModelName};

use super::{
    document::{Node, Place},
    told::{Told, short},
};

/// Other names, and who serves in whose place; as they are gathered from all files.
#[derive(Debug, Default)]
pub(super) struct Routing {
    aliases: Vec<Named>,
    fallbacks: Vec<Named>,
    for_all: Vec<(Place, Node)>,
}

/// A value that stands under the name of a model.
#[derive(Debug)]
struct Named {
    place: Place,
    name: String,
    node: Node,
}

// === impl Routing ===

impl Routing {
    /// `{alias: model}` or `{alias: {model: …, hidden: …}}`.
    pub(super) fn aliases(&mut self, node: &Node, place: &Place, told: &mut Told) {
        let Some(entries) = node.map() else {
            told.left(place, node, "it is no map of aliases", "");
            return;
        };
        for (name, node) in entries {
            self.aliases.push(Named {
                place: place.key(name),
                name: name.clone(),
                node: node.clone(),
            });
        }
    }

    /// `[{model: [other, …]}, …]`, where `*` is every model.
    pub(super) fn fallbacks(&mut self, node: &Node, place: &Place, told: &mut Told) {
        let Some(all) = node.list() else {
            told.left(place, node, "it is no list of fallbacks", "");
            return;
        };
        for (index, one) in all.iter().enumerate() {
            let place = place.index(index);
            let Some(entries) = one.map() else {
                told.left(&place, one, "it is no fallback of a model", "");
                continue;
            };
            for (name, node) in entries {
                if name == "*" {
                    self.for_all(node, &place.key(name));
                    continue;
                }
                self.fallbacks.push(Named {
                    place: place.key(name),
                    name: name.clone(),
                    node: node.clone(),
                });
            }
        }
    }

    /// `[other, …]`, of every model.
    pub(super) fn for_all(&mut self, node: &Node, place: &Place) {
        self.for_all.push((place.clone(), node.clone()));
    }

    /// Gives the models their aliases and fallbacks, so that they can be right together.
    pub(super) fn finish(self, models: &mut [ModelDefinition], told: &mut Told) {
        let Self {
            aliases,
            fallbacks,
            for_all,
        } = self;
        for Named { place, name, node } in &aliases {
            give_alias(models, name, node, place, told);
        }
        for Named { place, name, node } in &fallbacks {
            let Some(at) = position(models, name) else {
                let why = format!("{} is not carried", short(name));
                told.left(place, node, why, "");
                continue;
            };
            for other in names(node, place, told) {
                give_fallback(models, at, other, (place, node), told);
            }
        }
        for (place, node) in &for_all {
            for other in names(node, place, told) {
                let Some(of) = position(models, other) else {
                    let why = format!("{} is not carried", short(other));
                    told.left(place, node, why, "");
                    continue;
                };
                for at in (0..models.len()).filter(|at| *at != of) {
                    give_fallback(models, at, other, (place, node), told);
                }
            }
        }
    }
}

fn give_alias(
    models: &mut [ModelDefinition],
    alias: &str,
    node: &Node,
    place: &Place,
    told: &mut Told,
) {
    let model = node.get("model").unwrap_or(node);
    if told.is_variable(place, model) {
        return;
    }
    let Some(at) = model.text().and_then(|name| position(models, name)) else {
        told.left(place, node, "its model is not carried", "");
        return;
    };
    if alias.parse::<ModelName>().is_err() {
        told.left(place, node, "it is no name of a model", NAMES);
        return;
    }
    if position(models, alias).is_some() {
        let why = format!("{} is a model already, or an alias of one", short(alias));
        told.left(place, node, why, "");
        return;
    }
    if node.get("hidden").is_some_and(|hidden| !hidden.is_true()) {
        let why = "aliases are served and not listed: /v1/models lists models by their own names";
        told.changed(place, node, why, "");
    }
    if let Some(model) = models.get_mut(at) {
        model.aliases.push(alias.to_owned());
    }
}

/// The names of fallbacks; of one with parameters of its own, the name alone.
fn names<'a>(node: &'a Node, place: &Place, told: &mut Told) -> Vec<&'a str> {
    let alone = std::slice::from_ref(node);
    let mut names = Vec::new();
    for one in node.list().unwrap_or(alone) {
        let model = one.get("model").unwrap_or(one);
        if told.is_variable(place, model) {
            continue;
        }
        if one.map().is_some() {
            let why = "a fallback is asked what the client asked, with no parameters of its own";
            told.changed(place, one, why, "");
        }
        match model.text() {
            Some(name) => names.push(name),
            None => told.left(place, one, "it is no name of a model", ""),
        }
    }
    names
}

/// Appends a fallback, unless the models could not be right with it.
fn give_fallback(
    models: &mut [ModelDefinition],
    at: usize,
    other: &str,
    (place, node): (&Place, &Node),
    told: &mut Told,
) {
    let own = position(models, other).and_then(|of| models.get(of));
    let Some(own) = own.map(|model| model.name.clone()) else {
        let why = format!("{} is not carried", short(other));
        told.left(place, node, why, "");
        return;
    };
    let Some(model) = models.get_mut(at) else {
        return;
    };
    if model.fallbacks.contains(&own) || model.name == own {
        return;
    }
    if model.fallbacks.len() >= MOST_FALLBACKS {
        let why = format!("a model has at most {MOST_FALLBACKS} fallbacks");
        told.left(place, node, why, "");
        return;
    }
    let name = model.name.clone();
    if leads_to(models, &own, &name) {
        let why = format!("{} falls back to {} already", short(&own), short(&name));
        told.left(place, node, why, "");
        return;
    }
    if let Some(model) = models.get_mut(at) {
        model.fallbacks.push(own);
    }
}

/// Whether fallbacks lead from one model to the other; both are own names.
fn leads_to(models: &[ModelDefinition], from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            let model = models.iter().find(|model| model.name == name);
            let next = model.map_or(&[][..], |model| &model.fallbacks);
            open.extend(next.iter().map(String::as_str));
        }
    }
    false
}

/// The model that answers to a name.
fn position(models: &[ModelDefinition], name: &str) -> Option<usize> {
    models
        .iter()
        .position(|model| model.name == name || model.aliases.iter().any(|alias| alias == name))
}

/// As many as a definition may have.
const MOST_FALLBACKS: usize = 8;
const NAMES: &str = "use letters, digits and any of . _ - / : @ +";
