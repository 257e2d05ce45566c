//! Random numbers for stress: splitmix64. They need not be hard to guess.

/// A stream of random numbers.
pub(super) struct Random(u64);

impl Random {
    /// A stream that differs in every run.
    pub(super) fn new() -> Random {
        // If the system gives no random numbers, the same cases are tried each time, which is no less valid.
        Random(getrandom::u64().unwrap_or(1))
    }

    /// Any number.
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` − 1.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// Returns true in `percent` of a hundred cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
