//! When something must be done without a segment arriving.

use super::{AckDue, Connection, Context, Phase};
use crate::config::KeepAlive;
use crate::error::Error;
use crate::output::Output;
use crate::state::State;
use heddle_core::Ns;

/// What the retransmission timer is set for; it is one timer, as at most one of these makes sense at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Nothing.
    Off,
    /// The retransmission timeout (RFC 6298), also of a SYN.
    Timeout,
    /// A tail loss probe (RFC 8985, section 7).
    TailProbe,
    /// The reordering window ends (RFC 8985, section 6.2, step 5).
    Reordering,
    /// A probe of a closed window (RFC 9293, section 3.8.6.1).
    WindowProbe,
}

/// The timers of a connection.
#[derive(Debug)]
pub struct Timers {
    pub alarm: Alarm,
    /// By how many bits the timeout is shifted (RFC 6298, section 5.5).
    pub backoff: u8,
    alarm_at: Ns,
    ack_at: Ns,
    /// For when the stack's wheel has an entry: never after [`Connection::deadline`].
    pub armed: Ns,
    /// When something was acknowledged last, or sent after everything was.
    progress_at: Ns,
    /// When a segment arrived last.
    heard_at: Ns,
}

impl Timers {
    pub const fn new() -> Timers {
        Timers {
            alarm: Alarm::Off,
            backoff: 0,
            alarm_at: Ns::MAX,
            ack_at: Ns::MAX,
            armed: Ns::MAX,
            progress_at: Ns::ZERO,
            heard_at: Ns::ZERO,
        }
    }

    /// When the retransmission timer expires.
    pub fn alarm_at(&self) -> Ns {
        self.alarm_at
    }

    pub fn set_alarm(&mut self, alarm: Alarm, at: Ns) {
        (self.alarm, self.alarm_at) = (alarm, at);
    }

    pub fn clear_alarm(&mut self) {
        (self.alarm, self.alarm_at) = (Alarm::Off, Ns::MAX);
    }

    /// An acknowledgement must be sent at `at`, or sooner.
    pub fn delay_ack(&mut self, at: Ns) {
        self.ack_at = self.ack_at.min(at);
    }

    pub fn clear_ack(&mut self) {
        self.ack_at = Ns::MAX;
    }

    /// Something was acknowledged, or there was nothing to acknowledge until now.
    pub fn start(&mut self, now: Ns) {
        self.progress_at = now;
        self.backoff = 0;
    }

    /// When something was acknowledged last, or sent after everything was.
    pub fn progress_at(&self) -> Ns {
        self.progress_at
    }

    /// When a segment arrived last.
    pub fn heard_at(&self) -> Ns {
        self.heard_at
    }
}

impl Connection {
    /// When the first timer expires; [`Ns::MAX`] if none is set.
    pub fn deadline(&self) -> Ns {
        let first = self.timers.alarm_at.min(self.timers.ack_at);
        let first = if self.send.is_held { first.min(self.held_until()) } else { first };
        self.rare.known().map_or(first, |rare| first.min(rare.idle_at))
    }

    pub(super) fn stop_timers(&mut self) {
        self.timers.clear_alarm();
        self.timers.clear_ack();
        self.send.is_held = false;
        self.set_idle(Ns::MAX);
    }

    /// A segment arrived.
    pub(super) fn heard(&mut self, now: Ns) {
        self.timers.heard_at = now;
        if let Some(rare) = self.rare.changed() {
            rare.probes = 0;
        }
    }

    /// Sets the timer of keep-alive and FIN_WAIT_2.
    pub(super) fn set_idle(&mut self, at: Ns) {
        if self.rare.idle_at != at {
            self.rare.edit().idle_at = at;
        }
    }

    /// The retransmission timeout, backed off.
    pub fn timeout(&self, cx: &Context<'_>) -> Ns {
        let timeout = self.send.rtt.timeout(cx.config.rto_min, cx.config.rto_max);
        (timeout * (1 << self.timers.backoff.min(31))).min(cx.config.rto_max)
    }

