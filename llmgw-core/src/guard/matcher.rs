//! What a rule looks for, made ready to be looked for.

use std::ops::Range;

use regex_automata::{Input, meta};
use regex_syntax::ParserBuilder;

use super::pii::{self, Find};
use crate::cluster::guard::{PiiKind, RuleKind};

/// Finds one thing.
#[derive(Debug)]
pub(super) struct Matcher {
    how: How,
    /// The bytes of the longest match that is found in a text that comes in pieces.
    pub(super) reach: usize,
}

#[derive(Debug)]
enum How {
    Regex(Box<meta::Regex>),
    Form(PiiKind, Find),
}

// === impl Matcher ===

impl Matcher {
    /// What finds all that a rule looks for; nothing for one that asks a model.
    ///
    /// # Errors
    /// Why there can be none.
    pub(super) fn all(kind: &RuleKind) -> Result<Vec<Self>, String> {
        match kind {
            RuleKind::Keywords(words) => Ok(vec![Self::pattern(&any_of(words))?]),
            RuleKind::Regex(pattern) => Ok(vec![Self::pattern(pattern)?]),
            RuleKind::Pii(kinds) => kinds.iter().map(|kind| Self::form(*kind)).collect(),
            RuleKind::Judge(_) => Ok(Vec::new()),
        }
    }

    fn form(kind: PiiKind) -> Result<Self, String> {
        match pii::finder(kind) {
            Some((find, reach)) => Ok(Self {
                how: How::Form(kind, find),
                reach,
            }),
            None => Self::pattern(pii::SECRETS),
        }
    }

    fn pattern(pattern: &str) -> Result<Self, String> {
        let parsed = ParserBuilder::new()
            .nest_limit(DEEPEST)
            .build()
            .parse(pattern)
            // Its own words show the pattern in several lines, with an arrow; the last says what is wrong.
            .map_err(|error| last_line(&error.to_string()))?;
        let properties = parsed.properties();
        if properties
            .minimum_len()
            .is_none_or(|shortest| shortest == 0)
        {
            return Err("it matches where nothing stands, or nothing at all".to_owned());
        }
        let config = meta::Config::new()
            .nfa_size_limit(Some(LARGEST))
            .onepass_size_limit(Some(LARGEST))
            .hybrid_cache_capacity(CACHE)
            .which_captures(regex_automata::nfa::thompson::WhichCaptures::Implicit);
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&parsed)
            .map_err(|error| match error.size_limit() {
                Some(limit) => format!("it is larger than {limit} bytes when it is compiled"),
                None => last_line(&error.to_string()),
            })?;
        Ok(Self {
            reach: properties.maximum_len().unwrap_or(REACH).min(FARTHEST),
            how: How::Regex(Box::new(regex)),
        })
    }

    /// Whether it can be in a text at all, looked at quickly.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        match &self.how {
            How::Regex(_) => true,
            How::Form(kind, _) => pii::may_have(*kind, text.as_bytes()),
        }
    }

    /// The first that begins at `span.start` or later and ends at `span.end` at the latest; what stands on either side of
    /// the span is seen.
    pub(super) fn find(&self, text: &str, span: Range<usize>) -> Option<Range<usize>> {
        match &self.how {
            How::Regex(regex) => {
                let input = Input::new(text).span(span);
                regex.search(&input).map(|found| found.range())
            }
            How::Form(_, find) => find(text.as_bytes(), span),
        }
    }

    /// The bytes that it takes in memory.
    pub(super) fn size(&self) -> usize {
        match &self.how {
            How::Regex(regex) => regex.memory_usage(),
            How::Form(..) => 0,
        }
    }
}

/// Any of these words, whole, in any case, with any white space between their parts.
fn any_of(words: &[String]) -> String {
    let mut words: Vec<&String> = words.iter().collect();
    // Of two that begin alike, the longer is found.
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let written: Vec<String> = words.iter().map(|word| whole(word)).collect();
    format!("(?i:{})", written.join("|"))
}

