//! How long the answers of each model have been: what a call is likely to use.

use std::collections::{HashMap, VecDeque};

use crate::id::ModelName;

/// The lengths of the last answers, by model.
#[derive(Debug, Default)]
pub(super) struct Learned(HashMap<ModelName, VecDeque<u64>>);

/// How long an answer may be expected to be, in tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Expected {
    /// About half are no longer.
    pub(super) median: u64,
    /// Nearly all are no longer.
    pub(super) most: u64,
}

// === impl Learned ===

impl Learned {
    /// An answer had so many tokens.
    pub(super) fn note(&mut self, model: &ModelName, tokens: u64) {
        if !self.0.contains_key(model) && self.0.len() >= MODELS {
            return;
        }
        let lengths = self.0.entry(model.clone()).or_default();
        if lengths.len() >= LENGTHS {
            lengths.pop_front();
        }
        lengths.push_back(tokens);
    }

    /// What is expected of a model; `None` while too few answers were seen.
    pub(super) fn expected(&self, model: &ModelName) -> Option<Expected> {
        let lengths = self.0.get(model).filter(|all| all.len() >= ENOUGH)?;
        let mut sorted: Vec<u64> = lengths.iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let place = sorted.len().saturating_sub(1) * percent / 100;
            sorted.get(place).copied()
        };
        Some(Expected {
            median: at(50)?,
            most: at(95)?,
        })
    }
}

/// More models than a cluster has.
const MODELS: usize = 1_024;
const LENGTHS: usize = 128;
const ENOUGH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_follows_the_last_answers() {
        let model: ModelName = "m".parse().unwrap();
        let mut learned = Learned::default();
        for tokens in 1..16 {
            learned.note(&model, tokens);
        }
        assert_eq!(learned.expected(&model), None);
        for tokens in 16..=101 {
            learned.note(&model, tokens);
        }
        let expected = learned.expected(&model).unwrap();
        assert_eq!((expected.median, expected.most), (51, 96));
        for _ in 0..LENGTHS {
            learned.note(&model, 7);
        }
        let expected = learned.expected(&model).unwrap();
        assert_eq!((expected.median, expected.most), (7, 7));
    }
}
