//! Texts that a model reads otherwise than they are written: parts of one message, which an engine puts together, and JSON
//! in a string, such as the arguments of a tool, which has escapes of its own.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use super::{
    check::{Replaced, Tally},
    rules::RuleSet,
    text::{Found, Kind, decode, raw_range},
};
use crate::cluster::guard::{Action, Stage};

/// Where a rule matched.
#[derive(Clone, Debug)]
struct Match {
    range: Range<usize>,
    rule: usize,
    /// Whether it is told of here: what is over several parts is told of in the first.
    counts: bool,
}

impl RuleSet {
    /// What is to be taken out of texts that an engine puts together; for each, in their order.
    pub(super) fn cuts_of_parts(
        &self,
        stage: Stage,
        texts: &[Cow<'_, str>],
        tally: &mut Tally,
    ) -> Vec<Vec<Replaced>> {
        let mut matches: Vec<Vec<Match>> = texts
            .iter()
            .map(|text| self.matches_of_one(stage, text))
            .collect();
        if texts.len() > 1 {
            // Engines put them together so or so.
            for between in ["", "\n"] {
                self.matches_over_borders(stage, texts, between, &mut matches);
            }
        }
        let mut cuts = Vec::with_capacity(texts.len());
        for of_one in matches {
            let mut ranges = Vec::new();
            for Match {
                range,
                rule,
                counts,
            } in of_one
            {
                if counts {
                    tally.count(rule);
                }
                if self.action(rule) == Some(Action::Redact) {
                    ranges.push((range, rule));
                }
            }
            cuts.push(self.joined(ranges));
        }
        cuts
    }

    /// What matches in one text, as it is written and, of JSON, as it is meant.
    fn matches_of_one(&self, stage: Stage, text: &str) -> Vec<Match> {
        let new = |(range, rule)| Match {
            range,
            rule,
            counts: true,
        };
        let mut matches: Vec<Match> = self.matches(stage, text).into_iter().map(new).collect();
        if !text.trim_start().starts_with(['{', '[', '"']) || !text.contains('\\') {
            return matches;
        }
        let meant = decode(text.as_bytes());
        for (range, rule) in self.matches(stage, &meant) {
            let range = raw_range(text.as_bytes(), range);
            if !is_known(&matches, &range, rule) {
                matches.push(new((range, rule)));
            }
        }
        matches
    }

    /// Adds what matches over a border of parts.
    fn matches_over_borders(
        &self,
        stage: Stage,
        texts: &[Cow<'_, str>],
        between: &str,
        matches: &mut [Vec<Match>],
    ) {
        let mut whole = String::new();
        let mut places: Vec<Range<usize>> = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                whole.push_str(between);
            }
            let start = whole.len();
            whole.push_str(text);
            places.push(start..whole.len());
        }
        for (range, rule) in self.matches_at(stage, &whole, |range| {
            !places
                .iter()
                .any(|place| place.start <= range.start && range.end <= place.end)
        }) {
            let mut counts = true;
            for (place, known) in places.iter().zip(matches.iter_mut()) {
                let part = range.start.max(place.start)..range.end.min(place.end);
                if part.start >= part.end {
                    continue;
                }
                let part = part.start - place.start..part.end - place.start;
                if !is_known(known, &part, rule) {
                    known.push(Match {
                        range: part,
                        rule,
                        counts,
                    });
                }
                counts = false;
            }
        }
    }
}

/// Whether the rule has matched there already.
fn is_known(matches: &[Match], range: &Range<usize>, rule: usize) -> bool {
    matches
        .iter()
        .any(|one| one.rule == rule && one.range.start < range.end && range.start < one.range.end)
}

/// Texts that are read together: the parts of each message, and each other text alone; each in the place of its first.
pub(super) fn together(found: &[Found]) -> Vec<Vec<&Found>> {
    let mut groups: Vec<Vec<&Found>> = Vec::new();
    let mut parts: HashMap<(u64, u64, u64), usize> = HashMap::new();
    for one in found {
        match one.kind {
            Kind::Whole if one.is_part => {
                let place = (one.array, one.channel, one.choice);
                let known = parts.get(&place).and_then(|at| groups.get_mut(*at));
                match known {
                    Some(group) => group.push(one),
                    None => {
                        parts.insert(place, groups.len());
                        groups.push(vec![one]);
                    }
                }
            }
            Kind::Whole | Kind::Delta => groups.push(vec![one]),
            Kind::End | Kind::Logprobs => {}
        }
    }
    groups
}
