//! The rules that hold at each level, ready to be looked for.

use std::{collections::HashMap, sync::Arc};

use super::{matcher::Matcher, window::Reach};
use crate::{
    cluster::{
        catalog::DefinitionError,
        guard::{Action, Held, Policy, Rule, RuleKind, Stage},
        tenancy::LevelPath,
    },
    id::RuleName,
};

/// A policy that is ready.
#[derive(Debug)]
pub struct Rules {
    policy: Policy,
    cluster: Arc<RuleSet>,
    /// Of the levels that change anything.
    levels: HashMap<LevelPath, Arc<RuleSet>>,
}

/// The rules that hold for somebody.
#[derive(Debug)]
pub struct RuleSet {
    pub(super) rules: Vec<Arc<Ready>>,
    input: Side,
    output: Side,
}

/// A rule that is ready.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) rule: Rule,
    pub(super) by: LevelPath,
    pub(super) matchers: Vec<Matcher>,
}

/// What is looked for in one stage.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// A rule, and one of its matchers.
    pub(super) parts: Vec<(usize, usize)>,
    /// Rules that ask a model.
    pub(super) judges: Vec<usize>,
    /// Whether anything is blocked or changed.
    pub(super) acts: bool,
    pub(super) reach: Reach,
}

// === impl Rules ===

impl Rules {
    /// Makes a policy ready.
    ///
    /// # Errors
    /// When a regular expression is none, matches nothing at all, or is too large; all of them together may be.
    pub fn ready(policy: Policy) -> Result<Self, DefinitionError> {
        let mut made = HashMap::new();
        let mut set = |level: &LevelPath| -> Result<Arc<RuleSet>, DefinitionError> {
            let rules: Result<Vec<Arc<Ready>>, DefinitionError> = policy
                .of(level)
                .map(|held| Ready::once(&held, &mut made))
                .collect();
            Ok(Arc::new(RuleSet::new(rules?)))
        };
        let cluster = set(&LevelPath::CLUSTER)?;
        let levels = policy
            .levels()
            .map(|level| Ok((level.clone(), set(level)?)))
            .collect::<Result<_, DefinitionError>>()?;
        let size: usize = made.values().map(|ready| ready.size()).sum();
        if size > LARGEST {
            return Err(DefinitionError {
                field: "guard".to_owned(),
                problem: format!(
                    "its rules take {size} bytes when they are ready, and {LARGEST} are the most"
                ),
                hint: Some("make its regular expressions smaller, or fewer".to_owned()),
            });
        }
        Ok(Self {
            cluster,
            levels,
            policy,
        })
    }

    /// What the rules were made of.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The rules that hold at a level.
    #[must_use]
    pub fn at(&self, level: &LevelPath) -> &Arc<RuleSet> {
        if self.levels.is_empty() || level.is_cluster() {
            return &self.cluster;
        }
        level
            .upwards()
            .find_map(|path| self.levels.get(&path))
            .unwrap_or(&self.cluster)
    }
}

impl Default for Rules {
    fn default() -> Self {
        // The baseline is known to be ready; a test says so. An empty policy is in any case.
        Self::ready(Policy::baseline()).unwrap_or_else(|_| Self {
            policy: Policy::baseline(),
            cluster: Arc::new(RuleSet::new(Vec::new())),
            levels: HashMap::new(),
        })
    }
}

// === impl RuleSet ===

impl RuleSet {
    fn new(rules: Vec<Arc<Ready>>) -> Self {
        Self {
            input: Side::of(&rules, Stage::Input),
            output: Side::of(&rules, Stage::Output),
            rules,
        }
    }

    /// Whether anything is looked for in this stage.
    #[must_use]
    pub fn looks_at(&self, stage: Stage) -> bool {
        let side = self.side(stage);
        !side.parts.is_empty() || !side.judges.is_empty()
    }

    /// The rules of this stage that ask a model, with who made each.
    pub fn judges(&self, stage: Stage) -> impl Iterator<Item = (&Rule, &LevelPath)> {
        let judges = self.side(stage).judges.iter();
        judges.filter_map(|at| self.rules.get(*at).map(|ready| (&ready.rule, &ready.by)))
    }

    pub(super) fn side(&self, stage: Stage) -> &Side {
        match stage {
            Stage::Input => &self.input,
            Stage::Output => &self.output,
        }
    }

    pub(super) fn part(&self, (rule, matcher): (usize, usize)) -> Option<(&Ready, &Matcher)> {
        let ready = self.rules.get(rule)?;
        Some((ready, ready.matchers.get(matcher)?))
    }
}

