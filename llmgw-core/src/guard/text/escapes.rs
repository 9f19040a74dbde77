//! The text that a JSON string stands for, and where its parts are written.

use std::{borrow::Cow, ops::Range};

use memchr::memchr;

/// The text of a string, given without its quotes. What is no text stands as U+FFFD.
pub(in crate::guard) fn decode(raw: &[u8]) -> Cow<'_, str> {
    if memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut at = 0;
    while let Some(rest) = raw.get(at..).filter(|rest| !rest.is_empty()) {
        let plain = memchr(b'\\', rest).unwrap_or(rest.len());
        let (stretch, _) = rest.split_at(plain);
        text.push_str(&String::from_utf8_lossy(stretch));
        at += plain;
        if plain < rest.len() {
            let (written, length) = escape(raw, at);
            text.push(written);
            at += length;
        }
    }
    Cow::Owned(text)
}

/// Where a part of the text is written. An escape that the part has only a piece of is written in it whole.
pub(in crate::guard) fn raw_range(raw: &[u8], part: Range<usize>) -> Range<usize> {
    if memchr(b'\\', raw).is_none() && str::from_utf8(raw).is_ok() {
        return part.start.min(raw.len())..part.end.min(raw.len());
    }
    let (mut at, mut length) = (0, 0);
    let mut start = None;
    while at < raw.len() && length < part.end {
        let (bytes, written) = unit(raw, at);
        if start.is_none() && length + bytes > part.start {
            start = Some(at);
        }
        length += bytes;
        at += written;
    }
    start.unwrap_or(at)..at
}

/// Of what stands there: the bytes of its text, and those that it is written in.
fn unit(raw: &[u8], at: usize) -> (usize, usize) {
    let Some(&first) = raw.get(at) else {
        return (0, 1);
    };
    if first == b'\\' {
        let (written, length) = escape(raw, at);
        return (written.len_utf8(), length);
    }
    if first.is_ascii() {
        return (1, 1);
    }
    // As they were decoded: up to the next escape, lossily.
    let rest = raw.get(at..).unwrap_or_default();
    let longest = rest.get(..rest.len().min(4)).unwrap_or_default();
    let chunk = longest.utf8_chunks().next();
    match chunk.map(|chunk| (chunk.valid(), chunk.invalid())) {
        Some((valid, _)) if !valid.is_empty() => {
            let length = valid.chars().next().map_or(1, char::len_utf8);
            (length, length)
        }
        Some((_, invalid)) => (char::REPLACEMENT_CHARACTER.len_utf8(), invalid.len().max(1)),
        None => (0, 1),
    }
}

/// The character that an escape stands for, and the bytes of the escape.
fn escape(raw: &[u8], at: usize) -> (char, usize) {
    let plain = match raw.get(at + 1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return unicode(raw, at),
        Some(&byte) if byte.is_ascii() => char::from(byte),
        // A backslash before something else, or at the end, is no escape.
        _ => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (plain, 2)
}

fn unicode(raw: &[u8], at: usize) -> (char, usize) {
    let Some(first) = four_digits(raw, at) else {
        return (char::REPLACEMENT_CHARACTER, 2);
    };
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = four_digits(raw, at + 6)
        && (0xdc00..0xe000).contains(&second)
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
            12,
        );
    }
    (
        char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER),
        6,
    )
}

/// The number in `\uXXXX`.
fn four_digits(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |sum, digit| {
        Some(sum * 16 + char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_read_as_json_has_them() {
        assert_eq!(
            decode(br#"a\n\t\"\\\/\u0041\ud83d\ude00z"#),
            "a\n\t\"\\/A😀z"
        );
        assert!(matches!(decode("Ärger".as_bytes()), Cow::Borrowed("Ärger")));
        // Half of a pair, and no escape at all.
        assert_eq!(decode(br"\ud83dx\q\u12"), "\u{fffd}xq\u{fffd}12");
        assert_eq!(raw_range(br"a\u0041b", 1..2), 1..7);
        assert_eq!(raw_range(br"a\u0041b", 2..3), 7..8);
        assert_eq!(raw_range("äb".as_bytes(), 2..3), 2..3);
    }

    proptest! {
        #[test]
        fn what_serde_reads_is_what_is_read_and_parts_are_where_they_are_written(
            text in "\\PC{0,20}[\n\t\"\\\\\u{1}😀aé]{0,20}", ascii: bool, cut in 0_usize..60,
        ) {
            let mut json = serde_json::to_string(&text).unwrap();
            if ascii {
                let units = json.encode_utf16().map(|unit| match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                    _ => format!("\\u{unit:04x}"),
                });
                json = units.collect();
            }
            let raw = &json.as_bytes()[1..json.len() - 1];
            prop_assert_eq!(decode(raw), text.as_str());
            let cut = text.floor_char_boundary(cut.min(text.len()));
            let (left, right) = (raw_range(raw, 0..cut), raw_range(raw, cut..text.len()));
            prop_assert_eq!(decode(&raw[left]), text.get(..cut).unwrap());
            prop_assert_eq!(decode(&raw[right]), text.get(cut..).unwrap());
        }

        #[test]
        fn any_bytes_are_read(raw in prop::collection::vec(prop::sample::select(
            b"\\u\"aD8d0\xc3\xa4\xf0\x9f".to_vec()), 0..30), from in 0_usize..40, to in 0_usize..40) {
            let text = decode(&raw).into_owned();
            let whole = raw_range(&raw, 0..text.len());
            prop_assert_eq!(whole.end, raw.len());
            let range = raw_range(&raw, from.min(to)..to.max(from));
            prop_assert!(range.start <= range.end && range.end <= raw.len());
        }
    }
}
