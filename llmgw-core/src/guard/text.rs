//! Finds the texts in a JSON body by their places, whatever API it is of, and builds nothing.
//!
//! What is text is told by where it stands: of a request, all strings beneath `messages`, `prompt`, `input`, `system` and
//! their like; of an answer, those beneath `choices`, `content`, `output` and theirs. Names of roles, ids, and data that is
//! no text are left out by their keys, except within the arguments of tools, which are all text. The text of JSON that is
//! broken is found up to where it breaks.

mod escapes;
mod keys;

use std::ops::Range;

use memchr::memchr2;

pub(super) use self::escapes::{decode, raw_range};
use self::keys::{Key, fold};

/// What a body is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Body {
    /// What a client sends.
    Request,
    /// What an engine answers in one piece.
    Answer,
    /// An event of an answer.
    Event,
}

/// A place in a body.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Found {
    /// Of a text, between its quotes.
    pub(super) range: Range<usize>,
    pub(super) kind: Kind,
    /// The choice that it is of, where there are several.
    pub(super) choice: u64,
    /// Texts that are pieces of one have the same.
    pub(super) channel: u64,
    /// Whether it may be one of the parts that an engine puts together.
    pub(super) is_part: bool,
    /// The array that it is in: those of one have the same.
    pub(super) array: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A whole text.
    Whole,
    /// A piece of a text, which goes on with the next event.
    Delta,
    /// The word that ends a choice.
    End,
    /// What tells the text once more, token by token.
    Logprobs,
}

/// The texts of a body, in their order.
pub(super) fn find(json: &[u8], body: Body) -> Vec<Found> {
    let mut walk = Walk {
        json,
        body,
        found: Vec::new(),
        arrays: 0,
    };
    let top = Place {
        mode: Mode::Top,
        channel: 0,
        is_delta: false,
        is_choice: false,
        is_part: false,
        array: 0,
    };
    walk.value(walk.space(0), top, DEEPEST);
    walk.found
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    mode: Mode,
    channel: u64,
    is_delta: bool,
    is_choice: bool,
    is_part: bool,
    array: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// The outermost object.
    Top,
    /// Strings are text unless their key says otherwise.
    Text,
    /// All strings are text.
    Free,
    /// Only descriptions are.
    Tools,
    /// Nothing is.
    Skip,
}

struct Walk<'j> {
    json: &'j [u8],
    body: Body,
    found: Vec<Found>,
    /// Arrays so far.
    arrays: u64,
}