fn whole(word: &str) -> String {
    // Letters without a case, such as Chinese ones, stand in words that no space parts.
    let parts = |c: Option<char>| {
        c.is_some_and(|c| c.is_numeric() || c == '_' || c.is_lowercase() || c.is_uppercase())
    };
    let edge = |is_one: bool| if is_one { r"\b" } else { "" };
    let spaced: Vec<String> = word.split_whitespace().map(regex_syntax::escape).collect();
    format!(
        "{}{}{}",
        edge(parts(word.chars().next())),
        spaced.join(r"\s{1,8}"),
        edge(parts(word.chars().next_back()))
    )
}

fn last_line(text: &str) -> String {
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

const DEEPEST: u32 = 64;
/// Of one pattern, compiled.
const LARGEST: usize = 1 << 20;
/// What is remembered of a pattern while it is looked for, for each thread.
const CACHE: usize = 256 << 10;
/// Of what has no longest match.
const REACH: usize = 256;
const FARTHEST: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &RuleKind, text: &str) -> Vec<String> {
        let matchers = Matcher::all(kind).unwrap();
        let mut found = Vec::new();
        for matcher in &matchers {
            let mut at = 0;
            while let Some(range) = matcher.find(text, at..text.len()) {
                found.push(text.get(range.clone()).unwrap().to_owned());
                at = range.end;
            }
        }
        found
    }

    fn words(words: &[&str]) -> RuleKind {
        RuleKind::Keywords(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn keywords_are_found_whole_and_in_any_case() {
        let kind = words(&["Blue Harvest", "ärger", "c++", "blue"]);
        assert_eq!(found(&kind, "BLUE\n harvest!"), ["BLUE\n harvest"]);
        assert_eq!(found(&kind, "so viel ÄRGER"), ["ÄRGER"]);
        assert_eq!(found(&kind, "blues verärgert c++"), ["c++"]);
        assert_eq!(found(&kind, "blue harvested"), ["blue"]);
        assert_eq!(found(&words(&["苹果"]), "我喜欢苹果汁"), ["苹果"]);
        assert_eq!(found(&words(&["a.b"]), "axb a.b"), ["a.b"]);
    }

    #[test]
    fn secrets_are_found_by_their_forms() {
        let kind = RuleKind::Pii(vec![PiiKind::Secret]);
        let (key, token) = ("A1b2".repeat(9), "x".repeat(20));
        for secret in [
            format!("sk-proj-{key}"),
            format!("ghp_{key}"),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("eyJ{token}.eyJ{token}.{token}"),
            "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----".to_owned(),
        ] {
            assert_eq!(
                found(&kind, &format!("use {secret} for it")),
                std::slice::from_ref(&secret)
            );
        }
        for text in [
            format!("task-{key}"),
            "sk-short".to_owned(),
            "the AKIA prefix".to_owned(),
            "-----BEGIN CERTIFICATE-----".to_owned(),
        ] {
            assert!(found(&kind, &text).is_empty(), "{text}");
        }
    }

    #[test]
    fn patterns_that_cannot_be_are_refused_with_why() {
        let error = |pattern: &str| {
            let kind = RuleKind::Regex(pattern.to_owned());
            Matcher::all(&kind).unwrap_err()
        };
        assert!(error("(").contains("unclosed group"), "{}", error("("));
        assert!(
            error(r"(a)\1").contains("backreferences"),
            "{}",
            error(r"(a)\1")
        );
        for pattern in ["a*", "", "^", "x|", r"\b", "[a&&b]"] {
            assert!(
                error(pattern).contains("nothing"),
                "{pattern}: {}",
                error(pattern)
            );
        }
        let large = error(r"(?:\pL{100}){100}");
        assert!(large.contains("larger than"), "{large}");
        let deep = format!("{}a{}", "(".repeat(100), ")".repeat(100));
        assert!(error(&deep).contains("nest"), "{}", error(&deep));
    }

    #[test]
    fn how_far_a_match_can_reach_is_known_where_it_can_be() {
        let reach = |pattern: &str| {
            let kind = RuleKind::Regex(pattern.to_owned());
            Matcher::all(&kind).unwrap()[0].reach
        };
        assert_eq!((reach("abc"), reach("a{1,7}b"), reach("a+")), (3, 8, REACH));
        assert_eq!(reach("a{2000}"), FARTHEST);
    }
}
