//! A short, stable digest of plain data: tells whether a definition has changed, and breaks ties.
//!
//! FNV-1a, 64 bit (the offset basis and the prime are those of draft-eastlake-fnv). It is no protection against
//! a forger; what must be, is hashed with SHA-256.

use std::fmt;

use serde::{Deserialize, Serialize, de};

/// A digest of some plain data.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of these bytes: the same on every machine and in every release.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(OFFSET_BASIS, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
        }))
    }

    /// The fingerprint of a value's JSON form; `None` when it has none (a map whose keys are no texts).
    #[must_use]
    pub fn of<T: Serialize>(value: &T) -> Option<Self> {
        serde_json::to_vec(value)
            .ok()
            .map(|json| Self::of_bytes(&json))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| de::Error::custom("a fingerprint is 16 hexadecimal digits"))
    }
}

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_test_values_hold() {
        assert_eq!(Fingerprint::of_bytes(b""), Fingerprint(OFFSET_BASIS));
        assert_eq!(
            Fingerprint::of_bytes(b"a"),
            Fingerprint(0xaf63_dc4c_8601_ec8c)
        );
        assert_eq!(
            Fingerprint::of_bytes(b"foobar"),
            Fingerprint(0x8594_4171_f739_67e8)
        );
    }
}
