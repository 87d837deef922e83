//! What an acknowledgement says (RFC 9293, section 3.10.7.4, fifth).

use super::{Connection, Context, Fin};
use crate::event::WRITABLE;
use crate::output::Output;
use crate::scoreboard::{Arrival, Delivery};
use crate::seq::Seq;
use crate::state::State;
use crate::wire::Header;
use heddle_core::Ns;

impl Connection {
    /// Takes the acknowledgement and the window of a segment that is acceptable. Returns false if the segment is to be
    /// dropped.
    pub(super) fn acknowledge(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let (ack, una, nxt) = (header.ack, self.send.una, self.send.nxt);
        // RFC 5961, section 5.2.
        if ack.is_after(nxt)
            || (una - ack).wrapping_sub(1) < u32::MAX / 2 && una - ack > self.send.max_window.max(1)
        {
            cx.counters.bad_acks += 1;
            self.challenge(cx, out);
            return false;
        }
        let window = self.send.window;
        self.update_window(header);
        if ack.is_before(una) {
            // It is late, but what its SACK blocks say may be new.
            if self.sack && !header.options.sack.is_empty() {
                self.process_ack(&Header { ack: una, ..*header }, true, cx);
            }
            return true;
        }
        let is_window_update = window != self.send.window;
        self.process_ack(header, is_window_update || !payload.is_empty(), cx);
        true
    }

    /// Takes the window if the segment is not older than the one that the window is from.
    fn update_window(&mut self, header: &Header) {
        let send = &mut self.send;
        let (seq, ack) = send.wl;
        let is_newer = seq.is_before(header.seq) || seq == header.seq && !header.ack.is_before(ack);
        if is_newer {
            send.window = u32::from(header.window) << send.shift;
            send.max_window = send.max_window.max(send.window);
            send.wl = (header.seq, header.ack);
        }
    }

    fn process_ack(&mut self, header: &Header, is_update: bool, cx: &mut Context<'_>) {
        let arrival = self.arrival(header, cx.now);
        let una = self.send.una;
        let has_advanced = header.ack != una;
        let has_duplicate = self.reports_duplicate(header);
        if has_duplicate {
            self.duplicate_reported(cx);
        }
        let mut delivery = Delivery::default();
        if has_advanced {
            delivery = self.advance(header.ack, &arrival, cx);
            if !self.sack {
                // Duplicate acknowledgements have counted a segment each already.
                let counted = u32::from(self.send.board.dup_acks()) * u32::from(self.send.mss);
                delivery.delivered = delivery.delivered.saturating_sub(counted);
            }
        }
        self.take_sacks(header, &arrival, &mut delivery);
        if let Some(rtt) = delivery.rtt {
            self.send.rtt.sample(rtt);
        }
        if delivery.is_reordered {
            self.rare.edit().reordering.seen();
        }
        self.payload_acknowledged(delivery.largest);
        self.probe_acknowledged(has_duplicate, cx);
        if has_advanced || has_duplicate {
            self.undo_spurious(&arrival, has_duplicate, cx);
        }
        if has_advanced || delivery.delivered > 0 {
            self.set_alarm(cx);
        } else if !self.sack && !is_update && !self.send.board.is_empty() {
            // A duplicate acknowledgement (RFC 5681, section 2).
            let count = self.send.board.dup_acks().saturating_add(1);
            self.send.board.set_dup_acks(count);
            delivery.delivered = u32::from(self.send.mss);
        } else if self.send.board.is_empty() {
            return self.window_answered();
        }
        self.recover(&delivery, has_advanced, &arrival, cx);
    }

    /// Probes of a window that is open, and only too small, come at the timeout (RFC 9293, section
    /// 3.8.6.2.1, override).
    fn window_answered(&mut self) {
        if self.send.window > 0 {
            self.timers.backoff = 0;
        }
    }

    /// What RACK needs to know of this acknowledgement. The echo, in milliseconds, is brought back to our clock.
    fn arrival(&self, header: &Header, now: Ns) -> Arrival {
        let echo = header.options.timestamps.filter(|t| self.has_timestamps() && t.echo != 0);
        let echo_before = echo.map(|timestamps| {
            let age = self.timestamp(now).wrapping_sub(timestamps.echo);
            Ns((now.0 / 1_000_000).saturating_sub(u64::from(age)) * 1_000_000 + 1_000_000)
        });
        Arrival { now, min_rtt: self.send.rtt.min(), echo_before }
    }

    /// Whether the first SACK block is a D-SACK (RFC 2883, section 4).
    fn reports_duplicate(&self, header: &Header) -> bool {
        match header.options.sack.as_slice() {
            [] => false,
            [first, rest @ ..] => {
                let is_old = !first.1.is_after(header.ack);
                let within = |b: &(Seq, Seq)| !first.0.is_before(b.0) && !first.1.is_after(b.1);
                self.sack && (is_old || rest.first().is_some_and(within))
            }
        }
    }

    /// Drops what is acknowledged.
    fn advance(&mut self, ack: Seq, arrival: &Arrival, cx: &mut Context<'_>) -> Delivery {
        let delivery = self.send.board.acknowledge(ack, arrival);
        let count = ack - self.send.una;
        let is_fin_acked = self.send.fin == Fin::Sent && ack == self.send.nxt;
        let bytes = count - u32::from(is_fin_acked);
        self.send.cursor.advance(bytes);
        self.send.buffer.advance(cx.pool, bytes);
        self.send.una = ack;
        self.timers.start(cx.now);
        self.notify_writer(cx);
        if is_fin_acked {
            self.fin_acknowledged(cx);
        }
        delivery
    }

    /// Wakes a writer that met a full buffer when a third of it is free.
    fn notify_writer(&mut self, cx: &Context<'_>) {
        if self.send.wants_room && self.send.buffer.len() <= cx.config.send_buffer / 3 * 2 {
            self.send.wants_room = false;
            self.raise(WRITABLE);
        }
    }

    fn take_sacks(&mut self, header: &Header, arrival: &Arrival, delivery: &mut Delivery) {
        if !self.sack {
            return;
        }
        let (una, nxt) = (self.send.una, self.send.nxt);
        for &block in header.options.sack.as_slice() {
            let is_valid =
                block.0.is_before(block.1) && block.0.is_after(una) && !block.1.is_after(nxt);
            if is_valid {
                delivery.add(&self.send.board.sack(block, arrival));
            }
        }
    }

    fn fin_acknowledged(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if !self.is_attached {
                    self.set_idle(cx.now + cx.config.fin_wait);
                }
            }
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.end(None, cx),
            _ => {}
        }
    }

    /// Both ends are done. The stack makes a record of it; what was received stays readable.
    pub(super) fn enter_time_wait(&mut self, cx: &mut Context<'_>) {
        self.state = State::TimeWait;
        cx.counters.time_waits += 1;
        self.stop_timers();
        self.raise(crate::event::CLOSED | crate::event::READABLE);
    }
}
