//! A length of time, as people write it.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time. Written as a text, `15m` or `1h 30m`, or as whole nanoseconds; shown as a text.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Span(pub Duration);

/// Says why a text is not a length of time.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a length of time; write a number and a unit, such as 90s, 15m or 1h 30m")]
pub struct ParseSpanError {
    text: String,
}

// === impl Span ===

impl Span {
    /// Whole nanoseconds, as the wire has them; what is longer than 584 years is that.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&humantime::format_duration(self.0), f)
    }
}

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, ParseSpanError> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|_| ParseSpanError {
                text: text.chars().take(64).collect(),
            })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time, such as \"15m\", or whole nanoseconds")
            }

            fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_nanos(nanoseconds)))
            }

            fn visit_i64<E: de::Error>(self, nanoseconds: i64) -> Result<Span, E> {
                let problem = || E::custom(format!("{nanoseconds} ns is less than nothing"));
                u64::try_from(nanoseconds)
                    .map_err(|_| problem())
                    .and_then(|nanoseconds| self.visit_u64(nanoseconds))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Span, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_and_nanoseconds_mean_the_same() {
        let known = Span(Duration::from_secs(900));
        assert_eq!(read("\"15m\""), Ok(known));
        assert_eq!(read("900000000000"), Ok(known));
        assert_eq!(serde_json::to_string(&known).unwrap(), "\"15m\"");
        assert_eq!(read("\"1h 30m\"").unwrap().to_string(), "1h 30m");
    }

    #[test]
    fn what_is_no_length_of_time_is_refused_by_name() {
        assert!(read("\"soon\"").unwrap_err().contains("\"soon\""));
        assert!(read("-1").unwrap_err().contains("-1 ns"));
        assert!(read("1.5").unwrap_err().contains("a length of time"));
    }
}
