//! International bank account numbers.

use std::ops::Range;

use super::{before, digits_end, is_word, next_digit};

/// An IBAN, written in one or in groups of four.
pub(super) fn iban(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut at = span.start;
    while let Some(digit) = next_digit(text, at, span.end) {
        // Two letters stand before its first digit.
        if let Some(start) = digit.checked_sub(2).filter(|start| *start >= span.start)
            && let Some(end) = iban_at(text, start).filter(|end| *end <= span.end)
        {
            return Some(start..end);
        }
        at = digits_end(text, digit);
    }
    None
}

fn iban_at(text: &[u8], start: usize) -> Option<usize> {
    if is_word(before(text, start)) {
        return None;
    }
    let country = text.get(start..start + 2)?;
    let (_, length) = *LENGTHS
        .iter()
        .find(|(code, _)| code.as_bytes() == country)?;
    let is_grouped = text.get(start + 4) == Some(&b' ');
    let mut read = [0_u8; LONGEST];
    let mut at = start;
    for (place, slot) in read.iter_mut().enumerate().take(length) {
        if is_grouped && place > 0 && place % 4 == 0 {
            if text.get(at) != Some(&b' ') {
                return None;
            }
            at += 1;
        }
        *slot = *text.get(at)?;
        at += 1;
    }
    if is_word(text.get(at).copied()) {
        return None;
    }
    passes_97(read.get(..length)?).then_some(at)
}

/// ISO 7064: the first four signs moved to the end, letters as numbers from 10 on, leave 1 of 97.
fn passes_97(read: &[u8]) -> bool {
    let (first, rest) = read.split_at(read.len().min(4));
    let rest = rest.iter().chain(first).try_fold(0_u32, |sum, byte| {
        let value = char::from(*byte)
            .to_digit(36)
            .filter(|_| !byte.is_ascii_lowercase())?;
        Some(
            if value < 10 {
                sum * 10 + value
            } else {
                sum * 100 + value
            } % 97,
        )
    });
    rest == Some(1)
}

/// Countries with their lengths, from the registry of SWIFT.
const LENGTHS: [(&str, usize); 79] = [
    ("AD", 24),
    ("AE", 23),
    ("AL", 28),
    ("AT", 20),
    ("AZ", 28),
    ("BA", 20),
    ("BE", 16),
    ("BG", 22),
    ("BH", 22),
    ("BI", 27),
    ("BR", 29),
    ("BY", 28),
    ("CH", 21),
    ("CR", 22),
    ("CY", 28),
    ("CZ", 24),
    ("DE", 22),
    ("DJ", 27),
    ("DK", 18),
    ("DO", 28),
    ("EE", 20),
    ("EG", 29),
    ("ES", 24),
    ("FI", 18),
    ("FK", 18),
    ("FO", 18),
    ("FR", 27),
    ("GB", 22),
    ("GE", 22),
    ("GI", 23),
    ("GL", 18),
    ("GR", 27),
    ("GT", 28),
    ("HR", 21),
    ("HU", 28),
    ("IE", 22),
    ("IL", 23),
    ("IQ", 23),
    ("IS", 26),
    ("IT", 27),
    ("JO", 30),
    ("KW", 30),
    ("KZ", 20),
    ("LB", 28),
    ("LC", 32),
    ("LI", 21),
    ("LT", 20),
    ("LU", 20),
    ("LV", 21),
    ("LY", 25),
    ("MC", 27),
    ("MD", 24),
    ("ME", 22),
    ("MK", 19),
    ("MN", 20),
    ("MR", 27),
    ("MT", 31),
    ("MU", 30),
    ("NI", 28),
    ("NL", 18),
    ("NO", 15),
    ("PK", 24),
    ("PL", 28),
    ("PS", 29),
    ("PT", 25),
    ("QA", 29),
    ("RO", 24),
    ("RS", 22),
    ("SA", 24),
    ("SE", 24),
    ("SI", 19),
    ("SK", 24),
    ("SM", 27),
    ("TN", 24),
    ("TR", 26),
    ("UA", 29),
    ("VA", 22),
    ("VG", 24),
    ("XK", 20),
];

/// Of Saint Lucia, but for the spaces.
const LONGEST: usize = 32;
pub(super) const LONGEST_IBAN: usize = LONGEST + 7;
