//! Random numbers that reproduce a failed run: the seed is printed, and `FENCEPOST_SEED` sets it.

use std::hash::{BuildHasher, RandomState};

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Takes the seed from `FENCEPOST_SEED`, or a new one, and prints it (shown when the test fails).
    pub fn from_environment() -> Random {
        let seed = match std::env::var("FENCEPOST_SEED") {
            Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("FENCEPOST_SEED is `{seed}`; write a number")),
            Err(_) => RandomState::new().hash_one("seed"),
        };
        println!("to repeat this run: FENCEPOST_SEED={seed}");
        Random(seed)
    }

    /// The stream of this seed.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// An independent stream for each number, unaffected by draws from this one.
    pub fn fork(&self, number: u64) -> Random {
        Random(Random(self.0 ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03)).draw())
    }

    /// Any 64-bit number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` − 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
