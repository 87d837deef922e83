//! Segments of a connection that is synchronised (RFC 9293, section 3.10.7.4).

use super::{AckDue, Connection, Context, Receiver};
use crate::buffer::Pool;
use crate::config::Config;
use crate::error::Error;
use crate::event::READABLE;
use crate::output::Output;
use crate::reassembly::{Limits, Refusal};
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{Flags, Header};
use heddle_core::Ns;

/// After so many seconds a timestamp cannot be compared any more (RFC 7323, section 5.5).
const TIMESTAMP_LIFE: u32 = 24 * 24 * 3600;
/// Acknowledgements that are not delayed while the other end probes for its window, as in Linux.
pub(super) const QUICK_ACKS: u8 = 8;
/// Segments from this payload on are full: smaller ones are probably requests, whose replies acknowledge them.
const FULL: usize = 536;

impl Connection {
    /// Takes one segment.
    pub fn receive(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        match self.state {
            State::SynSent => self.receive_syn_sent(header, payload, cx, out),
            State::SynReceived => self.receive_syn_received(header, payload, cx, out),
            // The stack keeps no flow for these.
            State::TimeWait | State::Closed => {}
            _ => self.receive_synchronised(header, payload, cx, out),
        }
        self.check(cx.config);
    }

    pub(super) fn receive_synchronised(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        let is_expected =
            header.seq == self.receive.nxt && header.flags.without(Flags::PSH) == Flags::ACK;
        if !is_expected && !self.is_acceptable(header, payload, cx, out) {
            return;
        }
        if !self.has_valid_timestamp(header, cx) {
            return self.answer_duplicate(header, payload, cx, out);
        }
        self.heard(cx.now);
        if !self.acknowledge(header, payload, cx, out) {
            return;
        }
        // Not before: a segment with a wrong acknowledgement must not change anything.
        self.note_timestamp(header, cx.now);
        if !payload.is_empty() {
            self.take_payload(header.seq, payload, cx, out);
        }
        let is_at_end = header.is(Flags::FIN) && self.take_fin(header.seq + payload.len() as u32);
        if is_at_end || self.rare.known().is_some_and(|rare| rare.fin == Some(self.receive.nxt)) {
            self.finish(cx);
        }
        self.transmit(cx, out);
    }

    /// The checks that come before the acknowledgement: sequence number, RST, SYN, and whether there is an ACK.
    fn is_acceptable(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let length = header.length(payload);
        if !self.receive.is_in_window(header.seq, length) {
            if !header.is(Flags::RST) {
                self.answer_duplicate(header, payload, cx, out);
            }
            return false;
        }
        if header.is(Flags::RST) {
            self.take_reset(header.seq, cx, out);
            return false;
        }
        if header.is(Flags::SYN) {
            // RFC 5961, section 4.2.
            self.challenge(cx, out);
            return false;
        }
        header.is(Flags::ACK)
    }

    /// Resets only by the exact number; others in the window are challenged (RFC 5961, section 3.2).
    fn take_reset(&mut self, seq: Seq, cx: &mut Context<'_>, out: &mut impl Output) {
        if seq != self.receive.nxt {
            return self.challenge(cx, out);
        }
        cx.counters.resets_in += 1;
        let is_over = matches!(self.state, State::Closing | State::LastAck);
        self.end((!is_over).then_some(Error::Reset), cx);
    }

    /// Answers a segment that is not acceptable with what is expected (RFC 9293, section 3.10.7.4, first).
    fn answer_duplicate(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        cx.counters.duplicates += 1;
        if header.is(Flags::RST) {
            return;
        }
        if payload.is_empty() && !header.is(Flags::FIN) {
            // Two ends that disagree could go on answering each other (RFC 5961, section 7).
            return self.challenge(cx, out);
        }
        let end = header.seq + payload.len() as u32;
        if self.sack && !end.is_after(self.receive.nxt) && !payload.is_empty() {
            self.rare.edit().duplicate = (header.seq, end);
        }
        self.receive.acknowledge_quickly();
        self.receive.ack = AckDue::Now;
        self.transmit(cx, out);
    }

