//! Segments of a connection.

use super::{AckDue, Alarm, Connection, Context, Fin, Phase};
use crate::checksum::{Sum, TCP};
use crate::output::{Flow, Output};
use crate::scoreboard::Sent;
use crate::seq::Seq;
use crate::wire::{Flags, Outgoing, OutgoingOptions, Timestamps};
use heddle_core::Ns;

/// The part of the send buffer that a segment carries.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    pub(super) offset: u32,
    pub(super) length: u32,
}

const EMPTY: Payload = Payload { offset: 0, length: 0 };

impl Connection {
    /// Sends what may be sent now: first what was lost, then what is new, then an acknowledgement if one is due still.
    pub fn transmit(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let has_bulk = || self.unsent() > u32::from(self.send.mss) && self.may_burst();
        if cx.gathers && self.state.may_send() && has_bulk() {
            // An acknowledgement goes with it.
            self.is_blocked = true;
            return;
        }
        if self.state.may_send() {
            while self.send_next(cx, out) {}
            self.set_window_probe(cx);
        }
        if self.receive.ack == AckDue::Now && self.state.is_synchronised() {
            self.send_ack(cx, out);
        }
    }

    fn send_next(&mut self, cx: &mut Context<'_>, out: &mut impl Output) -> bool {
        match self.send.board.next_lost() {
            Some(index) => {
                self.has_quota(0) && self.is_due(cx.now) && self.retransmit(index, cx, out)
            }
            None => self.send_new(cx, out, false),
        }
    }

    /// Whether the congestion window lets a segment of `length` go. One may always be in flight.
    fn has_quota(&self, length: u32) -> bool {
        let pipe = self.pipe();
        pipe == 0 || pipe + length.max(1) <= self.send.congestion.cwnd
    }

    /// Sends new data or a FIN, if there is any and nothing speaks against it. `is_forced` overrides the avoidance of
    /// small segments and the congestion window.
    pub(super) fn send_new(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut impl Output,
        is_forced: bool,
    ) -> bool {
        let (unsent, mss) = (self.unsent(), u32::from(self.send.mss));
        let usable = self.send.window.saturating_sub(self.send.nxt - self.send.una);
        let length = unsent.min(usable).min(mss);
        let has_fin = self.send.fin == Fin::Queued && length == unsent && usable > length;
        if length == 0 && !has_fin || !is_forced && !has_fin && self.is_too_small(length, unsent) {
            return false;
        }
        // The last segment does not wait for the congestion window, as in Linux: nothing comes after it.
        if !is_forced && !has_fin && !self.has_quota(length) {
            self.send.is_cwnd_limited = true;
            self.start_model(cx);
            return false;
        }
        if !is_forced && !self.is_due(cx.now) {
            return false;
        }
        self.restart_after_idle(cx);
        // A probe is a segment, however much there is to send.
        if length == mss && !is_forced && self.send_large(unsent, usable, cx, out) {
            return true;
        }
        let payload = Payload { offset: self.send.nxt - self.send.una, length };
        let push = if length > 0 && length == unsent { Flags::PSH } else { Flags(0) };
        self.send_data(payload, push, has_fin, cx, out)
    }

    fn send_data(
        &mut self,
        payload: Payload,
        push: Flags,
        has_fin: bool,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let fin = if has_fin { Flags::FIN } else { Flags(0) };
        let seq = self.send.nxt;
        if !self.emit(seq, payload, Flags::ACK.with(push).with(fin), cx, out) {
            return false;
        }
        self.note_sent(payload.length, has_fin, cx);
        true
    }

    /// Notes that `payload` new bytes were sent, in segments that are full but for the last one.
    pub(super) fn note_sent(&mut self, payload: u32, has_fin: bool, cx: &mut Context<'_>) {
        let is_first = self.send.board.is_empty();
        if is_first {
            self.timers.start(cx.now);
        }
        self.note_to_model(payload, is_first, cx.now);
        let (mss, mut rest, mut is_first) = (u32::from(self.send.mss), payload, true);
        while rest > 0 || core::mem::take(&mut is_first) {
            let piece = rest.min(mss);
            (rest, is_first) = (rest - piece, false);
            let ends = has_fin && rest == 0;
            let length = piece as u16 + u16::from(ends);
            self.send.board.push(Sent::new(self.send.nxt, length, ends, cx.now));
            self.send.nxt += u32::from(length);
        }
        self.note_flight();
        if payload == 0 || !payload.is_multiple_of(mss) {
            self.send.small = self.send.nxt;
        }
        self.recovery.sent(payload + u32::from(has_fin));
        if has_fin {
            self.send.fin = Fin::Sent;
        }
        if matches!(self.timers.alarm, Alarm::Off | Alarm::TailProbe | Alarm::WindowProbe) {
            self.set_alarm(cx);
        }
    }

