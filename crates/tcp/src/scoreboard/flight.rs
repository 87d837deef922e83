//! The segments in flight, with what is known of them.

use super::rack::Rack;
use super::{Arrival, Delivery, Sent};
use crate::seq::Seq;
use alloc::collections::VecDeque;
use heddle_core::Ns;

/// Segments in the order of their numbers, without gaps.
#[derive(Debug)]
pub struct Flight {
    pub queue: VecDeque<Sent>,
    /// Sequence numbers in the network: neither SACKed nor lost (the pipe of RFC 6675).
    pub in_flight: u32,
    /// Segments that are SACKed, and that are lost and not sent again.
    pub sacked: u16,
    pub lost: u16,
    /// No segment before this one is lost.
    hint: u32,
    pub rack: Rack,
    /// The most in flight in this round trip, which ends with the acknowledgement of this number.
    pub peak: u32,
    peak_end: Seq,
    /// The end of the data in flight when a tail loss probe was sent, and whether it was sent again.
    pub probe: Option<(Seq, bool)>,
    /// Duplicate acknowledgements, without SACK.
    pub dup_acks: u16,
}

impl Flight {
    /// Nothing in flight; the first segment will begin at `start`.
    pub fn new(start: Seq) -> Flight {
        Flight {
            queue: VecDeque::new(),
            in_flight: 0,
            sacked: 0,
            lost: 0,
            hint: 0,
            rack: Rack::new(start),
            peak: 0,
            peak_end: start,
            probe: None,
            dup_acks: 0,
        }
    }

    /// Adds a segment that was sent.
    pub fn push(&mut self, sent: Sent) {
        self.in_flight += u32::from(sent.length);
        self.queue.push_back(sent);
    }

    /// Remembers the most that was in flight: now all from `una` to `nxt`.
    pub fn note_peak(&mut self, una: Seq, nxt: Seq) {
        let flight = nxt - una;
        if flight > self.peak || !una.is_before(self.peak_end) {
            (self.peak, self.peak_end) = (flight, nxt);
        }
    }

    /// Drops all segments before `ack`.
    pub fn acknowledge(&mut self, ack: Seq, arrival: &Arrival) -> Delivery {
        let (mut delivery, mut has_retransmitted) = (Delivery::default(), false);
        while let Some(first) = self.queue.front_mut() {
            if first.end().is_after(ack) {
                self.acknowledge_part(ack, &mut delivery);
                break;
            }
            let sent = *first;
            self.queue.pop_front();
            self.hint = self.hint.saturating_sub(1);
            self.forget(&sent);
            has_retransmitted |= sent.is_retransmitted();
            self.deliver(&sent, arrival, &mut delivery);
        }
        delivery.rtt = delivery.rtt.filter(|_| !has_retransmitted);
        delivery
    }

    /// The other end acknowledged a part of the first segment: it was split on the way.
    fn acknowledge_part(&mut self, ack: Seq, delivery: &mut Delivery) {
        let Some(first) = self.queue.front_mut().filter(|first| ack.is_after(first.seq)) else {
            return;
        };
        let count = ack - first.seq;
        (first.seq, first.length) = (ack, first.length - count as u16);
        if first.is_in_flight() {
            self.in_flight -= count;
        }
        delivery.delivered += count;
    }

    fn forget(&mut self, sent: &Sent) {
        if sent.is_in_flight() {
            self.in_flight -= u32::from(sent.length);
        }
        self.sacked -= u16::from(sent.is_sacked());
        self.lost -= u16::from(sent.is_lost());
    }

    fn deliver(&mut self, sent: &Sent, arrival: &Arrival, delivery: &mut Delivery) {
        if sent.is_sacked() {
            return;
        }
        delivery.delivered += u32::from(sent.length);
        delivery.largest = delivery.largest.max(sent.payload() as u16);
        if !sent.is_retransmitted() && delivery.rtt.is_none() {
            delivery.rtt = Some(arrival.now - sent.at);
        }
        delivery.is_reordered |=
            self.rack.delivered(sent, arrival.now, arrival.min_rtt, arrival.is_echo_older(sent));
    }

    /// Marks the segments within `block` as arrived (RFC 2018, section 5.1; RFC 6675, `Update`).
    pub fn sack(&mut self, block: (Seq, Seq), arrival: &Arrival) -> Delivery {
        let mut delivery = Delivery::default();
        let start = self.queue.partition_point(|sent| sent.seq.is_before(block.0));
        for index in start..self.queue.len() {
            let sent = self.queue[index];
            if sent.end().is_after(block.1) {
                break;
            }
            if sent.is_sacked() {
                continue;
            }
            self.forget(&sent);
            self.sacked += 1;
            self.queue[index].set_sacked(true);
            self.deliver(&sent, arrival, &mut delivery);
        }
        delivery
    }

