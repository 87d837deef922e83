//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as in Linux. Window and rate follow a model of the
//! path, its bandwidth and its shortest round trip, and not the losses. Names are the draft's.

mod aggregation;
mod pacer;
mod rate;
#[cfg(test)]
mod tests;

use aggregation::Aggregation;
use heddle_core::Ns;
use pacer::Pacer;
use rate::{MaxRate, Sampler};

/// 2/ln(2): the rate doubles each round (`BBR.HighGain`).
const HIGH_GAIN: f64 = 2.885;
/// The window over the product of bandwidth and round trip: acknowledgements are delayed and come together.
const CWND_GAIN: f64 = 2.0;
/// The phases of ProbeBW, each a round trip: looks for more bandwidth, drains what that queued, cruises.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The part of the bandwidth that is used, so that queues drain (`BBR.PacingMarginPercent`).
const MARGIN: f64 = 0.99;
/// Segments that are always allowed in flight (`BBR.MinPipeCwnd`).
const MIN_SEGMENTS: u32 = 4;
/// How long the shortest round trip counts (`BBR.RTpropFilterLen`), and how long it is then looked for.
const MIN_RTT_LIFE: Ns = Ns::from_secs(10);
const PROBE_RTT: Ns = Ns::from_ms(200);
/// The largest window.
const MAX: f64 = (1u32 << 30) as f64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Looks for the bandwidth, faster each round.
    Startup,
    /// Empties the queue that Startup made.
    Drain,
    ProbeBw,
    /// Almost stops, to see the round trip without queues.
    ProbeRtt,
}

/// What an acknowledgement says, or a report of a duplicate.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub now: Ns,
    /// Bytes delivered, and newly taken to be lost.
    pub delivered: u32,
    pub lost: u32,
    /// Bytes in the network now.
    pub in_flight: u32,
    /// The latest time of sending of all that has arrived.
    pub sent_at: Ns,
    pub rtt: Option<Ns>,
    pub srtt: Ns,
    pub mss: u32,
}

/// The model of a path.
#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    sampler: Sampler,
    pacer: Pacer,
    bandwidth: MaxRate,
    /// A round ends when something arrives that was sent after so much was delivered.
    round_end: u64,
    is_round_start: bool,
    /// The bandwidth that Startup has reached, rounds without growth since, and whether it is over.
    full_bandwidth: u64,
    full_rounds: u8,
    is_full: bool,
    min_rtt: Ns,
    min_rtt_at: Ns,
    /// The phase of ProbeBW, and since when.
    phase: usize,
    phase_at: Ns,
    /// When ProbeRTT may end, once so little is in flight, and whether a round has passed since.
    probe_end: Option<Ns>,
    is_probe_round_over: bool,
    /// The window before a loss or ProbeRTT.
    prior_cwnd: u32,
    /// In the first round after a loss as much is sent as arrives.
    conserves: bool,
    /// It was silent, so the round trip was seen without a queue.
    is_restarted: bool,
    aggregation: Aggregation,
}

impl Bbr {
    /// A path whose round trip takes `min_rtt`, if that is known.
    pub fn new(now: Ns, cwnd: u32, mss: u32, min_rtt: Ns) -> Bbr {
        let rtt = if min_rtt == Ns::MAX { Ns::from_ms(1) } else { min_rtt };
        let rate = HIGH_GAIN * f64::from(cwnd) / rtt.as_secs_f64();
        Bbr {
            mode: Mode::Startup,
            sampler: Sampler::new(now),
            pacer: Pacer::new(rate as u64, mss),
            bandwidth: MaxRate::default(),
            round_end: 0,
            is_round_start: false,
            full_bandwidth: 0,
            full_rounds: 0,
            is_full: false,
            min_rtt,
            min_rtt_at: now,
            phase: 0,
            phase_at: now,
            probe_end: None,
            is_probe_round_over: false,
            prior_cwnd: cwnd,
            conserves: false,
            is_restarted: false,
            aggregation: Aggregation::default(),
        }
    }

    /// Whether it knows more than what a new one would soon find out.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How many bytes may be sent now; if none, [`next_at`](Self::next_at) says when.
    pub fn budget(&self, now: Ns) -> u32 {
        self.pacer.budget(now)
    }

    pub fn next_at(&self) -> Ns {
        self.pacer.next
    }