    /// Remembers the most that was in flight in this round trip: a window is grown only if it was used (RFC 7661).
    fn note_flight(&mut self) {
        self.send.board.note_peak(self.send.una, self.send.nxt);
    }

    /// Whether a segment of `length` of the `unsent` bytes should wait: for more data, while another small segment is
    /// in flight (Nagle's algorithm, RFC 9293, section 3.7.4, in Minshall's form, as in Linux), or for a larger window
    /// (section 3.8.6.2.1).
    pub(super) fn is_too_small(&self, length: u32, unsent: u32) -> bool {
        let is_full = length >= u32::from(self.send.mss);
        let is_last =
            length == unsent && (self.send.nodelay || !self.send.small.is_after(self.send.una));
        let is_half_window = length >= self.send.max_window.div_ceil(2);
        !is_full && !is_last && !is_half_window
    }

    /// The congestion window of a connection that knows nothing of its path, in bytes.
    pub(super) fn initial_window(&self, cx: &Context<'_>) -> u32 {
        u32::from(self.send.mss) * u32::from(cx.config.initial_window)
    }

    /// After silence the window starts again (RFC 5681, section 4.1).
    fn restart_after_idle(&mut self, cx: &Context<'_>) {
        // The silence is counted from the last acknowledgement, a round trip after what was sent last.
        if cx.config.restart_after_idle
            && !cx.has_models()
            && self.recovery.phase() == Phase::Open
            && self.send.board.is_empty()
            && self.timers.progress_at() + self.timeout(cx) < cx.now
        {
            self.send.congestion.restart(self.initial_window(cx));
        }
    }

    /// Sends the segment `index` of the scoreboard again.
    pub(super) fn retransmit(
        &mut self,
        index: usize,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let mss = self.send.mss;
        if self.send.board.get(index).is_some_and(|sent| sent.payload() > u32::from(mss)) {
            self.send.board.split(index, mss);
        }
        let Some(sent) = self.send.board.get(index).copied() else { return false };
        let payload = Payload { offset: sent.seq - self.send.una, length: sent.payload() };
        let fin = if sent.has_fin() { Flags::FIN } else { Flags(0) };
        let is_last = sent.end() == self.send.nxt && self.unsent() == 0 && payload.length > 0;
        let push = if is_last { Flags::PSH } else { Flags(0) };
        if !self.emit(sent.seq, payload, Flags::ACK.with(push).with(fin), cx, out) {
            return false;
        }
        self.send.board.retransmitted(index, cx.now);
        self.note_to_model(payload.length, false, cx.now);
        self.recovery.retransmitted(&sent);
        self.count_retransmit(cx);
        if self.timers.alarm == Alarm::Off {
            self.set_alarm(cx);
        }
        true
    }

    fn count_retransmit(&mut self, cx: &mut Context<'_>) {
        self.rare.edit().retransmits += 1;
        cx.counters.retransmits += 1;
        match self.recovery.phase() {
            Phase::Recovery => cx.counters.fast_retransmits += 1,
            Phase::Loss => cx.counters.timeout_retransmits += 1,
            Phase::Open => {}
        }
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, cx: &mut Context<'_>, out: &mut impl Output) -> bool {
        let is_sent = self.emit(self.send.nxt, EMPTY, Flags::ACK, cx, out);
        cx.counters.pure_acks += u64::from(is_sent);
        is_sent
    }

    /// Sends a segment before the window, which must be answered: keep-alive and window probes.
    pub(super) fn send_probe(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        self.emit(self.send.una - 1, EMPTY, Flags::ACK, cx, out);
    }

    /// Sends a reset.
    pub fn send_reset(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        cx.counters.resets_out += 1;
        self.emit(self.send.nxt, EMPTY, Flags::RST.with(Flags::ACK), cx, out);
    }

    /// Watches a window that is too small for what is to be sent, while nothing is in flight that would be answered.
    fn set_window_probe(&mut self, cx: &Context<'_>) {
        let has_more = self.unsent() > 0 || self.send.fin == Fin::Queued;
        if !has_more
            || !self.send.board.is_empty()
            || self.timers.alarm != Alarm::Off
            || self.is_blocked
            || self.send.is_held
        {
            return;
        }
        self.timers.set_alarm(Alarm::WindowProbe, cx.now + self.timeout(cx));
    }

    /// The window probe is due: what fits is sent, however small, else a probe.
    pub(super) fn window_probe(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        // A window that stays closed is no failure as long as probes are answered (RFC 9293, section 3.8.6.1).
        let is_silent = cx.now - self.timers.heard_at() >= cx.config.user_timeout;
        if is_silent || !self.is_attached && self.is_timed_out(cx.config.orphan_timeout, cx.now) {
            return self.time_out(cx);
        }
        if self.unsent() == 0 && self.send.fin != Fin::Queued {
            return;
        }
        cx.counters.window_probes += 1;
        self.timers.backoff = self.timers.backoff.saturating_add(1);
        if !self.send_new(cx, out, true) {
            self.send_probe(cx, out);
            self.timers.set_alarm(Alarm::WindowProbe, cx.now + self.timeout(cx));
        }
    }

