//! Cards, phones and social security numbers.

use std::ops::Range;

use super::{before, digits_end, is_word, next_digit};

/// A payment card's number.
pub(super) fn card(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut at = span.start;
    while let Some(start) = next_digit(text, at, span.end) {
        if let Some(end) = card_at(text, start).filter(|end| *end <= span.end) {
            return Some(start..end);
        }
        at = digits_end(text, start);
    }
    None
}

/// The end of the card's number that begins there.
fn card_at(text: &[u8], start: usize) -> Option<usize> {
    let previous = before(text, start);
    // A fraction's digits, and those of a hexadecimal number, are no card's.
    if is_word(previous) || previous == Some(b'.') {
        return None;
    }
    let first = digits_end(text, start);
    let mut digits = [0_u8; MOST_DIGITS];
    let mut count = 0;
    let mut take = |range: Range<usize>| -> Option<()> {
        for byte in text.get(range)? {
            *digits.get_mut(count)? = byte - b'0';
            count += 1;
        }
        Some(())
    };
    take(start..first)?;
    let mut end = first;
    if first - start == 4 {
        // In groups: 4-4-4-4, 4-4-4-4-3, 4-6-5 or 4-6-4, all parted alike.
        let separator = *text.get(first)?;
        if separator != b' ' && separator != b'-' {
            return None;
        }
        let mut groups = [0_usize; 4];
        for group in &mut groups {
            let next = end + 1;
            let group_end = digits_end(text, next);
            if text.get(end) != Some(&separator) || group_end == next {
                break;
            }
            *group = group_end - next;
            take(next..group_end)?;
            end = group_end;
            if !matches!(*group, 4 | 6) {
                break;
            }
        }
        if !matches!(
            groups,
            [4, 4, 4, 0] | [4, 4, 4, 3] | [6, 5, 0, 0] | [6, 4, 0, 0]
        ) {
            return None;
        }
    }
    if is_word(text.get(end).copied()) {
        return None;
    }
    let digits = digits.get(..count)?;
    (is_issued(digits) && passes_luhn(digits)).then_some(end)
}

/// Whether an issuer has numbers that begin so, and are so long.
fn is_issued(digits: &[u8]) -> bool {
    let leading = |count: usize| {
        let leading = digits.get(..count).unwrap_or_default();
        leading
            .iter()
            .fold(0_u32, |sum, digit| sum * 10 + u32::from(*digit))
    };
    let (one, two, three, four) = (leading(1), leading(2), leading(3), leading(4));
    match digits.len() {
        13 => one == 4,
        14 => matches!(three, 300..=305) || matches!(two, 36 | 38 | 39),
        15 => matches!(two, 34 | 37),
        16 => {
            one == 4
                || matches!(two, 51..=55 | 62 | 65)
                || matches!(three, 644..=649)
                || matches!(four, 2221..=2720 | 3528..=3589 | 6011)
                || matches!(four, 5018 | 5020 | 5038 | 6304 | 6759 | 6761..=6763)
        }
        17..=19 => {
            (one == 4 && digits.len() == 19)
                || two == 62
                || matches!(four, 5018 | 5020 | 5038 | 6304 | 6759 | 6761..=6763)
        }
        _ => false,
    }
}

