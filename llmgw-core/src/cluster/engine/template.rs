//! Texts with places that are filled when an engine is started.

use std::fmt;

/// What a place stands for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Placeholder {
    /// `{model}`: the path of the weights, a file or a directory.
    Model,
    /// `{name}`: what clients call the model.
    Name,
    /// `{replica}`: the id of the replica, which no other ever has.
    Replica,
    /// `{host}`: where it listens, an address of the loopback.
    Host,
    /// `{port}`: the port on which it listens.
    Port,
    /// `{context}`: tokens of context for each request.
    Context,
    /// `{parallel}`: requests that run at the same time.
    Parallel,
    /// `{gpus}`: the numbers of its GPUs with commas between; empty when it has none.
    Gpus,
}

/// A text with places. `{{` and `}}` stand for the braces themselves.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Piece {
    Text(String),
    Place(Placeholder),
}

/// Says why a text is not a template.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no such placeholder.
    #[error("{{{name}}} is not a placeholder")]
    Unknown {
        /// What stands between the braces, shortened.
        name: String,
    },
    /// A brace has no other.
    #[error("a brace is not closed or not opened")]
    Unbalanced,
}

// === impl Placeholder ===

impl Placeholder {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Model,
        Self::Name,
        Self::Replica,
        Self::Host,
        Self::Port,
        Self::Context,
        Self::Parallel,
        Self::Gpus,
    ];

    /// The name between the braces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Name => "name",
            Self::Replica => "replica",
            Self::Host => "host",
            Self::Port => "port",
            Self::Context => "context",
            Self::Parallel => "parallel",
            Self::Gpus => "gpus",
        }
    }
}

// === impl Template ===

impl Template {
    /// What stands where something is not shown, after what is.
    pub(super) fn hidden(shown: &str) -> Self {
        Self(vec![Piece::Text(format!("{shown}…"))])
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it has a placeholder that is none, or a brace alone.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            match character {
                '{' | '}' if rest.peek() == Some(&character) => {
                    rest.next();
                    plain.push(character);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some('{') | None => return Err(TemplateError::Unbalanced),
                            Some(next) => name.push(next),
                        }
                    }
                    let place = Placeholder::ALL
                        .into_iter()
                        .find(|place| place.as_str() == name)
                        .ok_or_else(|| TemplateError::Unknown {
                            name: name.chars().take(MAX_SHOWN).collect(),
                        })?;
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Place(place));
                }
                '}' => return Err(TemplateError::Unbalanced),
                other => plain.push(other),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// Whether it has this place.
    #[must_use]
    pub fn has(&self, place: Placeholder) -> bool {
        self.0.contains(&Piece::Place(place))
    }

    /// Whether it has no place at all.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The text, with every place filled by `value`.
    #[must_use]
    pub fn fill(&self, value: impl Fn(Placeholder) -> String) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Place(place) => value(*place),
            })
            .collect()
    }
}

impl fmt::Display for Template {
    /// Writes it as it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Piece::Place(place) => write!(f, "{{{}}}", place.as_str())?,
            }
        }
        Ok(())
    }
}

const MAX_SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_filled_and_doubled_braces_are_braces() {
        let template = Template::parse("--at={host}:{port} {{\"a\": 1}}").unwrap();
        let filled = template.fill(|place| match place {
            Placeholder::Host => "127.0.0.1".to_owned(),
            Placeholder::Port => "4711".to_owned(),
            other => panic!("{other:?} does not stand there"),
        });
        assert_eq!(filled, "--at=127.0.0.1:4711 {\"a\": 1}");
        assert!(template.has(Placeholder::Port) && !template.has(Placeholder::Model));
    }

    #[test]
    fn what_is_no_placeholder_is_refused_by_its_name() {
        let error = Template::parse("--gpu={gpu}").unwrap_err();
        assert_eq!(error.to_string(), "{gpu} is not a placeholder");
        for unbalanced in ["{", "}", "{port", "port}", "{po{rt}", "a}b"] {
            assert_eq!(
                Template::parse(unbalanced),
                Err(TemplateError::Unbalanced),
                "{unbalanced}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_template_survives_text(text in "(\\{port\\}|\\{\\{|\\}\\}|[a-z{} ]){0,12}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
            }
        }
    }
}
