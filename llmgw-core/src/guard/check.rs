//! A text or a body as a whole: what is found in it, and what is to be done.

use std::{borrow::Cow, ops::Range};

use super::{
    pieces::together,
    rules::{Ready, RuleSet},
    text::{self, Body, Found, Kind, decode, raw_range},
};
use crate::{
    cluster::{
        guard::{Action, Decision, Stage},
        tenancy::LevelPath,
    },
    id::RuleName,
};

/// What was found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// What each rule did that matched, in the order of the rules.
    pub decisions: Vec<Decision>,
    /// The rule that blocks, when one does.
    pub blocked: Option<Blocked>,
    /// What is to be changed, in order: no two overlap. Of no use when it is blocked.
    pub changes: Vec<Replaced>,
}

/// Why a text is blocked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Blocked {
    /// The rule.
    pub rule: RuleName,
    /// Who made it.
    pub by: LevelPath,
    /// What the client is told besides.
    pub message: Option<String>,
    /// Whether it is because its judge gave no score.
    pub failed: bool,
}

/// A part of a body that is replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replaced {
    /// Where it stands.
    pub range: Range<usize>,
    /// What stands there then.
    pub with: String,
}

/// How often each rule matched.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Vec<u32>);

// === impl RuleSet ===

impl RuleSet {
    /// Checks the texts of a JSON body. What asks a model is left to the caller.
    #[must_use]
    pub fn check_body(&self, stage: Stage, json: &[u8], body: Body) -> Verdict {
        let mut tally = Tally::default();
        let mut changes = Vec::new();
        let mut logprobs = Vec::new();
        if self.looks_at(stage) {
            let found = text::find(json, body);
            let told = found.iter().filter(|one| one.kind == Kind::Logprobs);
            logprobs.extend(told.map(|one| one.range.clone()));
            let raw = |one: &Found| json.get(one.range.clone()).unwrap_or_default();
            for these in together(&found) {
                let texts: Vec<Cow<'_, str>> = these.iter().map(|one| decode(raw(one))).collect();
                let cuts = self.cuts_of_parts(stage, &texts, &mut tally);
                for (one, cuts) in these.into_iter().zip(cuts) {
                    for cut in cuts {
                        let at = raw_range(raw(one), cut.range);
                        changes.push(Replaced {
                            range: one.range.start + at.start..one.range.start + at.end,
                            with: cut.with,
                        });
                    }
                }
            }
            // Of parts that stand apart, others stand between.
            changes.sort_by_key(|change| change.range.start);
        }
        if !changes.is_empty() && !logprobs.is_empty() {
            // They would tell what was taken out.
            changes.extend(logprobs.into_iter().map(without));
            changes.sort_by_key(|change| change.range.start);
        }
        self.verdict(stage, &tally, changes)
    }

    /// Checks a text.
    #[must_use]
    pub fn check_text(&self, stage: Stage, text: &str) -> Verdict {
        let mut tally = Tally::default();
        let cuts = self.cuts(stage, text, &mut tally);
        self.verdict(stage, &tally, cuts)
    }

    /// The texts of a body, one after the other with a line between them, as a model is asked about them; the last
    /// `most` bytes.
    #[must_use]
    pub fn words(json: &[u8], body: Body, most: usize) -> String {
        let mut words = String::new();
        for found in text::find(json, body) {
            if matches!(found.kind, Kind::Whole | Kind::Delta) {
                let raw = json.get(found.range).unwrap_or_default();
                words.push_str(&decode(raw));
                words.push('\n');
            }
        }
        let start = words.ceil_char_boundary(words.len().saturating_sub(most));
        words.split_off(start)
    }

    /// What is to be taken out of a text.
    pub(super) fn cuts(&self, stage: Stage, text: &str, tally: &mut Tally) -> Vec<Replaced> {
        let mut cuts: Vec<(Range<usize>, usize)> = Vec::new();
        for (range, rule) in self.matches(stage, text) {
            tally.count(rule);
            if self.action(rule) == Some(Action::Redact) {
                cuts.push((range, rule));
            }
        }
        self.joined(cuts)
    }

