//! A text that comes in pieces, looked at in windows.
//!
//! Windows begin at fixed distances from the text's beginning, each so much longer than that distance that whatever begins
//! within its step is in it whole. What is found depends therefore on the text alone, and not on how it was cut. What
//! begins before a window's step is over is known when the window is full: up to there, the text is done.

use std::ops::Range;

use super::{
    check::Tally,
    pii,
    rules::{RuleSet, Side},
};
use crate::cluster::guard::{Action, Stage};

/// How long windows are, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Reach {
    /// From one window's beginning to the next.
    step: usize,
    /// The longest match that is found.
    longest: usize,
}

/// One text.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// What is kept of the text: what is not done, and a little before it.
    text: String,
    /// The bytes that were before that.
    gone: usize,
    /// Up to here, all is known.
    done: usize,
    /// Where each part of the rules goes on.
    next: Vec<usize>,
    /// What is taken out, and by which rule; by beginning within each window.
    cuts: Vec<(Range<usize>, usize)>,
}

// === impl Reach ===

impl Reach {
    pub(super) fn of(longest: usize) -> Self {
        Self {
            step: (longest / 4).clamp(SHORTEST_STEP, LONGEST_STEP),
            longest,
        }
    }

    /// The most bytes of a text that wait for what comes after them.
    #[cfg(test)]
    pub(super) fn held(self) -> usize {
        self.step + self.longest + AHEAD
    }
}

// === impl Window ===

impl Window {
    /// Adds a piece, and says where in the text it is.
    pub(super) fn push(&mut self, piece: &str) -> Range<usize> {
        let start = self.len();
        self.text.push_str(piece);
        start..self.len()
    }

    pub(super) fn len(&self) -> usize {
        self.gone + self.text.len()
    }

    /// Up to here, all is known.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Looks at all windows that are full; at the text's end, at what is left.
    pub(super) fn look(&mut self, rules: &RuleSet, is_end: bool, tally: &mut Tally) {
        let side = rules.side(Stage::Output);
        if side.parts.is_empty() {
            self.done = self.len();
            return;
        }
        self.next.resize(side.parts.len(), 0);
        while self.done < self.len() {
            let limit = self.done + side.reach.step;
            let end = limit + side.reach.longest;
            if !is_end && self.len() < end + AHEAD {
                return;
            }
            self.look_at(rules, side, limit, end, tally);
            self.done = limit.min(self.len());
        }
    }

    fn look_at(
        &mut self,
        rules: &RuleSet,
        side: &Side,
        limit: usize,
        end: usize,
        tally: &mut Tally,
    ) {
        let place = |at: usize| self.text.floor_char_boundary(at.saturating_sub(self.gone));
        // No more is seen than what is there whenever this window is looked at.
        let seen = self.text.get(..place(end + AHEAD)).unwrap_or_default();
        let end = place(end);
        let first = self.cuts.len();
        for (part, next) in side.parts.iter().zip(&mut self.next) {
            let Some((ready, matcher)) = rules.part(*part) else {
                continue;
            };
            let mut from = self.done.max(*next).saturating_sub(self.gone);
            if from >= end || !matcher.may_be_in(seen) {
                continue;
            }
            while let Some(found) = matcher.find(seen, from..end) {
                if found.start + self.gone >= limit {
                    break;
                }
                tally.count(part.0);
                from = found.end;
                *next = found.end + self.gone;
                if ready.rule.action == Action::Redact {
                    let range = found.start + self.gone..found.end + self.gone;
                    self.cuts.push((range, part.0));
                }
            }
        }
        // Those of earlier windows begin before.
        let new = self.cuts.get_mut(first..).unwrap_or_default();
        new.sort_by_key(|(range, rule)| (range.start, *rule));
    }

    /// What is taken out of a part of the text that is done: where, and the rule whose mark stands there. A part that only
    /// goes on with what an earlier one began has no mark.
    pub(super) fn cuts(&self, part: &Range<usize>) -> Vec<(Range<usize>, Option<usize>)> {
        let mut found: Vec<(Range<usize>, Option<usize>)> = Vec::new();
        let mut covered = 0;
        for (range, rule) in &self.cuts {
            let start = range.start.max(covered);
            let is_first = range.start >= covered;
            covered = covered.max(range.end);
            let within = start.max(part.start)..range.end.min(part.end);
            if within.is_empty() {
                continue;
            }
            let mark = (is_first && range.start >= part.start).then_some(*rule);
            found.push((within, mark));
        }
        found
    }

    /// Forgets what is of no use for anything from `at` on.
    pub(super) fn forget(&mut self, at: usize) {
        let at = at.min(self.done);
        self.cuts.retain(|(range, _)| range.end > at);
        let keep = at.saturating_sub(self.gone + pii::CONTEXT);
        if keep > FORGET {
            let keep = self.text.floor_char_boundary(keep);
            self.text.drain(..keep);
            self.gone += keep;
        }
    }
}

const SHORTEST_STEP: usize = 16;
const LONGEST_STEP: usize = 256;
/// What must be seen behind the longest match to know that it ends there: a character, or a few digits.
const AHEAD: usize = 8;
/// Less is not worth being moved.
const FORGET: usize = 1 << 10;
