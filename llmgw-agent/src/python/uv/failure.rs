//! Why `uv` failed, by what it prints: it has one status for all.

use super::UvError;
use crate::command::Finished;

/// Reads from what `uv` printed why it failed.
pub(super) fn failure(finished: &Finished) -> UvError {
    let lines = || finished.lines.iter().map(|line| clean(line));
    let whole = lines().collect::<Vec<_>>().join(" ");
    if whole.contains("Hash mismatch for") {
        let after = |mark: &str| {
            let rest = whole.split_once(mark)?.1.trim_start();
            let digest = rest.split_once("sha256:")?.1;
            Some(digest.chars().take_while(char::is_ascii_hexdigit).collect())
        };
        let package = whole
            .split_once("Hash mismatch for ")
            .and_then(|(_, rest)| {
                let word = rest.split_whitespace().next()?;
                Some(word.trim_matches('`').replace("==", " "))
            });
        if let (Some(package), Some(expected), Some(got)) =
            (package, after("Expected:"), after("Computed:"))
        {
            return UvError::Hash {
                package,
                expected,
                got,
            };
        }
    }
    let lower = whole.to_lowercase();
    let said = reason(&whole);
    if lower.contains("failed to extract")
        && !lower.contains("no space left")
        && let Some(package) = whole
            .split_once("Failed to download ")
            .and_then(|(_, rest)| {
                let word = rest.split_whitespace().next()?;
                Some(word.trim_matches('`').replace("==", " "))
            })
    {
        return UvError::Damaged { package, said };
    }
    if lower.contains("no space left on device") || lower.contains("disk quota exceeded") {
        return UvError::Full { said };
    }
    let unreachable = [
        "error sending request",
        "failed to fetch",
        "dns error",
        "connection refused",
        "request failed after",
        "operation timed out",
    ];
    if unreachable.iter().any(|mark| lower.contains(mark)) {
        return UvError::Unreachable { said };
    }
    if let Some(package) = missing(&whole) {
        return UvError::Missing { package };
    }
    UvError::Failed {
        how: finished.how(),
        said,
    }
}

/// The package of `there is no version of demo==1.0` or `demo==1.0 has no wheels with a matching …`.
fn missing(said: &str) -> Option<String> {
    let word = |text: &str| {
        let word = text
            .split_whitespace()
            .next()?
            .trim_matches(['`', ',', '.']);
        Some(word.replace("==", " "))
    };
    if let Some((_, rest)) = said.split_once("there is no version of ") {
        return word(rest);
    }
    if let Some((before, _)) = said.split_once(" was not found in the") {
        return before.split_whitespace().next_back().and_then(word);
    }
    let (before, _) = ["has no wheels with", "has no usable wheels", "has no wheel"]
        .iter()
        .find_map(|mark| said.split_once(mark))?;
    before.split_whitespace().next_back().and_then(word)
}

/// The error in one line, without addresses: an index's may hold a password.
fn reason(said: &str) -> String {
    let said = said
        .split_once("error: ")
        .map_or(said, |(_, said)| said)
        .split_whitespace()
        .map(|word| if word.contains("://") { "…" } else { word })
        .collect::<Vec<_>>()
        .join(" ");
    said.chars().take(MAX_SAID).collect()
}

/// A line without the marks of a tree.
fn clean(line: &str) -> String {
    let line = line
        .trim()
        .trim_start_matches(['×', '╰', '├', '─', '▶', '│', ' ']);
    line.trim().to_owned()
}

const MAX_SAID: usize = 400;
