//! Metadata: typed values under text keys.

use std::collections::BTreeMap;

use super::error::GgufError;

/// All metadata of a file, by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(pub BTreeMap<String, Value>);

/// A value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// Floating point, 32 bits.
    F32(f32),
    /// Yes or no.
    Bool(bool),
    /// A text. Bytes that are no UTF-8 stand as the replacement character.
    Text(String),
    /// A text too long to be kept.
    LongText {
        /// Its length.
        bytes: u64,
    },
    /// Several values of one kind.
    Array(Array),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// Floating point, 64 bits.
    F64(f64),
}

/// Several values of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The kind of all elements.
    pub kind: ValueKind,
    /// How many there are.
    pub count: u64,
    /// The elements; absent when they are too many to be kept.
    pub elements: Option<Vec<Value>>,
}

/// The kind of a value, with the number that stands for it in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValueKind {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Floating point, 32 bits.
    F32,
    /// Yes or no.
    Bool,
    /// A text.
    Text,
    /// Several values of one kind.
    Array,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Floating point, 64 bits.
    F64,
}

// === impl Metadata ===

impl Metadata {
    /// The value under `key`.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The text under `key`; absent when there is none.
    ///
    /// # Errors
    ///
    /// [`GgufError`] when the value is no text, or too long to be kept.
    pub fn text(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, &format!("{}, not a text", other.described()))),
        }
    }

    /// The whole number under `key`; absent when there is none.
    ///
    /// # Errors
    ///
    /// [`GgufError`] when the value is no whole number, or negative.
    pub fn number(&self, key: &str) -> Result<Option<u64>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => value.whole(key).map(Some),
        }
    }

    /// The whole numbers under `key`: an array, or one number that holds for all; absent when there is none.
    ///
    /// # Errors
    ///
    /// [`GgufError`] when an element is no whole number, or there are too many to be kept.
    pub fn numbers(&self, key: &str) -> Result<Option<Numbers>, GgufError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let Value::Array(array) = value else {
            return value.whole(key).map(|one| Some(Numbers::Same(one)));
        };
        let Some(elements) = &array.elements else {
            return Err(wrong(
                key,
                &format!("an array of {} values, too many for layers", array.count),
            ));
        };
        elements
            .iter()
            .enumerate()
            .map(|(index, element)| element.whole(&format!("{key}[{index}]")))
            .collect::<Result<_, _>>()
            .map(|each| Some(Numbers::Each(each)))
    }
}

/// One whole number for all layers, or one for each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Numbers {
    /// The same for all.
    Same(u64),
    /// One for each.
    Each(Vec<u64>),
}

// === impl Numbers ===

impl Numbers {
    /// That of the layer; absent when the array is shorter.
    #[must_use]
    pub fn of(&self, layer: usize) -> Option<u64> {
        match self {
            Self::Same(one) => Some(*one),
            Self::Each(each) => each.get(layer).copied(),
        }
    }

    /// The largest.
    #[must_use]
    pub fn largest(&self) -> u64 {
        match self {
            Self::Same(one) => *one,
            Self::Each(each) => each.iter().copied().max().unwrap_or(0),
        }
    }
}

// === impl Value ===

impl Value {
    /// An array of these numbers.
    #[must_use]
    pub fn u32s(numbers: &[u32]) -> Self {
        Self::Array(Array {
            kind: ValueKind::U32,
            count: u64::try_from(numbers.len()).unwrap_or(u64::MAX),
            elements: Some(numbers.iter().copied().map(Self::U32).collect()),
        })
    }

    /// An array of these texts.
    #[must_use]
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let elements: Vec<Self> = texts
            .into_iter()
            .map(|text| Self::Text(text.to_owned()))
            .collect();
        Self::Array(Array {
            kind: ValueKind::Text,
            count: u64::try_from(elements.len()).unwrap_or(u64::MAX),
            elements: Some(elements),
        })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueKind::U8,
            Self::I8(_) => ValueKind::I8,
            Self::U16(_) => ValueKind::U16,
            Self::I16(_) => ValueKind::I16,
            Self::U32(_) => ValueKind::U32,
            Self::I32(_) => ValueKind::I32,
            Self::F32(_) => ValueKind::F32,
            Self::Bool(_) => ValueKind::Bool,
            Self::Text(_) | Self::LongText { .. } => ValueKind::Text,
            Self::Array(_) => ValueKind::Array,
            Self::U64(_) => ValueKind::U64,
            Self::I64(_) => ValueKind::I64,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// As a whole number that is not negative; a truth value counts as 0 or 1, as llama.cpp takes it for layers.
    fn whole(&self, field: &str) -> Result<u64, GgufError> {
        let signed = |number: i64| {
            u64::try_from(number).map_err(|_| wrong(field, &format!("{number} is negative")))
        };
        match self {
            Self::U8(number) => Ok(u64::from(*number)),
            Self::U16(number) => Ok(u64::from(*number)),
            Self::U32(number) => Ok(u64::from(*number)),
            Self::U64(number) => Ok(*number),
            Self::Bool(yes) => Ok(u64::from(*yes)),
            Self::I8(number) => signed(i64::from(*number)),
            Self::I16(number) => signed(i64::from(*number)),
            Self::I32(number) => signed(i64::from(*number)),
            Self::I64(number) => signed(*number),
            Self::F32(_)
            | Self::F64(_)
            | Self::Text(_)
            | Self::LongText { .. }
            | Self::Array(_) => Err(wrong(
                field,
                &format!("{}, not a whole number", self.described()),
            )),
        }
    }

    /// In a few words, for an error.
    fn described(&self) -> String {
        match self {
            Self::F32(number) => number.to_string(),
            Self::F64(number) => number.to_string(),
            Self::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
            Self::LongText { bytes } => format!("a text of {bytes} bytes"),
            Self::Array(array) => format!("an array of {} values", array.count),
            Self::U8(_)
            | Self::I8(_)
            | Self::U16(_)
            | Self::I16(_)
            | Self::U32(_)
            | Self::I32(_)
            | Self::Bool(_)
            | Self::U64(_)
            | Self::I64(_) => "a number".to_owned(),
        }
    }
}

fn wrong(field: &str, problem: &str) -> GgufError {
    GgufError::new(format!("metadata.{field}"), problem, 0)
}

// === impl ValueKind ===

impl ValueKind {
    pub(super) fn of(number: u32) -> Option<Self> {
        ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) fn number(self) -> u32 {
        ALL.iter()
            .zip(0..)
            .find_map(|(kind, number)| (*kind == self).then_some(number))
            .unwrap_or(u32::MAX)
    }

    /// The bytes of one value, when all of this kind have the same.
    pub(super) fn width(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::Array => None,
        }
    }
}

/// All kinds, each at the place of its number.
const ALL: [ValueKind; 13] = [
    ValueKind::U8,
    ValueKind::I8,
    ValueKind::U16,
    ValueKind::I16,
    ValueKind::U32,
    ValueKind::I32,
    ValueKind::F32,
    ValueKind::Bool,
    ValueKind::Text,
    ValueKind::Array,
    ValueKind::U64,
    ValueKind::I64,
    ValueKind::F64,
];
