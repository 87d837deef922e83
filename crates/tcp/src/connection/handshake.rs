//! Opening from this end (RFC 9293, section 3.10.7.3), and from both at once.

use super::{Agreed, Alarm, Connection, Context, default_mss, timestamp};
use crate::checksum::{Sum, TCP};
use crate::error::Error;
use crate::event::{CONNECTED, WRITABLE};
use crate::output::{Flow, Output};
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{Flags, Header, Outgoing, OutgoingOptions, Timestamps};

impl Connection {
    /// Sends the first SYN.
    pub fn open(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        self.state = State::SynSent;
        self.send.nxt = self.send.una + 1;
        self.timers.start(cx.now);
        self.timers.set_alarm(Alarm::Timeout, cx.now + self.timeout(cx));
        self.send_syn(cx, out);
    }

    /// Sends a SYN, or in SYN_RECEIVED a SYN-ACK.
    pub(super) fn send_syn(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let is_answer = self.state == State::SynReceived;
        let echo = self.receive.recent;
        let value = timestamp(cx.now, self.timestamp_offset);
        let has_timestamps = if is_answer { self.has_timestamps() } else { cx.config.timestamps };
        let options = OutgoingOptions {
            mss: Some(self.own_mss),
            window_scale: (!is_answer || self.receive.has_scale).then(|| cx.config.window_scale()),
            sack_permitted: if is_answer { self.sack } else { cx.config.sack },
            timestamps: has_timestamps.then_some(Timestamps { value, echo }),
            ..OutgoingOptions::default()
        };
        let header = Outgoing {
            source_port: self.tuple.local_port,
            destination_port: self.tuple.remote_port,
            seq: self.send.una,
            ack: if is_answer { self.receive.nxt } else { Seq(0) },
            flags: if is_answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN },
            window: cx.config.receive_buffer.min(u32::from(u16::MAX)) as u16,
            options,
        };
        let flow = Flow::new(&self.tuple, Some(self.id));
        let mut sum = Sum::from_partial(self.addresses);
        sum.add_length(TCP, header.length());
        if send_header(&header, sum, flow, out) {
            cx.counters.segments_out += 1;
        } else {
            self.is_blocked = true;
            cx.counters.output_full += 1;
        }
    }

    /// The SYN was not answered.
    pub(super) fn handshake_timeout(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        if self.is_timed_out(cx.config.connect_timeout, cx.now) {
            cx.counters.failed_opens += 1;
            return self.time_out(cx);
        }
        cx.counters.timeouts += 1;
        cx.counters.retransmits += 1;
        self.rare.edit().retransmits += 1;
        self.timers.backoff = self.timers.backoff.saturating_add(1);
        self.timers.set_alarm(Alarm::Timeout, cx.now + self.timeout(cx));
        self.send_syn(cx, out);
    }

    pub(super) fn receive_syn_sent(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        let has_ack = header.is(Flags::ACK);
        if has_ack && header.ack != self.send.nxt {
            cx.counters.bad_acks += 1;
            if !header.is(Flags::RST) {
                self.refuse(header, cx, out);
            }
            return;
        }
        if header.is(Flags::RST) {
            if has_ack {
                cx.counters.resets_in += 1;
                cx.counters.failed_opens += 1;
                self.end(Some(Error::Refused), cx);
            }
            return;
        }
        if header.is(Flags::SYN) {
            self.take_syn(header, has_ack, payload, cx, out);
        }
    }

    /// Resets what has a wrong acknowledgement, by its own number.
    fn refuse(&mut self, header: &Header, cx: &mut Context<'_>, out: &mut impl Output) {
        let reset = Outgoing {
            source_port: self.tuple.local_port,
            destination_port: self.tuple.remote_port,
            seq: header.ack,
            ack: Seq(0),
            flags: Flags::RST,
            window: 0,
            options: OutgoingOptions::default(),
        };
        let mut sum = Sum::from_partial(self.addresses);
        sum.add_length(TCP, reset.length());
        if send_header(&reset, sum, Flow::new(&self.tuple, Some(self.id)), out) {
            cx.counters.segments_out += 1;
            cx.counters.resets_out += 1;
        }
    }

    fn take_syn(
        &mut self,
        header: &Header,
        has_ack: bool,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        let options = &header.options;
        let sent_at = self.timers.alarm_at() - self.timeout(cx);
        let is_first = self.timers.backoff == 0;
        let agreed = Agreed {
            iss: self.send.una,
            irs: header.seq,
            window: header.window,
            send_shift: options.window_scale.unwrap_or(0),
            receive_shift: options.window_scale.map_or(0, |_| cx.config.window_scale()),
            has_scale: options.window_scale.is_some(),
            mss: options.mss.unwrap_or_else(|| default_mss(&self.tuple)),
            sack: options.sack_permitted && cx.config.sack,
            timestamp: options
                .timestamps
                .filter(|_| cx.config.timestamps)
                .map(|timestamps| timestamps.value),
        };
        let mtu = self.own_mss + self.tuple.header_length();
        self.agree(&agreed, mtu, cx);
        if has_ack {
            if is_first {
                self.send.rtt.sample(cx.now - sent_at);
            }
            self.establish(cx);
            self.receive.ack = super::AckDue::Now;
            self.take_rest(header, payload, cx, out);
        } else {
            // Simultaneous open (RFC 9293, section 3.5, figure 7): the SYN is not acknowledged yet.
            self.send.una = agreed.iss;
            self.state = State::SynReceived;
            self.timers.set_alarm(Alarm::Timeout, cx.now + self.timeout(cx));
            self.send_syn(cx, out);
        }
    }

    /// What the SYN-ACK carried besides: normally nothing.
    fn take_rest(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        if payload.is_empty() && !header.is(Flags::FIN) {
            return self.transmit(cx, out);
        }
        let rest =
            Header { seq: header.seq + 1, flags: header.flags.without(Flags::SYN), ..*header };
        let rest = Header { window: (u32::from(header.window) >> self.send.shift) as u16, ..rest };
        self.receive_synchronised(&rest, payload, cx, out);
    }

    fn establish(&mut self, cx: &mut Context<'_>) {
        self.state = State::Established;
        self.timers.clear_alarm();
        self.timers.start(cx.now);
        self.start_keep_alive();
        if self.send.fin == super::Fin::Queued {
            self.state = State::FinWait1;
        }
        self.raise(CONNECTED | WRITABLE);
    }

    /// Simultaneous open: waits for the acknowledgement of the SYN.
    pub(super) fn receive_syn_received(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) {
        if header.is(Flags::RST) {
            if header.seq == self.receive.nxt {
                cx.counters.resets_in += 1;
                cx.counters.failed_opens += 1;
                self.end(Some(Error::Refused), cx);
            }
            return;
        }
        if !header.is(Flags::ACK) || header.ack != self.send.nxt {
            if header.is(Flags::SYN) {
                self.send_syn(cx, out);
            } else if header.is(Flags::ACK) {
                self.refuse(header, cx, out);
            }
            return;
        }
        self.send.una = self.send.nxt;
        self.establish(cx);
        if header.is(Flags::SYN) {
            // The other end's SYN-ACK: its window is not scaled, and its SYN was taken before.
            return self.take_rest(header, payload, cx, out);
        }
        self.receive_synchronised(header, payload, cx, out);
    }
}

/// Sends a segment without payload; `sum` is that of the pseudo header. Returns false if the output has no room.
pub fn send_header(header: &Outgoing, mut sum: Sum, flow: Flow, out: &mut impl Output) -> bool {
    out.send(flow, header.length(), |to| {
        header.write(to);
        sum.add(to);
        to[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    })
}
