//! Reasons as clients may see them.

/// A reason without the directories of the machines: of a path, the file's name stays. Operators see the whole.
pub(in crate::gateway) fn without_paths(reason: &str) -> String {
    let mut shown = String::with_capacity(reason.len());
    let mut rest = reason;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let begins = next == '/' && !rest.starts_with("//") && is_border(before);
        let end = match begins {
            true => rest.find(ends_path).unwrap_or(rest.len()),
            false => next.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        shown.push_str(match begins {
            true => name_of(token),
            false => token,
        });
        before = token.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    shown
}

/// What a path may come after: in the middle of a word, a slash is part of a name, such as `org/model` or `1/2`.
fn is_border(before: char) -> bool {
    before.is_whitespace() || "'\"`([{=:,<".contains(before)
}

fn ends_path(one: char) -> bool {
    one.is_whitespace() || "'\"`)]},;<>".contains(one)
}

/// The last part of a path, with what was written after it; a path of one part is none that tells anything.
fn name_of(path: &str) -> &str {
    let whole = path.trim_end_matches(['/', ':', '.']);
    let begin = whole.rfind('/').map_or(0, |at| at + 1);
    match path.get(begin..) {
        Some(name) if !name.is_empty() => name,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_the_name_of_the_file_stays() {
        for (reason, shown) in [
            ("no path at all", "no path at all"),
            (
                "failed to load model '/home/u/.local/share/llmgw/w/tiny.gguf'",
                "failed to load model 'tiny.gguf'",
            ),
            ("file:/models/tiny.gguf: empty", "file:tiny.gguf: empty"),
            ("path=/a/b/c, exit 1", "path=c, exit 1"),
            (
                "https://host/a/b.gguf does not answer",
                "https://host/a/b.gguf does not answer",
            ),
            (
                "org/model needs 1/2 of /dev/shm.",
                "org/model needs 1/2 of shm.",
            ),
            ("in /a/b/:", "in b/:"),
            ("/", "/"),
            ("ä /ö/ü é", "ä ü é"),
        ] {
            assert_eq!(without_paths(reason), shown, "{reason}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_directory_is_left_and_what_is_no_path_stays(words in proptest::collection::vec("[a-z]{1,8}|/[a-z]{1,5}/[a-z]{1,5}", 0..8)) {
            let shown = without_paths(&words.join(" "));
            let expected: Vec<&str> = words.iter().map(|word| word.rsplit('/').next().unwrap()).collect();
            proptest::prop_assert_eq!(shown, expected.join(" "));
        }
    }
}
