//! Whom a model falls back to: checked alone, and then among all the models there are.

use std::collections::{BTreeMap, BTreeSet};

use super::{DefinitionError, Model, problem};
use crate::id::ModelName;

/// What is wrong with the fallbacks of one of several models.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FallbackFault {
    /// The place of the model among those that were looked at, from 0.
    pub at: usize,
    /// What is wrong; its field is within the model, such as `fallbacks[0]`.
    pub error: DefinitionError,
}

/// Reads the fallbacks of the model `own`.
pub(super) fn checked(
    own: &ModelName,
    texts: &[String],
) -> Result<Vec<ModelName>, DefinitionError> {
    if texts.len() > MAX_FALLBACKS {
        let what = format!("{} are more than {MAX_FALLBACKS}", texts.len());
        return Err(problem("fallbacks", &what, None));
    }
    let mut names: Vec<ModelName> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let field = field(index);
        let name: ModelName = text.parse().map_err(|e| problem(&field, &e, None))?;
        if name == *own {
            let what = format!("{name} can't fall back to itself");
            return Err(problem(&field, &what, None));
        }
        if names.contains(&name) {
            return Err(problem(&field, &format!("{name} is named twice"), None));
        }
        names.push(name);
    }
    Ok(names)
}

/// What is wrong with the fallbacks of these models, were there no others: names that no model has, and cycles, each
/// once. In the order of the models, then of their fallbacks; names are unique, or the last of a name counts.
#[must_use]
pub fn fallback_faults(models: &[&Model]) -> Vec<FallbackFault> {
    let graph = Graph::of(models.iter().copied());
    let mut faults = Vec::new();
    for (at, model) in models.iter().enumerate() {
        let missing = graph.missing(model);
        faults.extend(missing.map(|error| FallbackFault { at, error }));
    }
    let mut left = BTreeSet::new();
    for model in models {
        for cycle in graph.cycles(model.name(), &mut left) {
            let first = cycle.first();
            let at = models.iter().position(|model| first == Some(&model.name()));
            let error = graph.in_a_circle(&cycle);
            faults.extend(at.map(|at| FallbackFault { at, error }));
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Checks the fallbacks of a model that is to join `others`.
///
/// # Errors
/// When one of them is no model, or leads back to the model.
pub fn check_fallbacks<'a>(
    model: &'a Model,
    others: impl IntoIterator<Item = &'a Model>,
) -> Result<(), DefinitionError> {
    let graph = Graph::of(others.into_iter().chain([model]));
    if let Some(error) = graph.missing(model).next() {
        return Err(error);
    }
    // The search begins here, so that a cycle that this model is part of begins here too.
    let cycles = graph.cycles(model.name(), &mut BTreeSet::new());
    let own = cycles
        .iter()
        .find(|cycle| cycle.first() == Some(&model.name()));
    own.map_or(Ok(()), |cycle| Err(graph.in_a_circle(cycle)))
}

/// The models by name; an edge leads from a model to each of its fallbacks.
struct Graph<'a> {
    models: BTreeMap<&'a ModelName, &'a Model>,
}

// === impl Graph ===

impl<'a> Graph<'a> {
    fn of(models: impl IntoIterator<Item = &'a Model>) -> Self {
        let named = models.into_iter().map(|model| (model.name(), model));
        Self {
            models: named.collect(),
        }
    }

    fn fallbacks(&self, name: &ModelName) -> &'a [ModelName] {
        self.models.get(name).map_or(&[], |model| model.fallbacks())
    }

    /// A fault for each fallback of `model` that is no model.
    fn missing<'s>(&'s self, model: &'s Model) -> impl Iterator<Item = DefinitionError> + 's {
        let fallbacks = model.fallbacks().iter().enumerate();
        let unknown = fallbacks.filter(|(_, name)| !self.models.contains_key(name));
        unknown.map(|(index, name)| {
            let mut all = self.models.values();
            let (what, hint) = match all.find(|other| other.answers_to(name.as_str())) {
                Some(other) => (
                    format!("{name} is an alias of {}", other.name()),
                    "name the model by its own name",
                ),
                None => (
                    format!("missing fallback: there is no model {name}"),
                    "add that model first, or leave it out",
                ),
            };
            problem(&field(index), &what, Some(hint))
        })
    }

    /// The cycles that are found from `start` on, each beginning where the search met it first. Models in `left` were
    /// searched before, and are passed over.
    fn cycles(
        &self,
        start: &'a ModelName,
        left: &mut BTreeSet<&'a ModelName>,
    ) -> Vec<Vec<&'a ModelName>> {
        let mut found = Vec::new();
        if left.contains(start) {
            return found;
        }
        // A stack of its own: a chain may be as long as there are models.
        let mut path = vec![(start, self.fallbacks(start).iter())];
        while let Some((name, next)) = path.last_mut() {
            let name = *name;
            let Some(next) = next.next() else {
                left.insert(name);
                path.pop();
                continue;
            };
            let on_path = path.iter().position(|(other, _)| *other == next);
            if let Some(since) = on_path {
                found.push(path.iter().skip(since).map(|(name, _)| *name).collect());
            } else if !left.contains(next) {
                path.push((next, self.fallbacks(next).iter()));
            }
        }
        found
    }

    /// The fault of the first model of a cycle.
    fn in_a_circle(&self, cycle: &[&ModelName]) -> DefinitionError {
        let first = cycle.first().copied();
        let second = cycle.get(1).copied().or(first);
        let fallbacks = first.map_or(&[][..], |first| self.fallbacks(first));
        let index = fallbacks.iter().position(|name| Some(name) == second);
        let names: Vec<&str> = cycle
            .iter()
            .copied()
            .chain(first)
            .map(ModelName::as_str)
            .collect();
        problem(
            &field(index.unwrap_or(0)),
            &format!("fallbacks lead in a circle: {}", names.join(" -> ")),
            Some("take one of them out"),
        )
    }
}