    /// `bytes` were sent. `is_first`: nothing else is in flight.
    pub fn sent(&mut self, now: Ns, bytes: u32, is_first: bool, mss: u32) {
        if is_first && self.sampler.is_app_limited() {
            self.is_restarted = true;
            self.aggregation.restart(now);
            if self.mode == Mode::ProbeBw {
                self.set_rate(1.0, self.min_rtt, mss);
            }
        }
        self.sampler.sent(now, is_first);
        self.pacer.sent(now, bytes);
    }

    /// The application has no more to send than what is in flight.
    pub fn limit(&mut self, in_flight: u32) {
        self.sampler.limit(in_flight);
    }

    /// Something was lost, by a timeout or not; `is_first`: nothing before that has not arrived since.
    pub fn lose(&mut self, cwnd: u32, is_first: bool, is_timeout: bool) {
        self.save(cwnd, is_first);
        if is_timeout {
            self.full_bandwidth = 0;
        } else {
            self.conserves = true;
            self.round_end = self.sampler.delivered + 1;
        }
    }

    /// Remembers the window before it is reduced.
    fn save(&mut self, cwnd: u32, is_first: bool) {
        let is_whole = is_first && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if is_whole { cwnd } else { self.prior_cwnd.max(cwnd) };
    }

    /// What was lost has arrived. Returns the window.
    pub fn recovered(&mut self, cwnd: u32) -> u32 {
        self.conserves = false;
        cwnd.max(self.prior_cwnd)
    }

    /// The loss was none, so growth may have stopped for no reason.
    pub fn undo(&mut self) {
        (self.full_bandwidth, self.full_rounds) = (0, 0);
    }

    /// Gives memory back: nothing is in flight.
    pub fn trim(&mut self) {
        self.sampler.trim();
    }

    /// Takes an acknowledgement. Returns the window.
    pub fn update(&mut self, cwnd: u32, ack: &Ack) -> u32 {
        self.update_bandwidth(ack);
        let (bandwidth, is_round) = (self.bandwidth.get(), self.is_round_start);
        self.aggregation.update(ack.now, ack.delivered, bandwidth, is_round);
        self.update_phase(ack);
        self.check_drain(ack);
        let cwnd = self.update_min_rtt(cwnd, ack);
        self.set_rate(self.pacing_gain(), ack.srtt, ack.mss);
        self.window(cwnd, ack)
    }

    /// Takes a sample of the bandwidth; counts rounds.
    fn update_bandwidth(&mut self, ack: &Ack) {
        self.is_round_start = false;
        if ack.delivered == 0 {
            return;
        }
        let min_rtt = if self.min_rtt == Ns::MAX { Ns::ZERO } else { self.min_rtt };
        let sample = self.sampler.acknowledged(ack.now, ack.delivered, ack.sent_at, min_rtt);
        let Some(sample) = sample else { return };
        if sample.prior_delivered >= self.round_end {
            self.round_end = self.sampler.delivered;
            self.is_round_start = true;
            self.conserves = false;
            self.bandwidth.end_round();
        }
        // The path is at least as fast as what the application sent, and no slower for its silence.
        if !sample.is_app_limited || sample.rate >= self.bandwidth.get() {
            self.bandwidth.add(sample.rate);
        }
        if self.is_round_start && !sample.is_app_limited && !self.is_full {
            self.check_full_pipe();
        }
    }

    /// The pipe is full if three rounds at a higher rate have not brought a quarter more.
    fn check_full_pipe(&mut self) {
        let bandwidth = self.bandwidth.get();
        if bandwidth >= self.full_bandwidth / 4 * 5 {
            (self.full_bandwidth, self.full_rounds) = (bandwidth, 0);
        } else {
            self.full_rounds += 1;
            self.is_full = self.full_rounds >= 3;
        }
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.target(1.0, ack.mss) {
            self.enter_probe_bw(ack.now);
        }
    }

    /// Begins with any phase but the one that drains: flows that share a bottleneck should not probe together.
    fn enter_probe_bw(&mut self, now: Ns) {
        let random = (now.0 >> 10) as usize % (CYCLE.len() - 1);
        self.phase = if random == 0 { 0 } else { random + 1 };
        (self.mode, self.phase_at) = (Mode::ProbeBw, now);
    }

