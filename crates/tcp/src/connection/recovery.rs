//! What is done about loss: fast recovery, timeouts, tail loss probes, and taking them back.

use super::{Alarm, Connection, Context, Fin};
use crate::output::Output;
use crate::scoreboard::{Arrival, Delivery, Sent};
use crate::seq::Seq;
use alloc::boxed::Box;
use heddle_core::Ns;

/// Whether the connection recovers from loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was lost.
    Open,
    /// Something was, and the acknowledgements go on (RFC 6675).
    Recovery,
    /// A timeout expired (RFC 5681, section 3.1).
    Loss,
}

/// What is known of the present phase; nothing while it is [`Phase::Open`].
#[derive(Debug)]
pub struct Recovery(Option<Box<Episode>>);

/// One recovery, or one after the other without a pause.
#[derive(Debug)]
struct Episode {
    phase: Phase,
    /// It ends when all before this is acknowledged.
    high: Seq,
    /// Proportional rate reduction (RFC 6937): bytes delivered and sent in this recovery, and in flight when it began.
    delivered: u32,
    out: u32,
    flight: u32,
    /// Window and threshold before.
    prior: (u32, u32),
    /// When the first segment was sent again after a timeout.
    first_retransmit: Option<Ns>,
    /// Segments sent again, and how many of them D-SACKs have shown to be unnecessary.
    again: u16,
    unnecessary: u16,
}

/// Duplicate acknowledgements that mean a loss (RFC 5681, section 3.2; RFC 6675, `DupThresh`).
const DUP_THRESHOLD: usize = 3;

impl Recovery {
    pub const fn new() -> Recovery {
        Recovery(None)
    }

    pub fn phase(&self) -> Phase {
        self.0.as_ref().map_or(Phase::Open, |episode| episode.phase)
    }

    /// Counts what is sent during recovery.
    pub fn sent(&mut self, length: u32) {
        if let Some(episode) = &mut self.0 {
            episode.out = episode.out.saturating_add(length);
        }
    }

    pub fn retransmitted(&mut self, sent: &Sent) {
        self.sent(u32::from(sent.length));
        if let Some(episode) = &mut self.0 {
            episode.again = episode.again.saturating_add(1);
        }
    }

    /// Whether all that was in flight when the phase began is acknowledged.
    fn is_over(&self, una: Seq) -> bool {
        self.0.as_ref().is_some_and(|episode| !una.is_before(episode.high))
    }
}

impl Connection {
    /// Bytes in the network. Without SACK each duplicate acknowledgement says that a segment has left it.
    pub(super) fn pipe(&self) -> u32 {
        let left = u32::from(self.send.board.dup_acks()) * u32::from(self.send.mss);
        self.send.board.in_flight().saturating_sub(left)
    }

    /// Reacts to an acknowledgement that delivered something or was a duplicate.
    pub(super) fn recover(
        &mut self,
        delivery: &Delivery,
        advanced: bool,
        arrival: &Arrival,
        cx: &mut Context<'_>,
    ) {
        if self.recovery.is_over(self.send.una) {
            self.leave_phase(cx);
        }
        let lost =
            if self.sack { self.detect(arrival.now) } else { self.count_duplicates(advanced) };
        if lost > 0 && self.recovery.phase() == Phase::Open {
            self.enter_recovery(cx);
        }
        if cx.has_models() {
            return self.update_model(delivery, lost, arrival.now);
        }
        match self.recovery.phase() {
            Phase::Recovery => self.reduce_rate(delivery.delivered, advanced && lost == 0),
            // What is SACKed leaves the network, but does not open the window (RFC 5681, section 3.2).
            Phase::Open | Phase::Loss if advanced => self.grow(delivery.delivered, arrival.now),
            Phase::Open | Phase::Loss => {}
        }
    }

    fn grow(&mut self, delivered: u32, now: Ns) {
        let congestion = &self.send.congestion;
        let is_used = self.send.is_cwnd_limited
            || congestion.is_slow_start() && congestion.cwnd < 2 * self.send.board.peak();
        if delivered > 0 && is_used {
            let srtt = self.send.rtt.smoothed().unwrap_or(Ns::ZERO);
            self.send.congestion.acknowledged(delivered, u32::from(self.send.mss), now, srtt);
            self.send.is_cwnd_limited = false;
        }
    }

    fn leave_phase(&mut self, cx: &Context<'_>) {
        if cx.has_models() {
            self.recover_by_model();
        } else if self.recovery.phase() == Phase::Recovery {
            self.send.congestion.cwnd = self.send.congestion.ssthresh;
        }
        if self.recovery.phase() == Phase::Recovery {
            self.rare.edit().reordering.recovered();
        } else {
            self.retry_full_segments();
        }
        self.recovery = Recovery::new();
        self.send.board.set_dup_acks(0);
    }

