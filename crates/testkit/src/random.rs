//! Random numbers from one seed. The same seed gives the same numbers on every machine.

/// A small generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// Returns a number in `from..to`, which must not be empty.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// Returns an index of a slice of `len` elements, which must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns an element of a slice, which must not be empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())].clone()
    }

    /// Returns true in one case of `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number below `n`, which must not be 0: `k` with a probability ∝ 1 ⁄ (k + 1)^theta,
    /// where `theta` is above 0 and not 1. The continuous law stands for Zipf's discrete one.
    pub fn skewed(&mut self, n: u64, theta: f64) -> u64 {
        let (most, rest) = (n as f64, 1.0 - theta);
        let x = ((most.powf(rest) - 1.0) * self.fraction() + 1.0).powf(1.0 / rest);
        (x as u64).clamp(1, n) - 1
    }

    /// Returns a number in (0, 1].
    pub fn fraction(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}
