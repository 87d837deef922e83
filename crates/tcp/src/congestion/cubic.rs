//! CUBIC (RFC 9438).

use heddle_core::Ns;

/// How fast the window grows, in segments per cubic second (section 5).
const C: f32 = 0.4;
/// What remains of the window after a loss (section 4.6).
const BETA: f32 = 0.7;
/// The growth of a Reno that backs off by `BETA`, in segments a round trip (section 4.3).
const ALPHA: f32 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of congestion avoidance. Windows are in segments.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// The window before the last reduction (`W_max`).
    max: f32,
    /// When congestion avoidance began; zero until the first growth.
    epoch: Ns,
    /// Seconds from there to `max` (`K`).
    k: f32,
    /// What Reno would have (`W_est`).
    reno: f32,
    /// Parts of a byte that the window is yet to grow.
    rest: f32,
}

impl Cubic {
    pub fn new() -> Cubic {
        Cubic { max: 0.0, epoch: Ns::ZERO, k: 0.0, reno: 0.0, rest: 0.0 }
    }

    /// Returns the threshold after a loss at the window `cwnd` (sections 4.6 and 4.7).
    pub fn reduce(&mut self, cwnd: u32, mss: u32) -> u32 {
        let window = cwnd as f32 / mss as f32;
        // Fast convergence: a window that did not reach the last one leaves room for others.
        self.max = if window < self.max { window * (1.0 + BETA) / 2.0 } else { window };
        self.epoch = Ns::ZERO;
        (cwnd as f32 * BETA) as u32
    }

    pub fn forget_time(&mut self) {
        self.epoch = Ns::ZERO;
    }

    fn start(&mut self, window: f32, now: Ns) {
        self.max = self.max.max(window);
        self.k = cube_root((self.max - window) / C);
        self.reno = window;
        self.epoch = now.max(Ns(1));
    }

    /// Returns the window after `acked` bytes more arrived (sections 4.2 to 4.5).
    pub fn grow(&mut self, cwnd: u32, acked: u32, mss: u32, now: Ns, srtt: Ns) -> u32 {
        let (window, acked) = (cwnd as f32 / mss as f32, acked as f32 / mss as f32);
        if self.epoch == Ns::ZERO {
            self.start(window, now);
        }
        let epoch = self.epoch;
        let alpha = if self.reno < self.max { ALPHA } else { 1.0 };
        self.reno += alpha * acked / window;
        let target = self.target(now - epoch + srtt).clamp(window, 1.5 * window);
        let step = if self.target(now - epoch) < self.reno {
            (self.reno - window).max(0.0)
        } else {
            (target - window) / window * acked
        };
        let bytes = step * mss as f32 + self.rest;
        self.rest = bytes - (bytes as u32) as f32;
        cwnd.saturating_add(bytes as u32)
    }

    /// The window at `time` into congestion avoidance (section 4.2, figure 1).
    fn target(&self, time: Ns) -> f32 {
        let ahead = time.as_secs_f64() as f32 - self.k;
        C * ahead * ahead * ahead + self.max
    }
}

/// The cube root of a number that is not negative, by Newton's method.
fn cube_root(x: f32) -> f32 {
    if x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is a start within a factor of 1.3.
    let mut root = f32::from_bits(x.to_bits() / 3 + 0x2a51_2ce3);
    for _ in 0..4 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for root in [0.001f32, 0.5, 1.0, 4.2, 100.0, 1000.0] {
            let x = root * root * root;
            assert!((cube_root(x) / root - 1.0).abs() < 1e-4, "{root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }
}