    /// Looks for lost segments by RACK; returns how many bytes are newly lost.
    fn detect(&mut self, now: Ns) -> u32 {
        if !self.send.board.needs_detection() && self.recovery.phase() == Phase::Open {
            return 0;
        }
        let window = self.reordering_window();
        let (lost, wait) = self.send.board.detect(now, window);
        if let Some(wait) = wait {
            self.timers.set_alarm(Alarm::Reordering, now + wait.max(Ns(1)));
        }
        lost
    }

    fn reordering_window(&self) -> Ns {
        let is_recovering =
            self.recovery.phase() != Phase::Open || self.send.board.sacked() >= DUP_THRESHOLD;
        let srtt = self.send.rtt.smoothed().unwrap_or(Ns::ZERO);
        self.rare.reordering.window(is_recovering, self.send.rtt.min(), srtt)
    }

    /// The reordering window of a segment is over.
    pub(super) fn reordering_timeout(&mut self, cx: &mut Context<'_>) {
        let lost = self.detect(cx.now);
        if lost > 0 && self.recovery.phase() == Phase::Open {
            self.enter_recovery(cx);
        }
        if self.recovery.phase() == Phase::Recovery && !cx.has_models() {
            self.reduce_rate(0, false);
        }
        if self.timers.alarm == Alarm::Off {
            self.set_alarm(cx);
        }
    }

    /// Fast retransmit and partial acknowledgements without SACK (RFC 6582, section 3.2).
    fn count_duplicates(&mut self, advanced: bool) -> u32 {
        let board = &mut self.send.board;
        let is_lost = match (self.recovery.phase(), advanced) {
            (Phase::Recovery, true) => {
                board.set_dup_acks(board.dup_acks().saturating_sub(1));
                true
            }
            (Phase::Open, true) => {
                board.set_dup_acks(0);
                false
            }
            (Phase::Open, false) => usize::from(board.dup_acks()) >= DUP_THRESHOLD,
            _ => false,
        };
        match board.first().copied() {
            Some(first) if is_lost && first.is_in_flight() && !first.is_retransmitted() => {
                board.mark_lost(0);
                u32::from(first.length)
            }
            _ => 0,
        }
    }

    fn enter_recovery(&mut self, cx: &mut Context<'_>) {
        cx.counters.recoveries += 1;
        self.begin(Phase::Recovery, None, cx);
    }

    /// Enters `phase`, and reduces the threshold. Window and threshold are remembered, in case the loss is none.
    fn begin(&mut self, phase: Phase, first_retransmit: Option<Ns>, cx: &Context<'_>) {
        let (flight, mss) = (self.send.nxt - self.send.una, u32::from(self.send.mss));
        let now = (self.send.congestion.cwnd, self.send.congestion.ssthresh);
        let prior = self.recovery.0.as_ref().map_or(now, |episode| episode.prior);
        if cx.has_models() {
            self.lose(phase, cx);
        } else {
            self.send.congestion.reduce(flight, mss);
        }
        let (high, flight) = (self.send.nxt, flight.max(1));
        let (delivered, out, again, unnecessary) = (0, 0, 0, 0);
        self.recovery.0 = Some(Box::new(Episode {
            phase,
            high,
            delivered,
            out,
            flight,
            prior,
            first_retransmit,
            again,
            unnecessary,
        }));
        self.send.board.set_probe(None);
    }

    /// Proportional rate reduction: as much leaves the window as arrives (RFC 6937, section 3).
    fn reduce_rate(&mut self, delivered: u32, is_safe: bool) {
        let (pipe, mss) = (self.pipe(), u32::from(self.send.mss));
        let congestion = &mut self.send.congestion;
        let Some(recovery) = &mut self.recovery.0 else { return };
        recovery.delivered = recovery.delivered.saturating_add(delivered);
        let budget = if pipe > congestion.ssthresh {
            let share = u64::from(recovery.delivered) * u64::from(congestion.ssthresh);
            (share.div_ceil(u64::from(recovery.flight)) as u32).saturating_sub(recovery.out)
        } else {
            let limit = recovery.delivered.saturating_sub(recovery.out).max(delivered);
            let limit = if is_safe { limit + mss } else { limit };
            limit.min(congestion.ssthresh - pipe)
        };
        // The first retransmission goes at once.
        let budget = if recovery.out == 0 { budget.max(mss) } else { budget };
        congestion.cwnd = pipe + budget;
    }

