//! Numbers in the text that Prometheus reads.

/// The sum of a number over all its labels; `None` when the text does not have it.
///
/// Lines are `name{label="value"} 1.0`, with or without labels, and may end with a time. What can't be read is
/// passed over: a line of another program is no reason to doubt the rest.
pub(super) fn sum(text: &[u8], name: &str) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut total = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let values = if rest.starts_with('{') {
            // Values of labels may contain any brace: the last one closes.
            let Some((_, values)) = rest.rsplit_once('}') else {
                continue;
            };
            values
        } else if rest.starts_with([' ', '\t']) {
            rest
        } else {
            // Another number, whose name goes on.
            continue;
        };
        let value = values.split_ascii_whitespace().next();
        let value: Option<f64> = value.and_then(|value| value.parse().ok());
        if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
            total = Some(total.unwrap_or(0.0) + value);
        }
    }
    total
}

/// A number of requests, rounded up: a part of one is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is summed is finite and not negative, and a cast from f64 saturates"
)]
pub(super) fn count(text: &[u8], name: &str) -> Option<usize> {
    sum(text, name).map(|sum| sum.ceil() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_summed_over_its_labels_and_told_from_longer_names() {
        let text = b"# HELP vllm:num_requests_running Number of requests.\n\
            # TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a {b} c\"} 2.0\n\
            vllm:num_requests_running{engine=\"1\",model_name=\"x\"} 1.0 1700000000\n\
            vllm:num_requests_running_total{engine=\"0\"} 900.0\n\
            plain 3\nplain4 5\n";
        assert_eq!(count(text, "vllm:num_requests_running"), Some(3));
        assert_eq!(count(text, "plain"), Some(3));
        assert_eq!(count(text, "missing"), None);
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        for text in ["a NaN", "a -1", "a", "a{", "a{x=\"1\"}", "a{} x"] {
            assert_eq!(count(text.as_bytes(), "a"), None, "{text}");
        }
        assert_eq!(count(b"a NaN\na 1", "a"), Some(1));
        assert_eq!(count(b"\xff\n", "a"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(a|\\{|\\}| |[0-9.e+-]|\n|\"){0,40}") {
            count(text.as_bytes(), "a");
        }
    }
}
