//! Finds a few members of a JSON object while its bytes go by, and builds nothing.
//!
//! An answer is passed on as it comes; only the places of `model`, `usage`, `choices` and `error` in the outermost
//! object matter. [`Scanner`] tells them for any cut of the text into pieces. It does not check the text: what
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
}

/// An edge of such a member's value, as an index into the piece that was fed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    /// The value's first byte.
    Start(Member, usize),
    /// The byte after the value's last.
    End(Member, usize),
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
                    b'{' | b'[' => self.state = State::Nested(depth.saturating_add(1)),
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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, value::RawValue};

    use super::*;

    /// The values found when the text comes in pieces that end at `cuts`.
    fn found(text: &str, cuts: &[usize]) -> Vec<(Member, String)> {
        let text = text.as_bytes();
        let mut scanner = Scanner::default();
        let mut found = Vec::new();
        let mut start = 0;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts {
            scanner.feed(&text[from..cut], |mark| match mark {
                Mark::Start(_, at) => start = from + at,
                Mark::End(member, at) => {
                    let value = text[start..from + at].to_vec();
                    found.push((member, String::from_utf8(value).unwrap()));
                }
            });
            from = cut;
        }
        found
    }

    fn name(member: Member) -> &'static str {
        match member {
            Member::Model => "model",
            Member::Usage => "usage",
            Member::Choices => "choices",
            Member::Error => "error",
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            r#"[\\"{}\[\],:]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(key(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("model".to_owned()),
            Just("usage".to_owned()),
            Just("choices".to_owned()),
            Just("error".to_owned()),
            r#"[a-z\\"{}\[\]:,é]{0,12}"#,
        ]
    }

    fn object() -> impl Strategy<Value = String> {
        let members = prop::collection::btree_map(key(), json(), 0..8);
        (members, any::<bool>()).prop_map(|(members, pretty)| {
            let value = Value::Object(members.into_iter().collect());
            if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            }
        })
    }

    proptest! {
        #[test]
        fn the_same_values_are_found_as_by_a_parser_for_every_cut(
            text in object(), cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let parsed: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
            let mut expected: Vec<(&str, &str)> = ["model", "usage", "choices", "error"]
                .into_iter()
                .filter_map(|key| parsed.get(key).map(|raw| (key, raw.get())))
                .collect();
            let found = found(&text, &cuts);
            let mut found: Vec<(&str, &str)> =
                found.iter().map(|(member, text)| (name(*member), text.as_str())).collect();
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_member_that_is_cut_is_all_that_is_gone(text in object()) {
            let mut value = None;
            let mut start = 0;
            Scanner::default().feed(text.as_bytes(), |mark| match mark {
                Mark::Start(Member::Usage, at) => start = at,
                Mark::End(Member::Usage, at) => value = Some(start..at),
                _ => {}
            });
            prop_assume!(value.is_some());
            let range = cut_range(text.as_bytes(), "usage", value.unwrap());
            let mut rest = text.clone();
            rest.replace_range(range, "");
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            expected.as_object_mut().unwrap().remove("usage");
            prop_assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), expected);
        }

        #[test]
        fn any_bytes_are_survived(pieces in prop::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let mut scanner = Scanner::default();
            for piece in &pieces {
                scanner.feed(piece, |mark| {
                    let (Mark::Start(_, at) | Mark::End(_, at)) = mark;
                    assert!(at <= piece.len());
                });
            }
        }
    }

    #[test]
    fn what_is_not_an_object_has_no_members() {
        assert!(found(r#"[{"model":"a"}]"#, &[]).is_empty());
        assert!(found(r#""model""#, &[]).is_empty());
    }
}
