//! A model and a bottleneck.

use super::*;

const MSS: u32 = 1000;
const RTT: Ns = Ns::from_ms(10);
/// Bytes a millisecond, and what is then under way.
const BOTTLENECK: u32 = 10 * MSS;
const PRODUCT: u32 = 10 * BOTTLENECK;

#[test]
fn a_model_is_small() {
    assert!(size_of::<Bbr>() <= 304, "{} bytes", size_of::<Bbr>());
}

/// A sender, a bottleneck and acknowledgements, in steps of a millisecond.
struct Pipe {
    model: Bbr,
    cwnd: u32,
    now: u64,
    /// When what is in flight was sent; the bottleneck's queue is its beginning.
    in_flight: alloc::collections::VecDeque<u64>,
}

impl Pipe {
    fn new() -> Pipe {
        let model = Bbr::new(Ns::ZERO, 10 * MSS, MSS, RTT);
        Pipe { model, cwnd: 10 * MSS, now: 0, in_flight: Default::default() }
    }

    fn bytes(&self) -> u32 {
        self.in_flight.len() as u32 * MSS
    }

    fn step(&mut self) {
        self.now += 1;
        let now = Ns::from_ms(self.now);
        for _ in 0..BOTTLENECK / MSS {
            let Some(sent) = self.in_flight.pop_front_if(|sent| *sent + 10 <= self.now) else {
                break;
            };
            let rtt = Some(Ns::from_ms(self.now - sent));
            let (in_flight, sent_at, srtt) = (self.bytes(), Ns::from_ms(sent), RTT);
            let ack = Ack { now, delivered: MSS, lost: 0, in_flight, sent_at, rtt, srtt, mss: MSS };
            self.cwnd = self.model.update(self.cwnd, &ack);
        }
        while self.bytes() < self.cwnd && self.model.budget(now) > 0 {
            self.model.sent(now, MSS, self.in_flight.is_empty(), MSS);
            self.in_flight.push_back(self.now);
        }
    }
}

#[test]
fn it_finds_the_bandwidth_drains_the_queue_and_cruises() {
    let (mut pipe, mut modes, mut most) = (Pipe::new(), alloc::vec![Mode::Startup], 0);
    for _ in 0..2_000 {
        pipe.step();
        if modes.last() != Some(&pipe.model.mode) {
            modes.push(pipe.model.mode);
        }
        if pipe.now > 500 {
            most = most.max(pipe.bytes());
        }
    }
    assert_eq!(modes, [Mode::Startup, Mode::Drain, Mode::ProbeBw]);
    let rate = pipe.model.bandwidth.get() as f64 / (f64::from(BOTTLENECK) * 1e3);
    assert!((0.9..1.1).contains(&rate) && pipe.model.min_rtt == RTT, "{rate}");
    assert!(most < 2 * PRODUCT, "{most} bytes in flight");
}

#[test]
fn after_silence_it_goes_on_at_the_bandwidth() {
    let mut pipe = Pipe::new();
    (0..2_000).for_each(|_| pipe.step());
    let bandwidth = pipe.model.bandwidth.get();
    pipe.model.limit(pipe.bytes());
    pipe.in_flight.clear();
    let later = Ns::from_secs(100);
    pipe.model.sent(later, MSS, true, MSS);
    let rate = pipe.model.pacer.rate();
    assert!((bandwidth / 10 * 9..=bandwidth).contains(&rate), "{rate}, {bandwidth}");
}