    /// Sets the retransmission timer for what is in flight: a probe if one may help, else the timeout (RFC 8985,
    /// section 7.2).
    pub(super) fn set_alarm(&mut self, cx: &Context<'_>) {
        if self.send.board.is_empty() {
            return self.timers.clear_alarm();
        }
        let timeout = self.timeout(cx);
        match self.probe_timeout(cx) {
            Some(probe) if probe < timeout => {
                self.timers.set_alarm(Alarm::TailProbe, cx.now + probe)
            }
            _ => self.timers.set_alarm(Alarm::Timeout, cx.now + timeout),
        }
    }

    /// How long to wait before a tail loss probe; `None` if none is to be sent.
    fn probe_timeout(&self, cx: &Context<'_>) -> Option<Ns> {
        let srtt = self.send.rtt.smoothed()?;
        let board = &self.send.board;
        let is_open = self.recovery.phase() == Phase::Open && board.probe().is_none();
        if !self.sack || !is_open || board.sacked() > 0 || self.timers.backoff > 0 {
            return None;
        }
        // The acknowledgement of a single segment may be delayed. The other end's delay is taken to be like ours.
        let delay = if board.len() == 1 { cx.config.delayed_ack } else { Ns::ZERO };
        Some(srtt * 2 + delay)
    }

    /// Does what is due.
    pub fn expire(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        if self.timers.ack_at <= cx.now {
            self.timers.ack_at = Ns::MAX;
            if self.receive.ack == AckDue::Delayed {
                self.receive.ack = AckDue::Now;
                cx.counters.delayed_acks += 1;
            }
        }
        if self.timers.alarm_at <= cx.now {
            self.alarm(cx, out);
        }
        if self.rare.known().is_some_and(|rare| rare.idle_at <= cx.now) {
            self.idle(cx, out);
        }
        if self.send.is_held && self.held_until() <= cx.now {
            self.send.is_held = false;
        }
        self.transmit(cx, out);
        self.send.board.trim();
        self.trim_model(cx);
    }

    fn alarm(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let alarm = self.timers.alarm;
        self.timers.clear_alarm();
        match (alarm, self.state) {
            (Alarm::Off, _) => {}
            (_, State::SynSent | State::SynReceived) => self.handshake_timeout(cx, out),
            (Alarm::Timeout, _) => self.retransmission_timeout(cx),
            (Alarm::TailProbe, _) => self.tail_probe(cx, out),
            (Alarm::Reordering, _) => self.reordering_timeout(cx),
            (Alarm::WindowProbe, _) => self.window_probe(cx, out),
        }
    }

    /// Whether nothing was acknowledged for so long that the connection has failed.
    pub(super) fn is_timed_out(&self, limit: Ns, now: Ns) -> bool {
        now - self.timers.progress_at >= limit
    }

    pub(super) fn time_out(&mut self, cx: &mut Context<'_>) {
        cx.counters.timed_out += 1;
        self.end(Some(Error::TimedOut), cx);
    }

    fn idle(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        self.set_idle(Ns::MAX);
        if self.state == State::FinWait2 && !self.is_attached {
            self.end(None, cx);
        } else {
            self.probe_idle(cx, out);
        }
    }

    /// Sends a keep-alive probe if the other end was silent for long enough (RFC 9293, section 3.8.4).
    fn probe_idle(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let Some(settings) = self.rare.keep_alive else { return };
        let due =
            self.timers.heard_at + settings.idle + settings.interval * u64::from(self.rare.probes);
        if due > cx.now {
            return self.set_idle(due);
        }
        if self.rare.probes >= settings.probes {
            return self.time_out(cx);
        }
        // What is in flight asks the same question.
        if self.send.board.is_empty() {
            cx.counters.keep_alives += 1;
            self.send_probe(cx, out);
        }
        self.rare.edit().probes += 1;
        self.set_idle(cx.now + settings.interval);
    }

    /// Starts or stops keep-alive probes.
    pub fn set_keep_alive(&mut self, settings: Option<KeepAlive>) {
        if self.rare.keep_alive != settings {
            self.rare.edit().keep_alive = settings;
        }
        self.start_keep_alive();
    }

    pub(super) fn start_keep_alive(&mut self) {
        if self.state == State::FinWait2 && !self.is_attached {
            return;
        }
        let at = |settings: KeepAlive| self.timers.heard_at + settings.idle;
        self.set_idle(self.rare.keep_alive.map_or(Ns::MAX, at));
    }
}
