//! Random numbers whose seeds keep their meaning forever.

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by splitmix64.
///
/// We keep our own because a published result must be reproducible from its seed in ten years, whatever
/// a library has changed. Each purpose of a run (arrivals, sizes, the policy) draws from its own
/// stream, so that two policies see the same arrivals and sizes under one seed: common random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// Returns the stream with number `stream` under `seed`.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut state = seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F);
        Random([(); 4].map(|()| splitmix(&mut state)))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a number uniform in (0, 1]: never zero, so that its logarithm is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns an exponential number with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Returns a standard normal number (Box and Muller; the second of each pair is dropped, so that a
    /// draw is a pure step of the stream).
    #[inline]
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a number in `0..bound`, which must not be zero; the bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementations (splitmix64 of 0; xoshiro256++ of that state).
    #[test]
    fn seeds_mean_what_they_meant() {
        let mut state = 0;
        assert_eq!(splitmix(&mut state), 0xE220_A839_7B1D_CDAF);
        let mut reference = Random([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| reference.bits()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn draws_have_the_moments_they_should() {
        let mut random = Random::new(7, 1);
        let n = 1_000_000;
        let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
        let close = |value: f64, to: f64| assert!((value - to).abs() < 0.01, "{value} for {to}");
        close(mean(&mut || random.unit()), 0.5);
        close(mean(&mut || random.exponential()), 1.0);
        close(mean(&mut || random.exponential().powi(2)), 2.0);
        close(mean(&mut || random.normal()), 0.0);
        close(mean(&mut || random.normal().powi(2)), 1.0);
        close(mean(&mut || random.below(3) as f64), 1.0);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