    /// Sends an acknowledgement that a wrong segment asks for, unless there were many.
    pub(super) fn challenge(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let second = seconds(cx.now) as u16;
        let challenges = &mut self.rare.edit().challenges;
        if challenges.0 != second {
            *challenges = (second, 0);
        }
        if challenges.1 >= cx.config.challenge_acks {
            cx.counters.challenge_limits += 1;
            return;
        }
        challenges.1 += 1;
        cx.counters.challenge_acks += 1;
        self.send_ack(cx, out);
    }

    /// Protection against wrapped sequence numbers (RFC 7323, section 5.3).
    fn has_valid_timestamp(&self, header: &Header, cx: &mut Context<'_>) -> bool {
        if !self.receive.has_timestamps {
            return true;
        }
        let Some(timestamps) = header.options.timestamps else {
            // RFC 7323, section 3.2: dropped. It must not end a connection, though, so RSTs came before.
            cx.counters.old_timestamps += 1;
            return false;
        };
        let is_alive = seconds(cx.now).wrapping_sub(self.receive.recent_second) < TIMESTAMP_LIFE;
        let is_old = Seq(timestamps.value).is_before(Seq(self.receive.recent)) && is_alive;
        cx.counters.old_timestamps += u64::from(is_old);
        !is_old
    }

    /// RFC 7323, section 4.3.
    fn note_timestamp(&mut self, header: &Header, now: Ns) {
        if let Some(timestamps) = header.options.timestamps
            && !header.seq.is_after(self.receive.acked)
        {
            self.receive.note_timestamp(timestamps.value, now);
        }
    }

    /// Takes data that is at least partly within the window.
    fn take_payload(
        &mut self,
        seq: Seq,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        if !self.state.may_receive() {
            return;
        }
        if !self.is_attached {
            // Data for an application that is gone (RFC 9293, section 3.10.4; RFC 1122, section 4.2.2.13).
            self.send_reset(cx, out);
            return self.end(Some(Error::Reset), cx);
        }
        let length = payload.len().min(usize::from(self.own_mss)) as u16;
        self.receive.largest = self.receive.largest.max(length);
        let (seq, payload) = self.trim(seq, payload, cx);
        if payload.is_empty() {
            self.receive.ack = AckDue::Now;
        } else if seq == self.receive.nxt {
            self.take_in_order(payload, cx);
        } else {
            self.take_out_of_order(seq, payload, cx);
        }
    }

