//! Which part of a file an answer says that it holds.

use crate::units::Bytes;

/// A `Content-Range`, RFC 9110 section 14.4: `bytes 5-9/10`, `bytes 5-9/*` or `bytes */10`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ContentRange {
    /// The first byte and the last; absent in a refusal.
    pub span: Option<(Bytes, Bytes)>,
    /// The size of the whole; absent when the server does not know it.
    pub total: Option<Bytes>,
}

impl ContentRange {
    /// Reads the header; `None` when it can't be right.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (span, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let total = match total {
            "*" => None,
            digits => Some(number(digits)?),
        };
        if span == "*" {
            return total.map(|total| Self {
                span: None,
                total: Some(total),
            });
        }
        let (first, last) = span.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        if first > last || total.is_some_and(|total| last >= total) {
            return None;
        }
        Some(Self {
            span: Some((first, last)),
            total,
        })
    }
}

/// Digits alone: `+5`, which numbers may be read from elsewhere, is no length.
fn number(digits: &str) -> Option<Bytes> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| plain)?;
    // One more must still be a number.
    (number < u64::MAX).then_some(Bytes(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_read_and_what_can_not_be_right_is_not() {
        let some = |first, last, total: Option<u64>| ContentRange {
            span: Some((Bytes(first), Bytes(last))),
            total: total.map(Bytes),
        };
        assert_eq!(
            ContentRange::parse("bytes 5-9/10"),
            Some(some(5, 9, Some(10)))
        );
        assert_eq!(ContentRange::parse("bytes 0-0/*"), Some(some(0, 0, None)));
        let refusal = ContentRange::parse("bytes */10").unwrap();
        assert_eq!((refusal.span, refusal.total), (None, Some(Bytes(10))));
        for wrong in [
            "",
            "bytes",
            "bytes */*",
            "bytes 9-5/10",
            "bytes 5-10/10",
            "bytes +5-9/10",
            "bytes 5-9",
            "bytes -5/10",
            "items 5-9/10",
            "bytes 5-18446744073709551615/*",
            "bytes 5-99999999999999999999/*",
        ] {
            assert_eq!(ContentRange::parse(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_range_that_holds_together_or_none(text in "(bytes )?[0-9*+/ -]{0,24}|.{0,40}") {
            if let Some(ContentRange { span, total }) = ContentRange::parse(&text) {
                if let Some((first, last)) = span {
                    prop_assert!(first <= last);
                    prop_assert!(total.is_none_or(|total| last < total));
                }
                prop_assert!(span.is_some() || total.is_some());
            }
        }
    }
}