// === impl Ready ===

impl Ready {
    /// A rule that holds at many levels is made once.
    fn once(
        held: &Held<'_>,
        made: &mut HashMap<(LevelPath, RuleName), Arc<Self>>,
    ) -> Result<Arc<Self>, DefinitionError> {
        let place = (held.by.clone(), held.rule.name.clone());
        if let Some(ready) = made.get(&place) {
            return Ok(Arc::clone(ready));
        }
        let matchers = Matcher::all(&held.rule.kind).map_err(|problem| {
            let rules = match &held.by {
                by if by.is_cluster() => "guard.rules".to_owned(),
                by => format!("guard.levels.{by}.rules"),
            };
            let what = match &held.rule.kind {
                RuleKind::Keywords(_) => "keywords",
                RuleKind::Regex(_) | RuleKind::Pii(_) | RuleKind::Judge(_) => "regex",
            };
            DefinitionError {
                field: format!("{rules}[{}].{what}", held.rule.name),
                problem,
                hint: Some("see the syntax of the crate regex of Rust".to_owned()),
            }
        })?;
        let ready = Arc::new(Self {
            rule: held.rule.clone(),
            by: held.by.clone(),
            matchers,
        });
        made.insert(place, Arc::clone(&ready));
        Ok(ready)
    }

    fn size(&self) -> usize {
        self.matchers.iter().map(Matcher::size).sum()
    }
}

// === impl Side ===

impl Side {
    fn of(rules: &[Arc<Ready>], stage: Stage) -> Self {
        let mut side = Self::default();
        let mut longest = 0;
        for (place, ready) in rules.iter().enumerate() {
            if !ready.rule.stages.has(stage) {
                continue;
            }
            side.acts |= ready.rule.action != Action::Flag;
            if let RuleKind::Judge(judge) = &ready.rule.kind {
                side.acts |= judge.on_error == crate::cluster::guard::OnError::Block;
                side.judges.push(place);
            }
            for (number, matcher) in ready.matchers.iter().enumerate() {
                side.parts.push((place, number));
                longest = longest.max(matcher.reach);
            }
        }
        side.reach = Reach::of(longest);
        side
    }
}

/// Of all rules together.
const LARGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::guard::PolicyDefinition;

    fn ready(json: &str) -> Result<Rules, DefinitionError> {
        let definition: PolicyDefinition = serde_json::from_str(json).unwrap();
        Rules::ready(Policy::checked(definition, "guard")?)
    }

    #[test]
    fn the_baseline_is_ready_and_leaves_answers_alone() {
        let rules = Rules::default();
        let set = rules.at(&LevelPath::CLUSTER);
        assert_eq!(set.rules.len(), 4);
        assert!(set.looks_at(Stage::Input) && !set.looks_at(Stage::Output));
        assert!(!set.side(Stage::Input).acts);
    }

    #[test]
    fn a_rule_that_can_not_be_ready_is_named() {
        let json =
            r#"{"levels": {"acme": {"rules": [{"name": "bad", "regex": "(", "action": "flag"}]}}}"#;
        let error = ready(json).unwrap_err();
        assert_eq!(error.field, "guard.levels.acme.rules[bad].regex");
    }

    #[test]
    fn rules_that_are_too_large_together_are_refused() {
        let rule = |index: usize| {
            format!(
                r#"{{"name": "r{index}", "regex": "\\pL{{8}}x{{{}}}", "action": "flag"}}"#,
                index % 7 + 1
            )
        };
        let rules: Vec<String> = (0..700).map(rule).collect();
        let error = ready(&format!(r#"{{"rules": [{}]}}"#, rules.join(","))).unwrap_err();
        assert!(error.problem.contains("are the most"), "{error}");
    }

    #[test]
    fn the_nearest_level_that_changes_anything_counts_and_rules_are_made_once() {
        let rules = ready(
            r#"{
                "rules": [{"name": "a", "pii": ["card"], "action": "flag"}],
                "levels": {"acme/search": {"rules": [{"name": "b", "pii": ["ssn"], "stages": "output", "action": "block"}]}}
            }"#,
        )
        .unwrap();
        let at = |level: &str| Arc::clone(rules.at(&level.parse().unwrap()));
        assert_eq!(at("acme/search/indexer").rules.len(), 2);
        assert_eq!(at("acme").rules.len(), 1);
        assert!(at("acme/search").side(Stage::Output).acts);
        assert!(Arc::ptr_eq(
            &at("acme").rules[0],
            &at("acme/search").rules[0]
        ));
    }
}
