//! Numbers that look random and are the same for the same seed.

use std::time::Duration;

/// xoshiro256**, filled by splitmix64, both as published by D. Blackman and S. Vigna (<https://prng.di.unimi.it>, public
/// domain).
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| splitmix(&mut state)))
    }

    pub(super) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`, which is not 0. That the low ones are a little more likely is no matter here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number of this range, both ends included.
    pub(super) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Whether something happens that does in so many of a thousand cases.
    pub(super) fn happens(&mut self, in_thousand: u64) -> bool {
        self.below(1_000) < in_thousand
    }

    /// A length of time of this range, in milliseconds.
    pub(super) fn span(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.within(least, most))
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let len = u64::try_from(of.len()).ok().filter(|len| *len > 0)?;
        let at = usize::try_from(self.below(len)).ok()?;
        of.get(at).copied()
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_generators() {
        // Of splitmix64 from 1234567, as its author's C prints them.
        let mut state = 1_234_567;
        let first = [(); 3].map(|()| splitmix(&mut state));
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        // Of xoshiro256** from 1, 2, 3, 4: the reference values that implementations of it are tested with.
        let mut random = Random([1, 2, 3, 4]);
        let first = [(); 4].map(|()| random.next());
        assert_eq!(first, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }
}
