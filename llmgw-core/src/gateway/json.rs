//! Finds a few members of a JSON object while its bytes go by, and builds nothing.
//!
//! An answer is passed on as it comes; only the places of `model`, `usage`, `choices`, `error` and a few more in the
//! outermost object matter. [`Scanner`] tells them for any cut of the text into pieces. It does not check the text: what
//! an engine sends is passed on, right or wrong.

use std::ops::Range;

use memchr::memchr2;

/// A member of the outermost object that the gateway looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Member {
    Model,
    Usage,
    Choices,
    Error,
    /// What an event is.
    Type,
    /// The answer that an event of the Responses API is about.
    Response,
    /// The answer that an event of the Messages API begins.
    Message,
}

/// An edge of such a member's value, as an index into the piece that was fed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    /// The value's first byte.
    Start(Member, usize),
    /// The byte after the value's last.
    End(Member, usize),
    /// The first byte of an object that stands in the value, an array.
    Element(Member, usize),
}

/// Reads one JSON text, in pieces.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    state: State,
    /// The byte before was a backslash within a string.
    escaped: bool,
    key: Key,
    member: Option<Member>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Nothing but white space has come.
    #[default]
    Before,
    /// Within the outermost object, where a key, a comma or the end may stand.
    Between,
    Key,
    /// After a key.
    Colon,
    /// After the colon.
    Value,
    String,
    /// A number, `true`, `false` or `null`.
    Scalar,
    /// Within this many arrays and objects below the outermost.
    Nested(u32),
    NestedString(u32),
    /// The object has ended, or the text is not an object.
    Over,
}

/// The key that was read last, if it is short and has no escapes.
#[derive(Debug, Default)]
struct Key {
    text: [u8; 8],
    length: usize,
}

// === impl Scanner ===

impl Scanner {
    /// Reads on.
    pub(super) fn feed(&mut self, piece: &[u8], mut mark: impl FnMut(Mark)) {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            match self.state {
                State::Before => match byte {
                    b'{' => self.state = State::Between,
                    byte if is_space(byte) => {}
                    _ => self.state = State::Over,
                },
                State::Between => match byte {
                    b'"' => {
                        self.key.length = 0;
                        self.state = State::Key;
                    }
                    b'}' => self.state = State::Over,
                    _ => {}
                },
                State::Key => self.key_byte(byte),
                State::Colon => {
                    if byte == b':' {
                        self.state = State::Value;
                    }
                }
                State::Value if is_space(byte) => {}
                State::Value => {
                    self.member = self.key.member();
                    if let Some(member) = self.member {
                        mark(Mark::Start(member, at));
                    }
                    self.state = match byte {
                        b'"' => State::String,
                        b'{' | b'[' => State::Nested(1),
                        _ => State::Scalar,
                    };
                }
                State::Scalar => {
                    if byte == b',' || byte == b'}' || is_space(byte) {
                        self.end(at, &mut mark);
                        // The byte belongs to what comes between members.
                        continue;
                    }
                }
                State::String | State::NestedString(_) => {
                    let Some(skipped) = self.in_string(&piece[at..]) else {
                        return;
                    };
                    at += skipped;
                    if !self.escaped && piece.get(at) == Some(&b'"') {
                        match self.state {
                            State::NestedString(depth) => self.state = State::Nested(depth),
                            _ => self.end(at + 1, &mut mark),
                        }
                    }
                }
                State::Nested(depth) => match byte {
                    b'"' => self.state = State::NestedString(depth),
                    b'{' | b'[' => {
                        if let (b'{', 1, Some(member)) = (byte, depth, self.member) {
                            mark(Mark::Element(member, at));
                        }
                        self.state = State::Nested(depth.saturating_add(1));
                    }
                    b'}' | b']' if depth == 1 => self.end(at + 1, &mut mark),
                    b'}' | b']' => self.state = State::Nested(depth - 1),
                    _ => {}
                },
                State::Over => return,
            }
            at += 1;
        }
    }

    fn key_byte(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
            return;
        }
        match byte {
            b'"' => self.state = State::Colon,
            b'\\' => {
                self.escaped = true;
                self.key.spoil();
            }
            byte => self.key.push(byte),
        }
    }

    /// Goes to the next quote or backslash of a string; `None` when the piece ends before. Leaves `escaped` set
    /// when it stopped at a backslash.
    fn in_string(&mut self, rest: &[u8]) -> Option<usize> {
        if self.escaped {
            self.escaped = false;
            // The escaped byte itself; it never ends the string.
            let next = memchr2(b'"', b'\\', rest.get(1..)?)? + 1;
            self.escaped = rest.get(next) == Some(&b'\\');
            return Some(next);
        }
        let next = memchr2(b'"', b'\\', rest)?;
        self.escaped = rest.get(next) == Some(&b'\\');
        Some(next)
    }

    fn end(&mut self, at: usize, mark: &mut impl FnMut(Mark)) {
        if let Some(member) = self.member.take() {
            mark(Mark::End(member, at));
        }
        self.state = State::Between;
    }
}

// === impl Key ===

impl Key {
    fn push(&mut self, byte: u8) {
        match self.text.get_mut(self.length) {
            Some(slot) => {
                *slot = byte;
                self.length += 1;
            }
            None => self.spoil(),
        }
    }

    /// Makes the key one that nobody asked for.
    fn spoil(&mut self) {
        self.length = self.text.len() + 1;
    }

    fn member(&self) -> Option<Member> {
        match self.text.get(..self.length)? {
            b"model" => Some(Member::Model),
            b"usage" => Some(Member::Usage),
            b"choices" => Some(Member::Choices),
            b"error" => Some(Member::Error),
            b"type" => Some(Member::Type),
            b"response" => Some(Member::Response),
            b"message" => Some(Member::Message),
            _ => None,
        }
    }
}

/// The range to cut so that a member is gone and the object is still JSON: the member with one comma beside it.
///
/// `value` is where the value stands in `text`; `key` is the member's plain name.
pub(super) fn cut_range(text: &[u8], key: &str, value: Range<usize>) -> Range<usize> {
    let before = |end: usize| text.get(..end).unwrap_or_default();
    let colon = before(value.start).trim_ascii_end().len();
    let quoted = before(colon.saturating_sub(1)).trim_ascii_end().len();
    let start = quoted.saturating_sub(key.len() + 2);
    let left = before(start).trim_ascii_end();
    if left.ends_with(b",") {
        return left.len() - 1..value.end;
    }
    let rest = text.get(value.end..).unwrap_or_default();
    let right = rest.trim_ascii_start();
    let comma = usize::from(right.starts_with(b","));
    start..value.end + (rest.len() - right.len()) + comma
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[cfg(test)]
mod tests;
