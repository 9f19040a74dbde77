//! An answer that comes in events.
//!
//! Events are held until all text in them is done, and then passed as they are, or with what was found taken out of
//! them: no event is made anew. What is held is bounded: by the longest match for each text, and by [`MOST_HELD`] in all;
//! then the text that all wait for is looked at as if it ended.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    check::{Replaced, Tally, Verdict, without},
    rules::RuleSet,
    text::{self, Body, Kind, decode, raw_range},
    window::Window,
};
use crate::cluster::guard::Stage;

/// Checks one answer.
#[derive(Debug)]
pub struct StreamCheck {
    rules: Arc<RuleSet>,
    channels: Vec<Channel>,
    held: VecDeque<Held>,
    held_bytes: usize,
    tally: Tally,
    judging: Option<Judging>,
}

/// A text that comes in pieces.
#[derive(Debug)]
struct Channel {
    choice: u64,
    channel: u64,
    window: Window,
}

/// An event that waits.
#[derive(Debug)]
struct Held {
    event: Bytes,
    pieces: Vec<Piece>,
    /// What is changed in it whatever comes.
    changes: Vec<Replaced>,
    logprobs: Vec<Range<usize>>,
    /// The bytes of all text up to its end.
    words: usize,
}

/// A piece of a text in an event.
#[derive(Debug)]
struct Piece {
    channel: usize,
    /// Where it is written in the event.
    at: Range<usize>,
    /// Where it is in the text.
    part: Range<usize>,
}

/// What models are asked about the text so far.
#[derive(Debug, Default)]
struct Judging {
    /// The last of it.
    words: String,
    /// The bytes of all text.
    came: usize,
    asked: usize,
    judged: usize,
    is_over: bool,
}

// === impl StreamCheck ===

impl StreamCheck {
    /// A check by these rules; `None` when they look for nothing in answers.
    #[must_use]
    pub fn new(rules: Arc<RuleSet>) -> Option<Self> {
        let judges = rules.judges(Stage::Output).next().is_some();
        rules.looks_at(Stage::Output).then(|| Self {
            judging: judges.then(Judging::default),
            rules,
            channels: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            tally: Tally::default(),
        })
    }

    /// Takes an event, with where in it its JSON stands; empty when it has none.
    pub fn push(&mut self, event: Bytes, data: Range<usize>) {
        let json = event.get(data.clone()).unwrap_or_default();
        let mut held = Held {
            pieces: Vec::new(),
            changes: Vec::new(),
            logprobs: Vec::new(),
            words: 0,
            event: Bytes::new(),
        };
        let mut ended = Vec::new();
        for found in text::find(json, Body::Event) {
            let at = data.start + found.range.start..data.start + found.range.end;
            let raw = json.get(found.range).unwrap_or_default();
            match found.kind {
                Kind::Delta => {
                    let words = decode(raw);
                    if words.is_empty() {
                        continue;
                    }
                    if let Some(judging) = &mut self.judging {
                        judging.add(&words);
                    }
                    match self.channel(found.choice, found.channel) {
                        Some(channel) => self.piece(channel, &words, at, &mut held),
                        None => held.changes.extend(self.whole(raw, at.start)),
                    }
                }
                Kind::Whole => held.changes.extend(self.whole(raw, at.start)),
                Kind::End => ended.push(found.choice),
                Kind::Logprobs => held.logprobs.push(at),
            }
        }
        held.event = event;
        held.words = self.judging.as_ref().map_or(0, |judging| judging.came);
        self.held_bytes += held.event.len();
        self.held.push_back(held);
        for choice in ended {
            self.end(|channel| channel.choice == choice);
        }
    }

    /// No more text will come.
    pub fn finish(&mut self) {
        self.end(|_| true);
        if let Some(judging) = &mut self.judging {
            judging.is_over = true;
        }
    }

    /// The next event that may pass.
    pub fn next_event(&mut self) -> Option<Bytes> {
        loop {
            let held = self.held.front()?;
            let waits = |piece: &Piece| {
                let channel = self.channels.get(piece.channel);
                channel.is_some_and(|channel| channel.window.done() < piece.part.end)
            };
            let is_judged = self
                .judging
                .as_ref()
                .is_none_or(|judging| held.words <= judging.judged);
            // Where nothing is blocked or changed, nobody need wait for what is found.
            if !self.rules.side(Stage::Output).acts {
                break;
            }
            if !is_judged {
                return None;
            }
            let Some(late) = held.pieces.iter().find(|piece| waits(piece)) else {
                break;
            };
            if self.held.len() <= MOST_HELD && self.held_bytes <= MOST_HELD_BYTES {
                return None;
            }
            let late = late.channel;
            if let Some(channel) = self.channels.get_mut(late) {
                channel.window.look(&self.rules, true, &mut self.tally);
            }
        }
        let held = self.held.pop_front()?;
        self.held_bytes = self.held_bytes.saturating_sub(held.event.len());
        Some(self.passed(held))
    }

