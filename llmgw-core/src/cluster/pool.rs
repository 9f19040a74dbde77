//! Pools: sets of nodes, each selected by labels.

use std::collections::BTreeMap;

use serde::Serialize;

use super::catalog::DefinitionError;

/// The labels of a node, or those that a pool asks for.
pub type Labels = BTreeMap<String, String>;

/// The pools of a cluster, by name: each is of the nodes that have all of its labels.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Pools(BTreeMap<String, Labels>);

impl Pools {
    /// Checks what the settings say.
    ///
    /// # Errors
    /// When a name or a label is no text of 1 to 128 characters, or when no label makes a node one of a pool; the error
    /// names the key, such as `pools.fast`.
    pub fn checked(pools: BTreeMap<String, Labels>) -> Result<Self, DefinitionError> {
        let wrong = |field: String, problem: &str, hint: &str| {
            Err(DefinitionError {
                field,
                problem: problem.to_owned(),
                hint: Some(hint.to_owned()),
            })
        };
        for (name, labels) in &pools {
            let field = format!("pools.{name}");
            if !is_text(name) {
                let hint = "a pool has a name of 1 to 128 characters";
                return wrong(field, "it is no name", hint);
            }
            if labels.is_empty() {
                let hint = "say which labels its nodes have, such as {zone: north}";
                return wrong(field, "no label makes a node one of it", hint);
            }
            for (key, value) in labels {
                if !is_text(key) || !is_text(value) {
                    let hint = "a label is a name and a value of 1 to 128 characters each, as nodes have it";
                    return wrong(format!("{field}.{key}"), "it is no label", hint);
                }
            }
        }
        Ok(Self(pools))
    }

    /// Whether a node with these labels is one of a pool; of a pool that there is not, none is.
    #[must_use]
    pub fn has(&self, pool: &str, labels: &Labels) -> bool {
        self.0.get(pool).is_some_and(|asked| {
            asked
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        })
    }

    /// The names of the pools that a node with these labels is in, sorted.
    #[must_use]
    pub fn of(&self, labels: &Labels) -> Vec<String> {
        let names = self.0.keys();
        let own = names.filter(|pool| self.has(pool, labels));
        own.cloned().collect()
    }

    /// All of them: the labels by name.
    #[must_use]
    pub fn by_name(&self) -> &BTreeMap<String, Labels> {
        &self.0
    }

    /// Refuses a pool that there is not; `field` is where it is named.
    ///
    /// # Errors
    /// When there is no such pool; the hint has those there are.
    pub fn require(&self, pool: &str, field: &str) -> Result<(), DefinitionError> {
        if self.0.contains_key(pool) {
            return Ok(());
        }
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        let hint = match names.as_slice() {
            [] => "the settings name no pool: `pools: {NAME: {LABEL: VALUE}}` makes one".to_owned(),
            names => format!("the pools are {}", names.join(", ")),
        };
        let short: String = pool.chars().take(128).collect();
        Err(DefinitionError {
            field: field.to_owned(),
            problem: format!("there is no pool {short}"),
            hint: Some(hint),
        })
    }
}

/// Whether a text is a line of at most 128 characters.
fn is_text(text: &str) -> bool {
    let is_short = text.chars().count() <= 128;
    is_short && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<Pools, DefinitionError> {
        Pools::checked(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_node_is_in_each_pool_all_of_whose_labels_it_has() {
        let pools = read(serde_json::json!({
            "fast": {"gpu": "h200"}, "north": {"zone": "north"}, "fast-north": {"gpu": "h200", "zone": "north"},
        }))
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        assert_eq!(pools.of(&labels(&[("gpu", "h200")])), ["fast"]);
        let both = labels(&[("gpu", "h200"), ("zone", "north"), ("rack", "7")]);
        assert_eq!(pools.of(&both), ["fast", "fast-north", "north"]);
        assert_eq!(pools.of(&Labels::new()), Vec::<String>::new());
        assert!(!pools.has("slow", &both));
    }

    #[test]
    fn what_can_not_be_right_is_refused_by_its_key() {
        for (json, says) in [
            (
                serde_json::json!({"fast": {}}),
                "pools.fast: no label makes a node one of it",
            ),
            (
                serde_json::json!({" ": {"a": "b"}}),
                "pools. : it is no name",
            ),
            (
                serde_json::json!({"fast": {"gpu": ""}}),
                "pools.fast.gpu: it is no label",
            ),
        ] {
            assert_eq!(read(json).unwrap_err().to_string(), says);
        }
    }

    #[test]
    fn a_pool_that_there_is_not_is_refused_with_those_there_are() {
        let pools = read(serde_json::json!({"b": {"x": "1"}, "a": {"x": "2"}})).unwrap();
        assert_eq!(pools.require("a", "scope.pool"), Ok(()));
        let error = pools.require("c", "scope.pool").unwrap_err();
        assert_eq!(error.to_string(), "scope.pool: there is no pool c");
        assert_eq!(error.hint.as_deref(), Some("the pools are a, b"));
        let error = Pools::default().require("c", "pool").unwrap_err();
        assert!(error.hint.unwrap().starts_with("the settings name no pool"));
    }
}