    /// The retransmission timer expired (RFC 6298, section 5.4; RFC 8985, section 6.3).
    pub(super) fn retransmission_timeout(&mut self, cx: &mut Context<'_>) {
        let limit = cx.config.user_timeout;
        let limit = if self.is_attached { limit } else { limit.min(cx.config.orphan_timeout) };
        if self.is_timed_out(limit, cx.now) {
            return self.time_out(cx);
        }
        let Some(first) = self.send.board.first().copied() else { return };
        cx.counters.timeouts += 1;
        if first.is_sacked() {
            self.send.board.renege();
        }
        self.detect_black_hole(&first, cx);
        self.enter_loss(cx);
        self.timers.backoff = self.timers.backoff.saturating_add(1);
        let window = self.reordering_window();
        let srtt = self.send.rtt.smoothed().unwrap_or(Ns::ZERO);
        self.send.board.time_out(!self.sack, cx.now, window, srtt);
        self.send.board.set_dup_acks(0);
        // Exactly one segment goes, even if others are still taken to be in flight.
        self.send.congestion.cwnd = self.pipe() + u32::from(self.send.mss);
        self.set_alarm(cx);
    }

    fn enter_loss(&mut self, cx: &Context<'_>) {
        if self.recovery.phase() != Phase::Loss || self.timers.backoff == 0 {
            self.begin(Phase::Loss, Some(cx.now), cx);
        } else if let Some(episode) = &mut self.recovery.0 {
            episode.high = self.send.nxt;
        }
        self.send.board.set_probe(None);
    }

    /// Undoes the reaction to a loss that was none: the acknowledgement answers the original (Eifel, RFC 3522 and
    /// RFC 4015), or D-SACKs name all retransmissions (RFC 3708).
    pub(super) fn undo_spurious(
        &mut self,
        arrival: &Arrival,
        has_duplicate: bool,
        cx: &mut Context<'_>,
    ) {
        let Some(episode) = &self.recovery.0 else { return };
        let Episode { prior, again, unnecessary, first_retransmit, .. } = **episode;
        let is_original = |at: Ns| arrival.echo_before.is_some_and(|before| before <= at);
        let by_time = first_retransmit.is_some_and(is_original);
        let by_duplicates = has_duplicate && again > 0 && unnecessary >= again;
        if !by_time && !by_duplicates {
            return;
        }
        match self.recovery.phase() {
            Phase::Loss => cx.counters.spurious_timeouts += 1,
            _ => cx.counters.spurious_recoveries += 1,
        }
        self.leave_phase(cx);
        self.send.board.undo();
        let congestion = &mut self.send.congestion;
        if let Some(model) = congestion.model() {
            model.undo();
        }
        (congestion.cwnd, congestion.ssthresh) =
            (congestion.cwnd.max(prior.0), congestion.ssthresh.max(prior.1));
    }

    /// A D-SACK: a retransmission was unnecessary.
    pub(super) fn duplicate_reported(&mut self, cx: &mut Context<'_>) {
        cx.counters.dsacks_in += 1;
        self.rare.edit().reordering.duplicate(self.send.una, self.send.nxt);
        if let Some(episode) = &mut self.recovery.0 {
            episode.unnecessary = episode.unnecessary.saturating_add(1);
        }
    }

    /// Sends a tail loss probe: new data, or the last segment again (RFC 8985, section 7.3).
    pub(super) fn tail_probe(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let is_new =
            self.send.fin != Fin::Sent && self.unsent() > 0 && self.send_new(cx, out, true);
        let end = self.send.nxt;
        let last = self.send.board.len().checked_sub(1);
        let is_sent = is_new || last.is_some_and(|last| self.retransmit(last, cx, out));
        if is_sent {
            cx.counters.tail_probes += 1;
            self.send.board.set_probe(Some((end, !is_new)));
        }
        self.timers.set_alarm(Alarm::Timeout, cx.now + self.timeout(cx));
    }

    /// Learns from an acknowledgement of a tail loss probe whether it repaired a loss (RFC 8985, section 7.4).
    pub(super) fn probe_acknowledged(&mut self, has_duplicate: bool, cx: &mut Context<'_>) {
        let Some((end, is_again)) = self.send.board.probe() else { return };
        if self.send.una.is_before(end) {
            return;
        }
        self.send.board.set_probe(None);
        let repaired = is_again && !has_duplicate && self.send.una.is_after(end);
        if repaired && self.recovery.phase() == Phase::Open && !cx.has_models() {
            let flight = self.send.nxt - self.send.una;
            cx.counters.recoveries += 1;
            self.send.congestion.reduce(flight, u32::from(self.send.mss));
            self.send.congestion.cwnd = self.send.congestion.ssthresh;
        }
    }
}