    /// What was found until now.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.rules.verdict(Stage::Output, &self.tally, Vec::new())
    }

    /// How often rules have matched until now.
    #[must_use]
    pub fn found(&self) -> usize {
        self.tally.sum()
    }

    /// What models are to be asked about now: the last of the text, up to `most` bytes of it. After it, the text waits for
    /// [`judged`](Self::judged).
    pub fn to_judge(&mut self, most: usize) -> Option<String> {
        let judging = self.judging.as_mut()?;
        if judging.asked > judging.judged {
            return None;
        }
        let more = judging.came - judging.asked;
        if more == 0 || (more < JUDGED_AT_ONCE && !judging.is_over) {
            return None;
        }
        judging.asked = judging.came;
        let start = judging.words.len().saturating_sub(most);
        let start = judging.words.ceil_char_boundary(start);
        judging.words.drain(..start);
        Some(judging.words.clone())
    }

    /// What models were asked about may pass.
    pub fn judged(&mut self) {
        if let Some(judging) = &mut self.judging {
            judging.judged = judging.asked;
        }
    }

    fn piece(&mut self, place: usize, words: &str, at: Range<usize>, held: &mut Held) {
        let choice = self.channels.get(place).map(|channel| channel.choice);
        // A choice says one thing after the other: what it said before is over.
        for (other, channel) in self.channels.iter_mut().enumerate() {
            if other != place && Some(channel.choice) == choice {
                channel.window.look(&self.rules, true, &mut self.tally);
            }
        }
        if let Some(channel) = self.channels.get_mut(place) {
            let part = channel.window.push(words);
            channel.window.look(&self.rules, false, &mut self.tally);
            held.pieces.push(Piece {
                channel: place,
                at,
                part,
            });
        }
    }

    fn whole(&mut self, raw: &[u8], start: usize) -> Vec<Replaced> {
        let cuts = self
            .rules
            .cuts(Stage::Output, &decode(raw), &mut self.tally);
        cuts.into_iter()
            .map(|cut| {
                let at = raw_range(raw, cut.range);
                Replaced {
                    range: start + at.start..start + at.end,
                    with: cut.with,
                }
            })
            .collect()
    }

    fn channel(&mut self, choice: u64, channel: u64) -> Option<usize> {
        let is_it = |one: &Channel| one.choice == choice && one.channel == channel;
        if let Some(place) = self.channels.iter().position(is_it) {
            return Some(place);
        }
        // More than any answer has; what is in others is looked at piece by piece.
        (self.channels.len() < MOST_CHANNELS).then(|| {
            self.channels.push(Channel {
                choice,
                channel,
                window: Window::default(),
            });
            self.channels.len() - 1
        })
    }

    fn end(&mut self, is_over: impl Fn(&Channel) -> bool) {
        for channel in self.channels.iter_mut().filter(|channel| is_over(channel)) {
            channel.window.look(&self.rules, true, &mut self.tally);
        }
    }

    /// An event as it passes.
    fn passed(&mut self, held: Held) -> Bytes {
        let Held {
            event,
            pieces,
            mut changes,
            logprobs,
            words: _,
        } = held;
        for Piece { channel, at, part } in pieces {
            let Some(channel) = self.channels.get_mut(channel) else {
                continue;
            };
            for (cut, mark) in channel.window.cuts(&part) {
                let raw = event.get(at.clone()).unwrap_or_default();
                let within = raw_range(raw, cut.start - part.start..cut.end - part.start);
                changes.push(Replaced {
                    range: at.start + within.start..at.start + within.end,
                    with: mark.map_or_else(String::new, |rule| self.rules.marker(rule)),
                });
            }
            channel.window.forget(part.end);
        }
        if changes.is_empty() {
            return event;
        }
        changes.extend(logprobs.into_iter().map(without));
        changes.sort_by_key(|change| change.range.start);
        let mut changed = BytesMut::with_capacity(event.len());
        let mut from = 0;
        for Replaced { range, with } in changes {
            changed.extend_from_slice(event.get(from..range.start).unwrap_or_default());
            changed.extend_from_slice(with.as_bytes());
            from = from.max(range.end);
        }
        changed.extend_from_slice(event.get(from..).unwrap_or_default());
        changed.freeze()
    }
}

// === impl Judging ===

impl Judging {
    fn add(&mut self, words: &str) {
        self.came += words.len();
        self.words.push_str(words);
        if self.words.len() > 2 * MOST_WORDS {
            let start = self.words.ceil_char_boundary(self.words.len() - MOST_WORDS);
            self.words.drain(..start);
        }
    }
}

/// Events that wait at most: more than those of the longest match, a byte in each.
const MOST_HELD: usize = 4_096;
const MOST_HELD_BYTES: usize = 4 << 20;
const MOST_CHANNELS: usize = 1_024;
/// So much new text is judged at once, or what there is at its end.
const JUDGED_AT_ONCE: usize = 2 << 10;
/// Of what was said before, so much is judged along with it at most.
const MOST_WORDS: usize = 64 << 10;

#[cfg(test)]
mod tests;
