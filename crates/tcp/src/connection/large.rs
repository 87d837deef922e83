//! Segments that are cut on their way: as many bytes as may be sent now leave as one, and the kernel or the card makes
//! segments of them. Here they are segments from the start, each with its entry in the scoreboard.

use super::output::Payload;
use super::{Connection, Context, Fin};
use crate::checksum::{Sum, TCP};
use crate::output::{Cut, Flow, Output};
use crate::wire::{Flags, HEADER, TIMESTAMPS};

/// Segments in the congestion window from which on large ones are sent after a loss.
const BURST: u32 = 64;

impl Connection {
    /// Whether large segments leave room for others in flight. A burst that is all there is stops the exchange: its
    /// acknowledgements come at once, after the reader was woken. Measured at 1 % loss: a third of the rate.
    pub(super) fn may_burst(&self) -> bool {
        let congestion = &self.send.congestion;
        congestion.is_slow_start() || congestion.cwnd >= BURST * u32::from(self.send.mss)
    }

    /// Sends more than one segment of new data as one, if there is so much and the output takes it: of the `unsent`
    /// bytes what fits the `usable` window and the congestion window.
    pub(super) fn send_large(
        &mut self,
        unsent: u32,
        usable: u32,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let mss = u32::from(self.send.mss);
        let quota = self.send.congestion.cwnd.saturating_sub(self.pipe());
        let most = unsent.min(usable).min(quota).min(self.longest_burst(cx.now));
        if most <= mss || !self.may_burst() {
            return false;
        }
        let flow = Flow::new(&self.tuple, Some(self.id));
        // No piece has room for SACK blocks.
        let head = HEADER + if self.has_timestamps() { TIMESTAMPS } else { 0 };
        let room = out.largest(&flow).saturating_sub(head).min(u16::MAX.into()) as u32;
        let length = self.whole_segments(most.min(room), unsent);
        if length <= mss {
            return false;
        }
        let is_all = length == unsent;
        let has_fin = self.send.fin == Fin::Queued && is_all && usable > length;
        let payload = Payload { offset: self.send.nxt - self.send.una, length };
        let push = if is_all { Flags::PSH } else { Flags(0) };
        let fin = if has_fin { Flags::FIN } else { Flags(0) };
        if !self.emit_large(flow, payload, Flags::ACK.with(push).with(fin), cx, out) {
            return false;
        }
        self.note_sent(length, has_fin, cx);
        true
    }

    /// The part of `most` bytes that makes full segments, and a last smaller one if that need not wait.
    fn whole_segments(&self, most: u32, unsent: u32) -> u32 {
        let rest = most % u32::from(self.send.mss);
        if rest > 0 && most == unsent && !self.is_too_small(rest, rest) {
            most
        } else {
            most - rest
        }
    }

    /// Builds a large segment. Returns false if the output has no room.
    fn emit_large(
        &mut self,
        flow: Flow,
        payload: Payload,
        flags: Flags,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let (header, is_complete) = self.header(self.send.nxt, payload.length, flags, cx);
        let head = header.length();
        let total = head + payload.length as usize;
        let cut = Cut { header: head as u16, payload: self.send.mss };
        let mut sum = Sum::from_partial(self.addresses);
        sum.add_length(TCP, total);
        let (buffer, cursor, pool) = (&self.send.buffer, &mut self.send.cursor, &*cx.pool);
        let is_sent = out.send_large(flow, total, cut, |to| {
            let (head, mut body) = to.split_at_mut(head);
            header.write(head);
            head[16..18].copy_from_slice(&sum.unfinished().to_be_bytes());
            buffer.visit(pool, cursor, payload.offset, payload.length, |piece| {
                let (here, rest) = core::mem::take(&mut body).split_at_mut(piece.len());
                here.copy_from_slice(piece);
                body = rest;
            });
        });
        if is_sent {
            self.emitted(cut.pieces(total) as u32, payload.length, is_complete, cx);
        }
        is_sent
    }
}