    fn update_phase(&mut self, ack: &Ack) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let is_long = ack.now - self.phase_at > self.min_rtt;
        let before = ack.in_flight + ack.delivered + ack.lost;
        let gain = CYCLE[self.phase];
        let is_over = if gain > 1.0 {
            // What is looked for must be in flight, unless it does not fit.
            is_long && (ack.lost > 0 || before >= self.target(gain, ack.mss))
        } else {
            is_long || gain < 1.0 && before <= self.target(1.0, ack.mss)
        };
        if is_over {
            (self.phase, self.phase_at) = ((self.phase + 1) % CYCLE.len(), ack.now);
        }
    }

    /// Takes a sample of the round trip; looks for a shorter one if none was seen for ten seconds. Returns the window.
    fn update_min_rtt(&mut self, cwnd: u32, ack: &Ack) -> u32 {
        let is_old = ack.now > self.min_rtt_at + MIN_RTT_LIFE;
        if let Some(rtt) = ack.rtt.filter(|&rtt| rtt < self.min_rtt || is_old) {
            (self.min_rtt, self.min_rtt_at) = (rtt.max(Ns(1)), ack.now);
        }
        if is_old && !self.is_restarted && self.mode != Mode::ProbeRtt {
            self.save(cwnd, !self.conserves);
            (self.mode, self.probe_end) = (Mode::ProbeRtt, None);
        }
        self.is_restarted &= ack.delivered == 0;
        if self.mode == Mode::ProbeRtt { self.probe_rtt(cwnd, ack) } else { cwnd }
    }

    fn probe_rtt(&mut self, cwnd: u32, ack: &Ack) -> u32 {
        // What little is sent now says nothing about the bandwidth.
        self.sampler.limit(ack.in_flight);
        match self.probe_end {
            None if ack.in_flight <= MIN_SEGMENTS * ack.mss => {
                self.probe_end = Some(ack.now + PROBE_RTT);
                self.is_probe_round_over = false;
                self.round_end = self.sampler.delivered;
            }
            None => {}
            Some(end) => {
                self.is_probe_round_over |= self.is_round_start;
                if self.is_probe_round_over && ack.now > end {
                    return self.leave_probe_rtt(cwnd, ack.now);
                }
            }
        }
        cwnd
    }

    fn leave_probe_rtt(&mut self, cwnd: u32, now: Ns) -> u32 {
        self.min_rtt_at = now;
        if self.is_full {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
        cwnd.max(self.prior_cwnd)
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw => CYCLE[self.phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    /// Sets the rate; until the pipe is full, it does not shrink. What the smallest window lets go is never held back.
    fn set_rate(&mut self, gain: f64, rtt: Ns, mss: u32) {
        let least = f64::from(MIN_SEGMENTS * mss) / rtt.max(Ns(1)).as_secs_f64();
        let rate = (gain * MARGIN * self.bandwidth.get() as f64).max(least) as u64;
        if self.is_full || rate > self.pacer.rate() {
            self.pacer.set_rate(rate, mss);
        }
    }

    /// The window at `gain`: bandwidth by round trip, and three bursts: on their way out, at the receiver, and
    /// acknowledged together (`BBRInflight`).
    fn target(&self, gain: f64, mss: u32) -> u32 {
        if self.min_rtt == Ns::MAX {
            return self.prior_cwnd;
        }
        let product = self.bandwidth.get() as f64 * self.min_rtt.as_secs_f64();
        let probes = if self.mode == Mode::ProbeBw && self.phase == 0 { 2 * mss } else { 0 };
        (gain * product).min(MAX) as u32 + 3 * self.pacer.quantum() + probes
    }

    fn window(&self, cwnd: u32, ack: &Ack) -> u32 {
        let least = MIN_SEGMENTS * ack.mss;
        let cwnd = if ack.lost > 0 { cwnd.saturating_sub(ack.lost).max(ack.mss) } else { cwnd };
        let cwnd = if self.conserves {
            cwnd.max(ack.in_flight + ack.delivered)
        } else {
            self.grown(cwnd, ack).max(least)
        };
        if self.mode == Mode::ProbeRtt { cwnd.min(least) } else { cwnd.min(MAX as u32) }
    }

    /// The window after it has grown towards its target.
    fn grown(&self, cwnd: u32, ack: &Ack) -> u32 {
        let gain = match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw => CWND_GAIN,
            Mode::ProbeRtt => 1.0,
        };
        let target = self.target(gain, ack.mss);
        if self.is_full {
            let aggregated = self.aggregation.most(self.bandwidth.get()).min(target);
            return (cwnd + ack.delivered).min(target + aggregated);
        }
        let is_small = cwnd < target || self.sampler.delivered < u64::from(self.prior_cwnd);
        if is_small { cwnd + ack.delivered } else { cwnd }
    }
}