fn field(index: usize) -> String {
    format!("fallbacks[{index}]")
}

const MAX_FALLBACKS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, fallbacks: &[&str]) -> Model {
        serde_json::from_value(serde_json::json!({
            "name": name, "aliases": [format!("{name}-too")], "fallbacks": fallbacks,
            "source": "file:/m.gguf", "profiles": [{"memory": "1GiB"}],
        }))
        .unwrap()
    }

    fn faults(models: &[Model]) -> Vec<String> {
        let models: Vec<&Model> = models.iter().collect();
        let faults = fallback_faults(&models).into_iter();
        faults
            .map(|fault| format!("{}: {}", fault.at, fault.error))
            .collect()
    }

    #[test]
    fn models_that_fall_back_to_each_other_in_one_direction_are_right() {
        let all = [
            model("a", &["b", "c"]),
            model("b", &["c"]),
            model("c", &[]),
            model("d", &["a", "c"]),
        ];
        assert_eq!(faults(&all), [""; 0]);
        let [a, b, c, d] = &all;
        check_fallbacks(d, [a, b, c]).unwrap();
    }

    #[test]
    fn a_fallback_that_is_no_model_is_found_with_its_place() {
        let all = [model("a", &["b", "nobody"]), model("b", &["a-too"])];
        let expected = [
            "0: fallbacks[1]: missing fallback: there is no model nobody",
            "1: fallbacks[0]: a-too is an alias of a",
        ];
        assert_eq!(faults(&all), expected);
        let [a, b] = &all;
        let error = check_fallbacks(a, [b]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fallbacks[1]: missing fallback: there is no model nobody"
        );
        assert!(error.hint.is_some());
    }

    #[test]
    fn each_cycle_is_shown_once() {
        let all = [
            model("x", &["a"]),
            model("a", &["c", "b"]),
            model("b", &["a"]),
            model("c", &[]),
            model("p", &["q"]),
            model("q", &["r"]),
            model("r", &["p"]),
        ];
        let expected = [
            "1: fallbacks[1]: fallbacks lead in a circle: a -> b -> a",
            "4: fallbacks[0]: fallbacks lead in a circle: p -> q -> r -> p",
        ];
        assert_eq!(faults(&all), expected);
    }

    #[test]
    fn a_model_that_joins_answers_for_its_own_cycles_alone() {
        let circle = [model("p", &["q"]), model("q", &["p"])];
        check_fallbacks(&model("x", &["p"]), &circle).unwrap();
        let others = [model("b", &["c"]), model("c", &["a"])];
        let error = check_fallbacks(&model("a", &["b"]), &others).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fallbacks[0]: fallbacks lead in a circle: a -> b -> c -> a"
        );
    }

    #[test]
    fn a_chain_as_long_as_a_catalog_is_searched() {
        let all: Vec<Model> = (0..3_000)
            .map(|number| {
                let next = (number + 1) % 3_000;
                model(&format!("m{number}"), &[&format!("m{next}")])
            })
            .collect();
        let models: Vec<&Model> = all.iter().collect();
        assert_eq!(fallback_faults(&models).len(), 1);
    }
}