impl Walk<'_> {
    /// Reads the value that begins there, and says where it ends.
    fn value(&mut self, at: usize, place: Place, depth: u32) -> Option<usize> {
        match (self.json.get(at)?, place.mode) {
            (b'"', Mode::Top | Mode::Skip | Mode::Tools) => self.string(at),
            (b'"', Mode::Text | Mode::Free) => {
                let end = self.string(at)?;
                let kind = if place.is_delta {
                    Kind::Delta
                } else {
                    Kind::Whole
                };
                self.push(at + 1..end - 1, kind, place);
                Some(end)
            }
            (b'{' | b'[', Mode::Skip) => self.skip(at),
            (b'{' | b'[', _) if depth == 0 => None,
            (b'{', _) => self.object(at, place, depth - 1),
            (b'[', _) => self.array(at, place, depth - 1),
            _ => Some(self.scalar(at)),
        }
    }

    fn array(&mut self, at: usize, place: Place, depth: u32) -> Option<usize> {
        self.arrays += 1;
        let place = Place {
            array: self.arrays,
            ..place
        };
        let mut at = self.space(at + 1);
        loop {
            match self.json.get(at)? {
                b']' => return Some(at + 1),
                b',' => at = self.space(at + 1),
                _ => {
                    let end = self.value(at, place, depth)?;
                    at = self.space(end);
                }
            }
        }
    }

    fn object(&mut self, at: usize, place: Place, depth: u32) -> Option<usize> {
        let first = self.found.len();
        let mut index = None;
        let mut at = self.space(at + 1);
        let end = loop {
            match self.json.get(at)? {
                b'}' => break at + 1,
                b',' => at = self.space(at + 1),
                b'"' => {
                    let key_end = self.string(at)?;
                    let json = self.json;
                    let name = json.get(at + 1..key_end - 1)?;
                    let colon = self.space(key_end);
                    if self.json.get(colon) != Some(&b':') {
                        return None;
                    }
                    at = self.space(colon + 1);
                    let end = self.member(name, at, place, &mut index, depth)?;
                    at = self.space(end);
                }
                _ => return None,
            }
        };
        if let Some(index) = index {
            for found in self.found.get_mut(first..).unwrap_or_default() {
                if place.is_choice {
                    found.choice = index;
                } else {
                    found.channel = fold(found.channel, &index.to_le_bytes());
                }
            }
        }
        Some(end)
    }

    /// Reads a member's value.
    fn member(
        &mut self,
        name: &[u8],
        at: usize,
        place: Place,
        index: &mut Option<u64>,
        depth: u32,
    ) -> Option<usize> {
        let key = Key::of(name);
        let mode = self.mode(place.mode, key, at);
        let is_delta = self.body == Body::Event
            && (place.is_delta || key == Key::Delta || (place.is_choice && key == Key::Text));
        let inner = Place {
            mode,
            channel: if mode == Mode::Skip {
                0
            } else {
                fold(place.channel, name)
            },
            is_delta,
            is_choice: key == Key::Choices,
            is_part: key == Key::Text,
            array: place.array,
        };
        let end = self.value(at, inner, depth)?;
        let is_free = place.mode == Mode::Free;
        match key {
            Key::Index if !is_free => {
                let digits = str::from_utf8(self.json.get(at..end)?).ok();
                if let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
                    // An event of Responses has several.
                    *index = Some(index.map_or(number, |first| first << 16 | number));
                }
            }
            Key::Ended if !is_free && self.json.get(at) == Some(&b'"') => {
                self.push(at + 1..end - 1, Kind::End, place);
            }
            Key::Logprobs if !is_free && matches!(self.json.get(at), Some(b'{' | b'[')) => {
                self.push(at..end, Kind::Logprobs, place);
            }
            _ => {}
        }
        Some(end)
    }

    fn mode(&self, around: Mode, key: Key, at: usize) -> Mode {
        match (around, key) {
            (Mode::Top, key) => match self.body {
                Body::Request => key.opens_request(),
                Body::Answer | Body::Event => key.opens_answer(),
            },
            (Mode::Tools, Key::Description) => Mode::Text,
            (Mode::Text, Key::Arguments | Key::Input) => Mode::Free,
            (Mode::Text, Key::Url) if self.is_data(at) => Mode::Skip,
            (Mode::Text, key) if key.is_no_text() => Mode::Skip,
            (Mode::Text, Key::EchoOfRequest) if self.body != Body::Request => Mode::Skip,
            (around, _) => around,
        }
    }

    /// Whether an image or a sound is written there.
    fn is_data(&self, at: usize) -> bool {
        let rest = self.json.get(at..).unwrap_or_default();
        rest.starts_with(b"\"data:")
    }

    fn push(&mut self, range: Range<usize>, kind: Kind, place: Place) {
        if !range.is_empty() || kind == Kind::Delta {
            self.found.push(Found {
                range,
                kind,
                choice: 0,
                channel: place.channel,
                is_part: place.is_part,
                array: place.array,
            });
        }
    }

    /// The end of the string that begins there.
    fn string(&self, at: usize) -> Option<usize> {
        let mut at = at + 1;
        loop {
            at += memchr2(b'"', b'\\', self.json.get(at..)?)?;
            if self.json.get(at) == Some(&b'"') {
                return Some(at + 1);
            }
            at += 2;
        }
    }

    /// The end of the array or object that begins there.
    fn skip(&self, at: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = at;
        loop {
            match self.json.get(at)? {
                b'"' => at = self.string(at)?,
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    at += 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {
                    // Numbers, of which an embedding has thousands.
                    let rest = self.json.get(at..)?;
                    let matters = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
                    at += rest.iter().position(matters)?;
                }
            }
        }
    }

    /// The end of a number or a word.
    fn scalar(&self, at: usize) -> usize {
        let rest = self.json.get(at..).unwrap_or_default();
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || is_space(*byte);
        // At least one byte: whatever it is, the walk goes on.
        at + rest.iter().position(ends).unwrap_or(rest.len()).max(1)
    }

    fn space(&self, at: usize) -> usize {
        let rest = self.json.get(at..).unwrap_or_default();
        at + rest
            .iter()
            .position(|byte| !is_space(*byte))
            .unwrap_or(rest.len())
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// As deep as the body was checked; what is deeper is no JSON that an engine takes.
const DEEPEST: u32 = 128;

#[cfg(test)]
mod tests;
