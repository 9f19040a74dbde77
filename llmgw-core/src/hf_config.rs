//! `config.json`, which stands beside safetensors and says how a model is built.
//!
//! Models that also see or hear keep what concerns text in `text_config`; it is looked there first.

use serde_json::{Map, Value};

/// A `config.json` that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    whole: Map<String, Value>,
}

/// Says what in a `config.json` can't be right, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The path of the field, such as `text_config.num_hidden_layers`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

// === impl Config ===

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no JSON object, or longer than [`MAX_BYTES`].
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        if text.len() > MAX_BYTES {
            let problem = format!("{} bytes; at most {MAX_BYTES} are read", text.len());
            return Err(refuse("config", problem));
        }
        serde_json::from_slice(text)
            .map(|whole| Self { whole })
            .map_err(|error| refuse("config", error.to_string()))
    }

    /// What the model calls its kind, such as `qwen3_moe`: that of the text part when it has one.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no text.
    pub fn model_type(&self) -> Result<Option<&str>, ConfigError> {
        self.text("model_type")
    }

    /// A text; absent when it is missing or null.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ConfigError> {
        let Some((path, value)) = self.field(name) else {
            return Ok(None);
        };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| wrong(path, value, "a text"))
    }

    /// A whole number; absent when it is missing or null.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no whole number, or negative.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ConfigError> {
        let Some((path, value)) = self.field(name) else {
            return Ok(None);
        };
        let number = value.as_u64();
        number
            .map(Some)
            .ok_or_else(|| wrong(path, value, "a whole number"))
    }

    /// The first of several fields that is there: models name the same thing differently.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no whole number, or negative.
    pub fn number_of(&self, names: &[&str]) -> Result<Option<u64>, ConfigError> {
        for name in names {
            if let Some(number) = self.number(name)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// A number that must be there.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is missing, no whole number, or 0.
    pub fn needed(&self, name: &str) -> Result<u64, ConfigError> {
        match self.number(name)? {
            Some(0) => Err(refuse(self.path(name), "0 can't be".to_owned())),
            Some(number) => Ok(number),
            None => Err(refuse(self.path(name), "is missing".to_owned())),
        }
    }

    /// Yes or no; absent when it is missing or null.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        let Some((path, value)) = self.field(name) else {
            return Ok(None);
        };
        let flag = value.as_bool();
        flag.map(Some)
            .ok_or_else(|| wrong(path, value, "true or false"))
    }

    /// A list of texts; absent when it is missing or null.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it is no list, or an element is no text.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<&str>>, ConfigError> {
        let Some((path, value)) = self.field(name) else {
            return Ok(None);
        };
        let Some(elements) = value.as_array() else {
            return Err(wrong(path, value, "a list"));
        };
        let texts = elements.iter().enumerate().map(|(index, element)| {
            element
                .as_str()
                .ok_or_else(|| wrong(format!("{path}[{index}]"), element, "a text"))
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// A field that is not null, with its path: of the text part first, then of the whole.
    fn field(&self, name: &str) -> Option<(String, &Value)> {
        let inner = self
            .inner()
            .and_then(|text| text.get(name))
            .map(|value| (format!("{TEXT}.{name}"), value));
        let outer = || self.whole.get(name).map(|value| (name.to_owned(), value));
        inner.or_else(outer).filter(|(_, value)| !value.is_null())
    }

    /// Where a field that is missing should stand.
    fn path(&self, name: &str) -> String {
        if self.inner().is_some() {
            format!("{TEXT}.{name}")
        } else {
            name.to_owned()
        }
    }

    fn inner(&self) -> Option<&Map<String, Value>> {
        self.whole.get(TEXT)?.as_object()
    }
}

fn wrong(field: String, value: &Value, expected: &str) -> ConfigError {
    let mut shown: String = value.to_string().chars().take(40).collect();
    if shown.chars().count() == 40 {
        shown.push('…');
    }
    refuse(field, format!("{shown} is not {expected}"))
}

fn refuse(field: impl Into<String>, problem: String) -> ConfigError {
    ConfigError {
        field: field.into(),
        problem,
    }
}

/// The longest `config.json` that is read. Real ones have some KiB.
pub const MAX_BYTES: usize = 4 << 20;

const TEXT: &str = "text_config";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_text_part_comes_first_and_the_whole_fills_in() {
        let config = config(
            r#"{"model_type": "x", "vocab_size": 7, "sliding_window": null,
                "text_config": {"model_type": "x_text", "layer_types": ["a", "b"], "tied": true}}"#,
        );
        assert_eq!(config.model_type(), Ok(Some("x_text")));
        assert_eq!(config.number("vocab_size"), Ok(Some(7)));
        assert_eq!(config.number("sliding_window"), Ok(None));
        assert_eq!(config.texts("layer_types"), Ok(Some(vec!["a", "b"])));
        assert_eq!(config.flag("tied"), Ok(Some(true)));
    }

    #[test]
    fn what_can_t_be_is_refused_with_its_path() {
        let config = config(r#"{"text_config": {"n": "many", "m": -1, "l": [1], "z": 0}}"#);
        let told = |error: ConfigError| error.to_string();
        assert_eq!(
            config.number("n").map_err(told).unwrap_err(),
            "text_config.n: \"many\" is not a whole number"
        );
        assert_eq!(
            config.needed("m").map_err(told).unwrap_err(),
            "text_config.m: -1 is not a whole number"
        );
        assert_eq!(
            config.texts("l").map_err(told).unwrap_err(),
            "text_config.l[0]: 1 is not a text"
        );
        assert_eq!(
            config.needed("z").map_err(told).unwrap_err(),
            "text_config.z: 0 can't be"
        );
        assert_eq!(
            config.needed("q").map_err(told).unwrap_err(),
            "text_config.q: is missing"
        );
        assert!(Config::parse(b"[]").is_err());
        assert!(Config::parse(&vec![b' '; MAX_BYTES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(config) = Config::parse(&bytes) {
                drop(config.model_type());
            }
        }
    }
}