    /// Marks the segment at `index` as lost.
    pub fn mark_lost(&mut self, index: usize) {
        let sent = &mut self.queue[index];
        if sent.is_in_flight() {
            sent.set_lost(true);
            self.in_flight -= u32::from(sent.length);
            self.lost += 1;
            self.hint = self.hint.min(index as u32);
        }
    }

    /// Marks what RACK takes to be lost. Returns how many sequence numbers, and how long until more may be.
    pub fn detect(&mut self, now: Ns, window: Ns) -> (u32, Option<Ns>) {
        let (mut lost, mut wait) = (0, None);
        for index in 0..self.queue.len() {
            let sent = self.queue[index];
            if !sent.is_in_flight() {
                continue;
            }
            match self.rack.remaining(&sent, now, window) {
                Some(Ns::ZERO) => {
                    self.mark_lost(index);
                    lost += u32::from(sent.length);
                }
                Some(remaining) => wait = wait.max(Some(remaining)),
                None => {}
            }
        }
        (lost, wait)
    }

    /// Marks the segments in flight as lost for which `is_lost` holds, given their place and themselves.
    pub fn mark_lost_if(&mut self, is_lost: impl Fn(usize, &Sent) -> bool) {
        for index in 0..self.queue.len() {
            if is_lost(index, &self.queue[index]) {
                self.mark_lost(index);
            }
        }
    }

    /// Marks what is lost if a timeout says that anything is: the first segment, and without SACK (`is_all`) or after a
    /// round trip and the reordering window the others (RFC 8985, section 6.3).
    pub fn time_out(&mut self, is_all: bool, now: Ns, window: Ns, srtt: Ns) {
        let rack = self.rack;
        self.mark_lost_if(|index, sent| {
            index == 0 || is_all || rack.is_overdue(sent, now, window, srtt)
        });
    }

    /// Forgets what SACKs said: the other end may have dropped what it had (RFC 2018, section 8).
    pub fn renege(&mut self) {
        for sent in &mut self.queue {
            if sent.is_sacked() {
                sent.set_sacked(false);
                self.in_flight += u32::from(sent.length);
            }
        }
        self.sacked = 0;
    }

    /// Takes back that segments are lost.
    pub fn undo(&mut self) {
        for sent in &mut self.queue {
            if sent.is_lost() {
                sent.set_lost(false);
                self.in_flight += u32::from(sent.length);
            }
        }
        self.lost = 0;
    }

    /// The first lost segment that was not sent again.
    pub fn next_lost(&mut self) -> Option<usize> {
        if self.lost == 0 {
            self.hint = u32::MAX;
            return None;
        }
        let start = (self.hint as usize).min(self.queue.len());
        let found = self.queue.range(start..).position(Sent::is_lost).map(|ahead| start + ahead);
        self.hint = found.unwrap_or(0) as u32;
        found
    }

    /// The segment at `index` was sent again.
    pub fn retransmitted(&mut self, index: usize, now: Ns) {
        let sent = &mut self.queue[index];
        if sent.is_lost() {
            sent.set_lost(false);
            self.lost -= 1;
            self.in_flight += u32::from(sent.length);
        }
        sent.at = now;
        sent.retransmits = sent.retransmits.saturating_add(1);
    }

    /// Cuts the segment at `index` after `length` bytes: segments must be smaller now.
    pub fn split(&mut self, index: usize, length: u16) {
        let rest = self.queue[index].split(length);
        self.sacked += u16::from(rest.is_sacked());
        self.lost += u16::from(rest.is_lost());
        self.queue.insert(index + 1, rest);
    }

    /// I3: the sums agree with the segments, and there is no gap between these.
    pub fn is_consistent(&self, una: Seq, nxt: Seq) -> bool {
        let count = |is: fn(&Sent) -> bool| self.queue.iter().filter(|sent| is(sent)).count();
        let flying = self.queue.iter().filter(|sent| sent.is_in_flight());
        let in_flight: u32 = flying.map(|sent| u32::from(sent.length)).sum();
        let mut end = una;
        let has_no_gap =
            self.queue.iter().all(|sent| core::mem::replace(&mut end, sent.end()) == sent.seq);
        let sums = in_flight == self.in_flight
            && count(Sent::is_sacked) == usize::from(self.sacked)
            && count(Sent::is_lost) == usize::from(self.lost);
        sums && has_no_gap && end == nxt
    }
}
