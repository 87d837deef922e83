//! Dilated time: scaled service times of the papers, and the capacity of six executors with them.

use heddle_core::Ns;

use heddle_load::{Mix, Op};

/// Threads that serve, as in Syrup's evaluation.
pub const EXECUTORS: usize = 6;

/// Syrup, section 5.2: a GET of RocksDB lasts 10 to 12 us, a SCAN 700 us.
const GET: Ns = Ns::from_us(11);
const SCAN: Ns = Ns::from_us(700);

/// The dilation factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dilation(pub u32);

impl Default for Dilation {
    fn default() -> Dilation {
        Dilation(50)
    }
}

impl Dilation {
    /// Service time of a request. `Op::Set` is the second user's GET if there are two users.
    #[must_use]
    pub fn service(self, op: Op) -> Ns {
        let time = match op {
            Op::Get | Op::Set => GET,
            Op::Scan => SCAN,
        };
        self.stretch(time)
    }

    /// The dilated time.
    #[must_use]
    pub fn stretch(self, time: Ns) -> Ns {
        time * u64::from(self.0)
    }

    /// Requests per second of `mix` that the executors could serve if they never waited and sleeps were exact.
    #[must_use]
    pub fn capacity(self, mix: &Mix) -> f64 {
        let mean: f64 = mix.ops().map(|op| mix.share(op) * self.service(op).as_secs_f64()).sum();
        EXECUTORS as f64 / mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_that_of_the_mean_service() {
        let capacity = |mix: &str| Dilation(50).capacity(&mix.parse().unwrap());
        assert!((capacity("get=1") - 6.0 / 550e-6).abs() < 1.0);
        // 0.995 * 550 us + 0.005 * 35 ms = 722 us: the 8.3 k/s of research/steer.md.
        assert!((capacity("get=99.5,scan=0.5") - 8307.0).abs() < 5.0);
        assert!((capacity("get=50,set=50") - capacity("get=1")).abs() < 1.0);
    }
}
