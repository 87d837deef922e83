//! Random numbers for policies in user space: fast, reproducible, and unfit for anything but scheduling.

/// `xorshift64*`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Similar seeds must not start alike, and zero would stay zero.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// Returns the next number.
    #[must_use]
    #[inline]
    pub fn number(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}
