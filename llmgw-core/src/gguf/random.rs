//! Numbers that look random and are the same everywhere.

use crate::fingerprint::Fingerprint;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Numbers of their own for each name.
    pub(super) fn named(name: &str) -> Self {
        Self::new(Fingerprint::of_bytes(name.as_bytes()).0)
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`. (The bias of the remainder is below one in 2^50 for bounds such as here.)
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or_default()
    }

    /// A number within ±`reach`, evenly spread. 16 bits become a float exactly, so that it is the same everywhere.
    pub(super) fn within(&mut self, reach: f32) -> f32 {
        let [low, high, ..] = self.next().to_le_bytes();
        let number = f32::from(i16::from_le_bytes([low, high]));
        number / 32_768.0 * reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values_for_the_seed_1234567_hold() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