    /// Where rules match in a text.
    pub(super) fn matches(&self, stage: Stage, text: &str) -> Vec<(Range<usize>, usize)> {
        self.matches_at(stage, text, |_| true)
    }

    /// Where rules match in a text, of the places that are asked for.
    pub(super) fn matches_at(
        &self,
        stage: Stage,
        text: &str,
        is_asked: impl Fn(&Range<usize>) -> bool,
    ) -> Vec<(Range<usize>, usize)> {
        let mut matches = Vec::new();
        for part in &self.side(stage).parts {
            let Some((ready, matcher)) = self.part(*part) else {
                continue;
            };
            if !matcher.may_be_in(text) {
                continue;
            }
            let (mut at, mut left) = (0, most(ready.rule.action));
            while left > 0
                && let Some(range) = matcher.find(text, at..text.len())
            {
                at = range.end;
                if is_asked(&range) {
                    left -= 1;
                    matches.push((range, part.0));
                }
            }
        }
        matches
    }

    /// What a rule does.
    pub(super) fn action(&self, rule: usize) -> Option<Action> {
        self.rules.get(rule).map(|ready| ready.rule.action)
    }

    /// What overlaps is taken out in one, under the name of what begins first.
    pub(super) fn joined(&self, mut cuts: Vec<(Range<usize>, usize)>) -> Vec<Replaced> {
        cuts.sort_by_key(|(range, rule)| (range.start, *rule));
        let mut joined: Vec<Replaced> = Vec::with_capacity(cuts.len());
        for (range, rule) in cuts {
            match joined.last_mut() {
                Some(last) if range.start < last.range.end => {
                    last.range.end = last.range.end.max(range.end);
                }
                _ => joined.push(Replaced {
                    with: self.marker(rule),
                    range,
                }),
            }
        }
        joined
    }

    /// What stands in the place of what a rule took out.
    pub(super) fn marker(&self, rule: usize) -> String {
        let name = self
            .rules
            .get(rule)
            .map_or("", |ready| ready.rule.name.as_str());
        format!("[redacted:{name}]")
    }

    pub(super) fn verdict(&self, stage: Stage, tally: &Tally, changes: Vec<Replaced>) -> Verdict {
        let matched = self.rules.iter().enumerate().filter_map(|(place, ready)| {
            let count = tally.of(place);
            (count > 0).then_some((ready, count))
        });
        let matched: Vec<(&std::sync::Arc<Ready>, u32)> = matched.collect();
        let blocks =
            |(ready, _): &&(&std::sync::Arc<Ready>, u32)| ready.rule.action == Action::Block;
        let blocked = matched.iter().find(blocks).map(|(ready, _)| Blocked {
            rule: ready.rule.name.clone(),
            by: ready.by.clone(),
            message: ready.rule.message.clone(),
            failed: false,
        });
        Verdict {
            blocked,
            decisions: matched
                .iter()
                .map(|(ready, count)| Decision {
                    rule: ready.rule.name.clone(),
                    by: ready.by.clone(),
                    stage,
                    action: ready.rule.action,
                    count: *count,
                    failed: false,
                })
                .collect(),
            changes,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.decisions.is_empty()
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn count(&mut self, rule: usize) {
        if self.0.len() <= rule {
            self.0.resize(rule + 1, 0);
        }
        if let Some(count) = self.0.get_mut(rule) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn of(&self, rule: usize) -> u32 {
        self.0.get(rule).copied().unwrap_or(0)
    }

    pub(super) fn sum(&self) -> usize {
        let counts = self.0.iter().map(|count| *count as usize);
        counts.fold(0, usize::saturating_add)
    }
}

/// How often a rule is looked for in one text: what only tells need not be counted to the end.
fn most(action: Action) -> usize {
    match action {
        Action::Block => 1,
        Action::Flag => 100,
        Action::Redact => usize::MAX,
    }
}

/// Takes the log probabilities out.
pub(super) fn without(range: Range<usize>) -> Replaced {
    Replaced {
        range,
        with: "null".to_owned(),
    }
}

#[cfg(test)]
mod tests;
