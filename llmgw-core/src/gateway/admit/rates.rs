//! What is said of rates with every answer: the headers that SDKs know.

use std::{fmt::Write, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::ledger::{Ledger, Need};
use crate::cluster::tenancy::quota::Measure;

/// What is left of the tightest rate of each measure.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(in crate::gateway) struct Rates {
    requests: Option<Rate>,
    tokens: Option<Rate>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Rate {
    limit: u64,
    remaining: u64,
    reset: Duration,
}

// === impl Rates ===

impl Rates {
    /// Of these needs, as far as is known here.
    pub(super) fn of(ledger: &Ledger, needs: &[Need]) -> Self {
        let now = ledger.now();
        let mut rates = Self::default();
        for need in needs {
            let slot = match need.quota.measure {
                Measure::Requests => &mut rates.requests,
                Measure::Tokens => &mut rates.tokens,
                Measure::Concurrent | Measure::Cost => continue,
            };
            let Some(reset) = need.quota.window.left(now) else {
                continue;
            };
            let rate = Rate {
                limit: need.limit,
                remaining: ledger.remaining(&need.quota, need.limit),
                reset,
            };
            if slot.is_none_or(|known| rate.remaining < known.remaining) {
                *slot = Some(rate);
            }
        }
        rates
    }

    /// Writes the headers.
    pub(in crate::gateway) fn sign(&self, headers: &mut HeaderMap) {
        let Self { requests, tokens } = self;
        for (rate, [limit, remaining, reset]) in [(requests, REQUESTS), (tokens, TOKENS)] {
            let Some(rate) = rate else { continue };
            headers.insert(limit, HeaderValue::from(rate.limit));
            headers.insert(remaining, HeaderValue::from(rate.remaining));
            if let Ok(value) = HeaderValue::from_str(&span(rate.reset)) {
                headers.insert(reset, value);
            }
        }
    }
}

/// A length of time as OpenAI writes it: `12ms`, `1.5s`, `6m0s`.
fn span(span: Duration) -> String {
    let millis = span.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, millis) = (millis / 60_000, millis % 60_000);
    let mut text = String::new();
    // Writing to a text does not fail.
    if minutes > 0 {
        write!(text, "{minutes}m").unwrap_or_default();
    }
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    write!(text, "{seconds}").unwrap_or_default();
    if millis > 0 {
        let fraction = format!(".{millis:03}");
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push('s');
    text
}

const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_written_as_sdks_read_it() {
        for (millis, text) in [
            (0, "0ms"),
            (12, "12ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (59_999, "59.999s"),
            (360_000, "6m0s"),
            (61_020, "1m1.02s"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
