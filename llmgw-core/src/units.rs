//! Quantities with their unit in the type: [`Bytes`], [`Cores`], [`Tokens`], [`Micros`], [`Span`].

mod span;

use std::{
    fmt,
    iter::Sum,
    ops::{Add, Sub},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, de};

pub use self::span::{ParseSpanError, Span};

/// An amount of memory or disk, in bytes.
///
/// Shown in binary units (IEC 80000-13: 1 GiB = 2^30 bytes). Arithmetic saturates: an amount is never negative
/// and never wraps.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// An amount of processor, in thousandths of a core.
///
/// Written as a number of cores (`4`, `1.5`) or as thousandths (`"1500m"`).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cores(pub u64);

/// A number of model tokens.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Tokens(pub u64);

/// An amount of money in millionths of the cluster's currency.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Micros(pub i64);

/// Says why a text is not an amount of bytes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a size; write a number and a unit, such as 24GiB, 512MiB or 1.5TB")]
pub struct ParseBytesError {
    text: String,
}

/// Says why a text is not an amount of money.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is not an amount of money; write units with six decimals at most, such as 25 or 0.15"
)]
pub struct ParseMicrosError {
    text: String,
}

/// Says why a text is not an amount of processor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not a number of cores; write 4, 1.5 or 1500m")]
pub struct ParseCoresError {
    text: String,
}

// === impl Bytes ===

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many mebibytes (2^20 bytes).
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// So many gibibytes (2^30 bytes).
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 30))
    }

    /// The difference, or nothing when `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let error = || ParseBytesError {
            text: text.chars().take(64).collect(),
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        let scale = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, scale)| *scale)
            .ok_or_else(error)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') {
            return Err(error());
        }
        let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| error())?;
        let divisor = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| error())?);
        let bytes = digits.checked_mul(u128::from(scale)).ok_or_else(error)? / divisor;
        u64::try_from(bytes).map(Self).map_err(|_| error())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = SHOWN
            .iter()
            .find(|(_, scale)| self.0 >= *scale)
            .copied()
            .unwrap_or(("B", 1));
        if scale == 1 {
            return write!(f, "{} B", self.0);
        }
        // Tenths, rounded half up, in integers: the same digits on every machine.
        let tenths = (u128::from(self.0) * 10 + u128::from(scale) / 2) / u128::from(scale);
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    /// Accepts a whole number of bytes, or a text such as `24GiB`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, such as 24GiB or a whole number of bytes")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value)
                    .map(Bytes)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

// === impl Cores ===

impl Cores {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many whole cores.
    #[must_use]
    pub const fn whole(count: u32) -> Self {
        Self(count as u64 * 1_000)
    }
}

impl Add for Cores {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Cores {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Cores {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Cores {
    type Err = ParseCoresError;

    fn from_str(text: &str) -> Result<Self, ParseCoresError> {
        let error = || ParseCoresError {
            text: text.chars().take(64).collect(),
        };
        let trimmed = text.trim();
        if let Some(thousandths) = trimmed.strip_suffix('m') {
            return thousandths.parse().map(Self).map_err(|_| error());
        }
        let (whole, fraction) = trimmed.split_once('.').unwrap_or((trimmed, ""));
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 {
            return Err(error());
        }
        let padded = format!("{whole}{fraction:0<3}");
        padded.parse().map(Self).map_err(|_| error())
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for Cores {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            serializer.serialize_u64(self.0 / 1_000)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Cores {
    /// Accepts a number of cores, or a text such as `1500m`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Cores;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of cores, such as 4, 1.5 or 1500m")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Cores, E> {
                let thousandths = value.checked_mul(1_000).map(Cores);
                thousandths.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Cores, E> {
                let value = u64::try_from(value)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))?;
                self.visit_u64(value)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Cores, E> {
                // The shortest text of the number is what was written.
                let written = value.to_string().parse();
                written.map_err(|_| E::invalid_value(de::Unexpected::Float(value), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cores, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

// === impl Tokens, Micros ===

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Micros {
    /// The amount without zeros that say nothing: `25`, `0.15`.
    #[must_use]
    pub fn shortest(self) -> String {
        let text = self.to_string();
        let text = text.trim_end_matches('0');
        text.trim_end_matches('.').to_owned()
    }
}

impl FromStr for Micros {
    type Err = ParseMicrosError;

    /// Reads units with decimals; an amount is not negative.
    fn from_str(text: &str) -> Result<Self, ParseMicrosError> {
        let error = || ParseMicrosError {
            text: text.chars().take(64).collect(),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) || fraction.len() > 6 {
            return Err(error());
        }
        format!("{whole}{fraction:0<6}")
            .parse()
            .map(Self)
            .map_err(|_| error())
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        write!(
            f,
            "{sign}{}.{:06}",
            magnitude / 1_000_000,
            magnitude % 1_000_000
        )
    }
}

#[cfg(test)]
mod money {
    use super::*;

    #[test]
    fn money_is_units_with_decimals() {
        for (text, micros) in [
            ("25", 25_000_000),
            ("0.15", 150_000),
            ("0.000001", 1),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Micros(micros)));
            assert_eq!(Micros(micros).shortest(), text);
        }
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "0.0000001",
            "99999999999999999999",
        ] {
            assert!(bad.parse::<Micros>().is_err(), "{bad:?}");
        }
    }
}

const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

const SHOWN: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("24GiB", 24 << 30),
            ("1.5 GiB", 3 << 29),
            ("400 GB", 400_000_000_000),
            ("512m", 512 << 20),
            ("7", 7),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for bad in [
            "",
            "GiB",
            "-1GiB",
            "1.",
            ".5GiB",
            "1..2G",
            "9999999999TiB",
            "1 furlong",
        ] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_shown_to_a_tenth() {
        assert_eq!(Bytes::gib(24).to_string(), "24.0 GiB");
        assert_eq!(Bytes(400_000_000_000).to_string(), "372.5 GiB");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(u64::MAX).to_string(), "16777216.0 TiB");
    }

    #[test]
    fn cores_are_read_as_numbers_and_as_thousandths() {
        for (json, thousandths) in [
            ("4", 4_000),
            ("1.5", 1_500),
            ("\"250m\"", 250),
            ("\"2.125\"", 2_125),
        ] {
            let cores: Cores = serde_json::from_str(json).unwrap();
            assert_eq!(cores.0, thousandths, "{json}");
            let again = serde_json::to_string(&cores).unwrap();
            assert_eq!(serde_json::from_str::<Cores>(&again).unwrap(), cores);
        }
        for bad in [
            "-1",
            "1.23456",
            "\"m\"",
            "\"\"",
            "\".5\"",
            "1e300",
            "18446744073709551615",
        ] {
            assert!(serde_json::from_str::<Cores>(bad).is_err(), "{bad}");
        }
        assert_eq!(Cores(1_050).to_string(), "1.05");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            drop(text.parse::<Bytes>());
        }

        #[test]
        fn whole_bytes_survive_text(bytes: u64) {
            prop_assert_eq!(bytes.to_string().parse::<Bytes>(), Ok(Bytes(bytes)));
        }
    }
}
