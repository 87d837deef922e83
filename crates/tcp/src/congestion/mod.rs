//! The congestion window: slow start, congestion avoidance, reduction (RFC 5681, RFC 6582, RFC 9438), or BBR's model.

mod bbr;
mod cubic;

use crate::config::Congestion;
use alloc::boxed::Box;
use bbr::Bbr;
use cubic::Cubic;
use heddle_core::Ns;

pub use bbr::Ack;

/// Window and threshold in bytes, and what the algorithm remembers.
#[derive(Debug)]
pub struct Window {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// `None` while there is nothing to remember: for CUBIC before the first loss, for BBR while the initial window is
    /// enough.
    algorithm: Option<Box<Algorithm>>,
}

#[derive(Debug)]
enum Algorithm {
    /// Bytes acknowledged since the window last grew.
    NewReno {
        acked: u32,
    },
    Cubic(Cubic),
    /// Apart, as it is some times larger than the others.
    Bbr(Box<Bbr>),
}

/// The largest window. Buffers are smaller.
const MAX: u32 = 1 << 30;

impl Window {
    pub fn new(algorithm: Congestion, mss: u32, segments: u8) -> Window {
        let algorithm = match algorithm {
            Congestion::NewReno => Some(Box::new(Algorithm::NewReno { acked: 0 })),
            Congestion::Cubic | Congestion::Bbr => None,
        };
        Window { cwnd: mss * u32::from(segments), ssthresh: MAX, algorithm }
    }

    fn algorithm(&mut self) -> &mut Algorithm {
        self.algorithm.get_or_insert_with(|| Box::new(Algorithm::Cubic(Cubic::new())))
    }

    /// The model of BBR, if there is one.
    pub fn model(&mut self) -> Option<&mut Bbr> {
        match self.algorithm.as_deref_mut() {
            Some(Algorithm::Bbr(bbr)) => Some(bbr),
            _ => None,
        }
    }

    /// The same, to look at.
    pub fn known_model(&self) -> Option<&Bbr> {
        match self.algorithm.as_deref() {
            Some(Algorithm::Bbr(bbr)) => Some(bbr),
            _ => None,
        }
    }

    /// Makes a model if there is none, for a path whose shortest round trip is `min_rtt`.
    pub fn start_model(&mut self, now: Ns, mss: u32, min_rtt: Ns) {
        if self.model().is_none() {
            let bbr = Box::new(Bbr::new(now, self.cwnd, mss, min_rtt));
            self.algorithm = Some(Box::new(Algorithm::Bbr(bbr)));
        }
    }

    /// Nothing is in flight: a model that knows little goes, and the window is `initial` again.
    pub fn trim_model(&mut self, initial: u32) {
        match self.model() {
            Some(model) if model.is_full() => model.trim(),
            Some(_) => (self.cwnd, self.algorithm) = (initial, None),
            None => {}
        }
    }

    /// Takes an acknowledgement into the model, if there is one.
    pub fn update_model(&mut self, ack: &Ack) {
        let cwnd = self.cwnd;
        if let Some(model) = self.model() {
            self.cwnd = model.update(cwnd, ack);
        }
    }

    /// Whether the window doubles each round trip.
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows after `acked` bytes arrived; `srtt` is the smoothed round-trip time.
    pub fn acknowledged(&mut self, acked: u32, mss: u32, now: Ns, srtt: Ns) {
        let mut rest = acked;
        if self.is_slow_start() {
            // Appropriate byte counting (RFC 3465): a window for a window, however acknowledgements are spread.
            let step = rest.min(self.ssthresh - self.cwnd);
            self.cwnd += step;
            rest -= step;
        }
        if rest > 0 {
            self.avoid(rest, mss, now, srtt);
        }
        self.cwnd = self.cwnd.min(MAX);
    }

    fn avoid(&mut self, acked: u32, mss: u32, now: Ns, srtt: Ns) {
        let cwnd = self.cwnd;
        match self.algorithm() {
            Algorithm::NewReno { acked: sum } => {
                *sum += acked;
                if *sum >= cwnd {
                    *sum -= cwnd;
                    self.cwnd += mss;
                }
            }
            Algorithm::Cubic(cubic) => self.cwnd = cubic.grow(cwnd, acked, mss, now, srtt),
            Algorithm::Bbr(_) => {}
        }
    }

    /// Sets the threshold after a loss, with `in_flight` bytes in the network (RFC 5681, section 3.1, equation 4; RFC
    /// 9438, section 4.6). The window itself is left to the caller.
    pub fn reduce(&mut self, in_flight: u32, mss: u32) {
        let cwnd = self.cwnd;
        let ssthresh = match self.algorithm() {
            Algorithm::NewReno { acked } => {
                *acked = 0;
                in_flight.min(cwnd) / 2
            }
            Algorithm::Cubic(cubic) => cubic.reduce(cwnd, mss),
            Algorithm::Bbr(_) => return,
        };
        self.ssthresh = ssthresh.max(2 * mss);
    }

    /// Starts again after silence: a window that was not used says nothing (RFC 5681, section 4.1).
    pub fn restart(&mut self, initial: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        self.cwnd = self.cwnd.min(initial);
        self.forget_time();
    }

    /// The time until now was not spent growing.
    pub fn forget_time(&mut self) {
        if let Some(Algorithm::Cubic(cubic)) = self.algorithm.as_deref_mut() {
            cubic.forget_time();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const RTT: Ns = Ns::from_ms(100);

    #[test]
    fn slow_start_doubles_each_round() {
        let mut window = Window::new(Congestion::NewReno, MSS, 10);
        (0..10).for_each(|_| window.acknowledged(MSS, MSS, Ns::ZERO, RTT));
        assert_eq!(window.cwnd, 20 * MSS);
    }

    #[test]
    fn new_reno_grows_by_a_segment_each_round() {
        let mut window = Window::new(Congestion::NewReno, MSS, 20);
        window.reduce(20 * MSS, MSS);
        window.cwnd = window.ssthresh;
        (0..10).for_each(|_| window.acknowledged(MSS, MSS, Ns::ZERO, RTT));
        assert_eq!((window.cwnd, window.ssthresh), (11 * MSS, 10 * MSS));
    }

    #[test]
    fn cubic_returns_to_the_old_window_after_k() {
        let mut window = Window::new(Congestion::Cubic, MSS, 100);
        window.reduce(100 * MSS, MSS);
        assert_eq!(window.ssthresh, 70 * MSS, "RFC 9438, section 4.6: beta is 0.7");
        window.cwnd = window.ssthresh;
        // K = cbrt((100 - 70) / 0.4) = 4.2 s.
        let mut now = Ns::ZERO;
        while now < Ns::from_ms(4_300) {
            let cwnd = window.cwnd;
            window.acknowledged(cwnd, MSS, now, RTT);
            now += RTT;
        }
        assert!((97 * MSS..=104 * MSS).contains(&window.cwnd), "{}", window.cwnd);
    }
}