    /// The header of a segment with `payload` bytes, and whether SACK blocks that are due found room.
    pub(super) fn header(
        &mut self,
        seq: Seq,
        payload: u32,
        flags: Flags,
        cx: &Context<'_>,
    ) -> (Outgoing, bool) {
        let (options, is_complete) = self.options(payload, cx.now);
        let header = Outgoing {
            source_port: self.tuple.local_port,
            destination_port: self.tuple.remote_port,
            seq,
            ack: self.receive.nxt,
            flags,
            window: self.offer(cx),
            options,
        };
        (header, is_complete)
    }

    /// Builds one segment. Returns false if the output has no room; then it is tried again.
    fn emit(
        &mut self,
        seq: Seq,
        payload: Payload,
        flags: Flags,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let (header, is_complete) = self.header(seq, payload.length, flags, cx);
        let head = header.length();
        let total = head + payload.length as usize;
        let flow = Flow::new(&self.tuple, Some(self.id));
        let mut sum = Sum::from_partial(self.addresses);
        sum.add_length(TCP, total);
        let (buffer, cursor, pool) = (&self.send.buffer, &mut self.send.cursor, &*cx.pool);
        let is_sent = out.send(flow, total, |to| {
            let (head, mut body) = to.split_at_mut(head);
            header.write(head);
            sum.add(head);
            buffer.visit(pool, cursor, payload.offset, payload.length, |piece| {
                let (here, rest) = core::mem::take(&mut body).split_at_mut(piece.len());
                sum.copy(here, piece);
                body = rest;
            });
            head[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        });
        if is_sent {
            self.emitted(1, payload.length, is_complete, cx);
        } else {
            self.is_blocked = true;
            cx.counters.output_full += 1;
        }
        is_sent
    }

    /// Notes what `segments` segments with `payload` bytes told the other end.
    pub(super) fn emitted(
        &mut self,
        segments: u32,
        payload: u32,
        is_complete: bool,
        cx: &mut Context<'_>,
    ) {
        cx.counters.segments_out += u64::from(segments);
        cx.counters.bytes_out += u64::from(payload);
        self.bytes.1 += u64::from(payload);
        self.receive.acked = self.receive.nxt;
        if is_complete {
            self.receive.ack = AckDue::None;
            self.forget_duplicate();
            self.timers.clear_ack();
        }
    }

    /// The options of a segment with `payload` bytes, and whether SACK blocks that are due found room.
    fn options(&self, payload: u32, now: Ns) -> (OutgoingOptions, bool) {
        let mut options = OutgoingOptions::default();
        if self.receive.has_timestamps {
            let (value, echo) = (self.timestamp(now), self.receive.recent);
            options.timestamps = Some(Timestamps { value, echo });
        }
        let Some(rare) = self.rare.known().filter(|rare| self.sack && rare.has_blocks()) else {
            return (options, true);
        };
        let most = if options.timestamps.is_some() { 3 } else { 4 };
        if payload + 4 + 8 * most > u32::from(self.send.mss) {
            return (options, false);
        }
        rare.blocks(most as usize, &mut options.sack);
        (options, true)
    }

    /// The window field, and what it offers (RFC 9293, section 3.8.6.2.2).
    fn offer(&mut self, cx: &Context<'_>) -> u16 {
        let receive = &mut self.receive;
        let free = receive.room(cx.config);
        let step = (cx.config.receive_buffer / 2).min(u32::from(self.send.mss));
        let edge = receive.nxt + (free >> receive.shift << receive.shift);
        if edge.is_after(receive.edge) && edge - receive.edge >= step {
            receive.edge = edge;
        }
        let offered =
            if receive.edge.is_after(receive.nxt) { receive.edge - receive.nxt } else { 0 };
        (offered >> receive.shift).min(u32::from(u16::MAX)) as u16
    }

    /// Whether reading opened the window so far that the other end should hear of it.
    pub(super) fn has_window_update(&self, cx: &Context<'_>) -> bool {
        let receive = &self.receive;
        if !self.state.may_receive() {
            return false;
        }
        let buffer = cx.config.receive_buffer.min(receive.largest_window());
        let edge = receive.nxt + receive.room(cx.config);
        let gain = if edge.is_after(receive.edge) { edge - receive.edge } else { 0 };
        gain >= buffer / 2 || gain >= 2 * u32::from(self.send.mss) && gain >= buffer / 4
    }
}
