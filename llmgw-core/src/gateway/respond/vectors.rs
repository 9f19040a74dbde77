//! Puts the vectors of an embeddings answer into base64 while they pass.
//!
//! OpenAI's SDKs ask for that by default: the bytes of 32 bit floats, the lowest first. Some engines answer lists of
//! numbers all the same, which clients that asked for base64 can't read.

use std::mem;

use data_encoding::BASE64;

use crate::gateway::rewrite::Output;

/// Reads one JSON answer, in pieces. What is no list of numbers at `data[].embedding` passes as it is.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    state: State,
    /// Arrays and objects that are open.
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The string that was read last, if it is short.
    string: Vec<u8>,
    /// Within the value of `data`.
    in_data: bool,
    /// The text of a number, as far as it came.
    number: Vec<u8>,
    /// What is not encoded yet.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Outside,
    /// Behind the colon of a vector.
    Value,
    /// Behind the bracket of what may be a vector, which has not passed yet.
    Opened,
    Numbers,
}

// === impl Vectors ===

impl Vectors {
    /// Passes the next piece on.
    pub(super) fn feed(&mut self, piece: &[u8], out: &mut Output) {
        // What passes as it is, passes in one.
        let mut from = 0;
        let plain = |from: usize, to: usize, out: &mut Output| {
            let text = piece.get(from..to).unwrap_or_default();
            if !text.is_empty() {
                out.extend(text);
            }
        };
        for (at, byte) in piece.iter().copied().enumerate() {
            match self.state {
                State::Outside | State::Value if self.is_vector(byte) => {
                    plain(from, at, out);
                    self.state = State::Opened;
                    from = at + 1;
                }
                State::Outside | State::Value => self.outside(byte),
                State::Opened if byte.is_ascii_whitespace() => from = at + 1,
                State::Opened if matches!(byte, b'-' | b'0'..=b'9' | b'n' | b']') => {
                    out.extend(b"\"");
                    self.state = State::Numbers;
                    self.in_numbers(byte, out);
                    from = at + 1;
                }
                State::Opened => {
                    out.extend(b"[");
                    self.state = State::Outside;
                    self.depth = self.depth.saturating_add(1);
                    self.outside(byte);
                    from = at;
                }
                State::Numbers => {
                    self.in_numbers(byte, out);
                    from = at + 1;
                }
            }
        }
        if matches!(self.state, State::Outside | State::Value) {
            plain(from, piece.len(), out);
        }
    }

    fn is_vector(&self, byte: u8) -> bool {
        matches!(self.state, State::Value) && byte == b'['
    }

    fn outside(&mut self, byte: u8) {
        if self.in_string {
            if mem::take(&mut self.escaped) {
                return;
            }
            match byte {
                b'"' => self.in_string = false,
                b'\\' => self.escaped = true,
                byte if self.string.len() < LONGEST_KEY => self.string.push(byte),
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.string.clear();
                self.in_string = true;
                self.state = State::Outside;
            }
            b':' => {
                if self.depth == 1 {
                    self.in_data = self.string == b"data";
                }
                if self.depth == 3 && self.in_data && self.string == b"embedding" {
                    self.state = State::Value;
                }
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.state = State::Outside;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            byte if byte.is_ascii_whitespace() => {}
            _ => self.state = State::Outside,
        }
    }

    fn in_numbers(&mut self, byte: u8, out: &mut Output) {
        match byte {
            b',' | b']' => {
                let text = mem::take(&mut self.number);
                if !text.is_empty() {
                    self.push(&text);
                }
                if byte == b']' {
                    out.extend(BASE64.encode(&mem::take(&mut self.bytes)).as_bytes());
                    out.extend(b"\"");
                    self.state = State::Outside;
                } else if self.bytes.len() >= RUN {
                    out.extend(BASE64.encode(&mem::take(&mut self.bytes)).as_bytes());
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            byte if self.number.len() < LONGEST_NUMBER => self.number.push(byte),
            _ => {}
        }
    }

    fn push(&mut self, text: &[u8]) {
        let number = str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<f32>().ok());
        // JSON has no word for what is no number; engines write `null`.
        let number = number.unwrap_or(f32::NAN);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Keys that are looked for are shorter.
const LONGEST_KEY: usize = 16;
/// No number of 32 bits needs more digits.
const LONGEST_NUMBER: usize = 128;
/// Bytes that are encoded at once: whole numbers, and without padding.
const RUN: usize = 12 << 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn passed(text: &str, cuts: &[usize]) -> String {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let (mut vectors, mut out) = (Vectors::default(), Output::default());
        let mut from = 0;
        for cut in cuts {
            vectors.feed(&text.as_bytes()[from..cut], &mut out);
            from = cut;
        }
        String::from_utf8(out.take().to_vec()).unwrap()
    }

    fn numbers(base64: &Value) -> Vec<f32> {
        let bytes = BASE64.decode(base64.as_str().unwrap().as_bytes()).unwrap();
        let numbers = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()));
        numbers.collect()
    }

    proptest! {
        #[test]
        fn every_number_comes_out_as_it_was_however_the_answer_was_cut(
            vectors in prop::collection::vec(prop::collection::vec(any::<f32>().prop_filter("JSON", |n| n.is_finite()), 0..900), 0..4),
            cuts in prop::collection::vec(any::<usize>(), 0..6),
        ) {
            let data: Vec<Value> = vectors.iter().map(|vector| json!({"object": "embedding", "embedding": vector, "index": 0})).collect();
            let answer = json!({"model": "m", "data": data, "usage": {"prompt_tokens": 1}});
            let text = serde_json::to_string_pretty(&answer).unwrap();
            let read: Value = serde_json::from_str(&passed(&text, &cuts)).unwrap();
            for (at, vector) in vectors.iter().enumerate() {
                prop_assert_eq!(&numbers(&read["data"][at]["embedding"]), vector);
            }
            prop_assert_eq!(&read["usage"], &answer["usage"]);
        }
    }

    #[test]
    fn what_is_no_list_of_numbers_passes_as_it_is() {
        for text in [
            r#"{"data":[{"embedding":"AACAPw==","index":0}]}"#,
            r#"{"data":[{"embedding":[[1,2],[3]]}],"x":[1,2]}"#,
            r#"{"embedding":[1,2],"more":{"data":[{"embedding":[1]}]},"data":{"embedding":[1]}}"#,
            r#"{"data":[{"text":"\"embedding\":[1]","other":{"embedding":[1,2]}}]}"#,
            r#"{"data":[{"a":"embedding","b":[1]}]}"#,
            "[1,2]",
            "",
        ] {
            assert_eq!(passed(text, &[]), text);
            assert_eq!(passed(text, &[5, 17, 23]), text);
        }
        let odd = passed(r#"{"data":[{"embedding": [ 1 , null , -2.5e0 ]}]}"#, &[]);
        let odd: Value = serde_json::from_str(&odd).unwrap();
        let odd = numbers(&odd["data"][0]["embedding"]);
        assert!(
            odd[0] == 1.0 && odd[1].is_nan() && odd[2] == -2.5,
            "{odd:?}"
        );
    }
}