    /// Cuts off what was received before and what is beyond the window.
    fn trim<'p>(&mut self, seq: Seq, payload: &'p [u8], cx: &mut Context<'_>) -> (Seq, &'p [u8]) {
        let receive = &mut self.receive;
        let old = if seq.is_before(receive.nxt) { receive.nxt - seq } else { 0 };
        if old > 0 {
            let end = seq + old.min(payload.len() as u32);
            self.rare.edit().duplicate = (seq, end);
            receive.acknowledge_quickly();
        }
        let payload = &payload[(old as usize).min(payload.len())..];
        let seq = seq + old;
        let room = if receive.edge.is_after(seq) { receive.edge - seq } else { 0 };
        let length = payload.len().min(room as usize);
        if length < payload.len() {
            cx.counters.window_drops += 1;
            receive.ack = AckDue::Now;
        }
        cx.counters.duplicates += u64::from(payload.is_empty());
        (seq, &payload[..length])
    }

    fn take_in_order(&mut self, payload: &[u8], cx: &mut Context<'_>) {
        let receive = &mut self.receive;
        let taken = receive.buffer.push(cx.pool, payload);
        cx.counters.memory_drops += u64::from(taken < payload.len());
        receive.nxt += taken as u32;
        let mut count = taken as u32;
        let beyond = self.rare.changed().map(|rare| &mut rare.reassembly);
        let beyond = beyond.filter(|beyond| !beyond.is_empty());
        let is_filling = beyond.is_some();
        if let Some(beyond) = beyond {
            let more = beyond.take(cx.pool, receive.nxt, &mut receive.buffer);
            receive.nxt += more;
            count += more;
        }
        cx.counters.bytes_in += u64::from(count);
        self.bytes.0 += u64::from(count);
        self.schedule_ack(payload.len(), is_filling || taken < payload.len(), cx);
        self.raise(READABLE);
    }

    /// Every second full segment is acknowledged at once, and what fills a gap (RFC 5681, section 4.2).
    fn schedule_ack(&mut self, payload: usize, is_urgent: bool, cx: &Context<'_>) {
        let receive = &mut self.receive;
        let unacked = receive.nxt - receive.acked;
        let is_full = payload >= FULL || receive.is_quick_small;
        let is_quick = receive.quick > 0 && is_full;
        receive.quick -= u8::from(is_quick);
        if is_urgent || is_quick || unacked >= 2 * u32::from(receive.largest) {
            receive.ack = AckDue::Now;
        } else if receive.ack == AckDue::None {
            receive.ack = AckDue::Delayed;
            self.timers.delay_ack(cx.now + cx.config.delayed_ack);
        }
    }

    fn take_out_of_order(&mut self, seq: Seq, payload: &[u8], cx: &mut Context<'_>) {
        cx.counters.out_of_order += 1;
        let receive = &mut self.receive;
        receive.ack = AckDue::Now;
        receive.acknowledge_quickly();
        let end = seq + payload.len() as u32;
        let rare = self.rare.edit();
        if rare.reassembly.covers(seq, end) {
            rare.duplicate = (seq, end);
            cx.counters.duplicates += 1;
        }
        let limits = Limits { bytes: cx.config.max_out_of_order, ranges: cx.config.max_ranges };
        match rare.reassembly.insert(cx.pool, seq, payload, limits) {
            Ok(()) => {}
            Err(Refusal::Limit) => cx.counters.out_of_order_drops += 1,
            Err(Refusal::Memory) => cx.counters.memory_drops += 1,
        }
    }

    /// Takes a FIN with the number `seq`. Returns whether all before it is there; else it counts when that is so.
    fn take_fin(&mut self, seq: Seq) -> bool {
        self.receive.ack = AckDue::Now;
        let is_valid = self.state.may_receive() && !seq.is_before(self.receive.nxt);
        if is_valid && seq != self.receive.nxt {
            self.rare.edit().fin = Some(seq);
        }
        is_valid && seq == self.receive.nxt
    }

    /// The stream has reached the FIN.
    fn finish(&mut self, cx: &mut Context<'_>) {
        self.receive.nxt += 1;
        if let Some(rare) = self.rare.changed() {
            rare.fin = None;
        }
        self.receive.is_finished = true;
        self.receive.ack = AckDue::Now;
        self.clear_reassembly(cx.pool);
        self.raise(READABLE);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(cx),
            _ => {}
        }
    }

    /// Drops what is beyond a gap.
    pub fn clear_reassembly(&mut self, pool: &mut Pool) {
        if let Some(rare) = self.rare.changed() {
            rare.reassembly.clear(pool);
        }
    }

    pub(super) fn forget_duplicate(&mut self) {
        if let Some(rare) = self.rare.changed() {
            rare.duplicate = (Seq(0), Seq(0));
        }
    }
}

impl Receiver {
    /// Whether a segment of `length` numbers from `seq` is at least partly within the window (RFC 9293, section
    /// 3.10.7.4, first).
    fn is_in_window(&self, seq: Seq, length: u32) -> bool {
        let window = if self.edge.is_after(self.nxt) { self.edge - self.nxt } else { 0 };
        let contains = |at: Seq| at - self.nxt < window;
        match (length, window) {
            (0, 0) => seq == self.nxt,
            (0, _) => contains(seq),
            // A FIN, or one that is acceptable for its acknowledgement, at the edge of a closed window.
            (_, 0) => seq == self.nxt,
            _ => contains(seq) || contains(seq + (length - 1)),
        }
    }

    /// The largest window that the field can say.
    pub(super) fn largest_window(&self) -> u32 {
        u32::from(u16::MAX) << self.shift
    }

    /// How much more may be received than was read.
    pub(super) fn room(&self, config: &Config) -> u32 {
        config.receive_buffer.saturating_sub(self.buffer.len()).min(self.largest_window())
    }

    /// The other end recovers from loss: it should hear soon.
    fn acknowledge_quickly(&mut self) {
        (self.quick, self.is_quick_small) = (QUICK_ACKS, true);
    }

    pub(super) fn note_timestamp(&mut self, value: u32, now: Ns) {
        (self.recent, self.recent_second) = (value, seconds(now));
    }
}

fn seconds(time: Ns) -> u32 {
    (time.0 / 1_000_000_000) as u32
}