fn passes_luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (u32::from(*digit), place % 2) {
            (digit, 0) => digit,
            (digit, _) if digit > 4 => digit * 2 - 9,
            (digit, _) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// A social security number: `123-45-6789`, without those that are never given out.
pub(super) fn ssn(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut at = span.start;
    while let Some(start) = next_digit(text, at, span.end) {
        if start + 11 <= span.end && is_ssn(text, start) {
            return Some(start..start + 11);
        }
        at = digits_end(text, start);
    }
    None
}

fn is_ssn(text: &[u8], start: usize) -> bool {
    let previous = before(text, start);
    if is_word(previous) || matches!(previous, Some(b'-' | b'.')) {
        return false;
    }
    let Some(written) = text.get(start..start + 11) else {
        return false;
    };
    let next = text.get(start + 11).copied();
    if is_word(next) || next == Some(b'-') {
        return false;
    }
    let has_form = written.iter().enumerate().all(|(place, byte)| match place {
        3 | 6 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let (area, group, serial) = (&written[..3], &written[4..6], &written[7..]);
    has_form
        && area != b"000"
        && area != b"666"
        && area[0] != b'9'
        && group != b"00"
        && serial != b"0000"
}

/// A phone number: international with its `+`, or in three groups as in North America.
pub(super) fn phone(text: &[u8], span: Range<usize>) -> Option<Range<usize>> {
    let mut at = span.start;
    while let Some(digit) = next_digit(text, at, span.end) {
        let opened = before(text, digit).filter(|byte| matches!(byte, b'+' | b'('));
        let start = digit - usize::from(opened.is_some());
        if start >= span.start
            && let Some(end) = phone_at(text, start).filter(|end| *end <= span.end)
        {
            return Some(start..end);
        }
        at = digits_end(text, digit);
    }
    None
}

fn phone_at(text: &[u8], start: usize) -> Option<usize> {
    let previous = before(text, start);
    if is_word(previous) || matches!(previous, Some(b'+' | b'.' | b'-' | b'(')) {
        return None;
    }
    let end = match text.get(start)? {
        b'+' => international(text, start)?,
        _ => american(text, start)?,
    };
    (!is_word(text.get(end).copied())).then_some(end)
}

/// `+`, then 8 to 15 digits with at most two signs between two of them.
fn international(text: &[u8], start: usize) -> Option<usize> {
    if !matches!(text.get(start + 1)?, b'1'..=b'9') {
        return None;
    }
    let (mut digits, mut between, mut end) = (0, 0, start + 1);
    let limit = start + LONGEST_PHONE;
    for (at, byte) in text.iter().enumerate().take(limit).skip(start + 1) {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                between = 0;
                end = at + 1;
            }
            b' ' | b'-' | b'.' | b'(' | b')' | b'/' if between < 2 => between += 1,
            _ => break,
        }
        if digits > 15 {
            return None;
        }
    }
    (digits >= 8).then_some(end)
}

/// `(415) 555-2671`, `415-555-2671`, `415.555.2671` or with spaces.
fn american(text: &[u8], start: usize) -> Option<usize> {
    let group = |at: usize, length: usize| {
        let digits = text.get(at..at + length)?;
        let is_one = digits.iter().all(u8::is_ascii_digit) && digits_end(text, at) == at + length;
        is_one.then_some(at + length)
    };
    let is_opened = text.get(start) == Some(&b'(');
    let area = start + usize::from(is_opened);
    let area_end = group(area, 3)?;
    let (exchange, separator) = if is_opened {
        let spaced = text.get(area_end + 1) == Some(&b' ');
        (text.get(area_end) == Some(&b')')).then_some((area_end + 1 + usize::from(spaced), None))?
    } else {
        let separator = *text.get(area_end)?;
        matches!(separator, b' ' | b'-' | b'.').then_some((area_end + 1, Some(separator)))?
    };
    let exchange_end = group(exchange, 3)?;
    let second = *text.get(exchange_end)?;
    let parted =
        matches!(second, b' ' | b'-' | b'.') && separator.is_none_or(|first| first == second);
    let end = group(exchange_end + 1, 4)?;
    let has_leads = [area, exchange]
        .iter()
        .all(|at| matches!(text.get(*at), Some(b'2'..=b'9')));
    (parted && has_leads).then_some(end)
}

const MOST_DIGITS: usize = 19;
/// 19 digits in five groups.
pub(super) const LONGEST_CARD: usize = MOST_DIGITS + 4;
pub(super) const LONGEST_PHONE: usize = 32;
