//! The segments in flight, what the other end has of them, and which are lost (RFC 2018, 6675, 8985).

mod rack;
mod sent;

use crate::seq::Seq;
use alloc::collections::VecDeque;
use heddle_core::Ns;

pub use rack::Rack;
pub use sent::Sent;

/// What an acknowledgement brought to light.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Sequence numbers acknowledged or SACKed for the first time.
    pub delivered: u32,
    /// The round trip of the first of these, if none was sent again: then it would be unknown which of the two was
    /// answered, and how long those after it lay beyond the gap (Karn's algorithm, RFC 6298, section 3).
    pub rtt: Option<Ns>,
    /// The largest payload among these.
    pub largest: u16,
}

/// What RACK needs to know besides: the time, the smallest round trip, and the timestamp echo if there was one.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub now: Ns,
    pub min_rtt: Ns,
    /// Segments sent at this time or later cannot be what the timestamp echo is of.
    pub echo_before: Option<Ns>,
}

impl Arrival {
    fn is_echo_older(&self, sent: &Sent) -> bool {
        self.echo_before.is_some_and(|before| sent.at >= before)
    }
}

/// Segments in the order of their numbers, without gaps.
#[derive(Debug)]
pub struct Scoreboard {
    queue: VecDeque<Sent>,
    /// Sequence numbers in the network: neither SACKed nor lost (the pipe of RFC 6675).
    in_flight: u32,
    /// Segments that are SACKed, and that are lost and not sent again.
    sacked: u16,
    lost: u16,
    /// No segment before this one is lost.
    hint: u32,
}

impl Scoreboard {
    pub const fn new() -> Scoreboard {
        Scoreboard { queue: VecDeque::new(), in_flight: 0, sacked: 0, lost: 0, hint: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Segments that are not acknowledged.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Sequence numbers in the network.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub fn sacked(&self) -> usize {
        usize::from(self.sacked)
    }

    pub fn lost(&self) -> usize {
        usize::from(self.lost)
    }

    /// The first segment, which is the oldest.
    pub fn first(&self) -> Option<&Sent> {
        self.queue.front()
    }

    pub fn get(&self, index: usize) -> Option<&Sent> {
        self.queue.get(index)
    }

    /// Whether a segment is SACKed or was sent again, so that RACK must look.
    pub fn needs_detection(&self) -> bool {
        self.sacked > 0 || self.lost > 0
    }

    /// Adds a segment that was sent.
    pub fn push(&mut self, sent: Sent) {
        self.in_flight += u32::from(sent.length);
        self.queue.push_back(sent);
    }

    /// Drops all segments before `ack`.
    pub fn acknowledge(&mut self, ack: Seq, rack: &mut Rack, arrival: &Arrival) -> Delivery {
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
            Self::deliver(&sent, rack, arrival, &mut delivery);
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

    fn deliver(sent: &Sent, rack: &mut Rack, arrival: &Arrival, delivery: &mut Delivery) {
        if sent.is_sacked() {
            return;
        }
        delivery.delivered += u32::from(sent.length);
        delivery.largest = delivery.largest.max(sent.payload() as u16);
        if !sent.is_retransmitted() && delivery.rtt.is_none() {
            delivery.rtt = Some(arrival.now - sent.at);
        }
        rack.delivered(sent, arrival.now, arrival.min_rtt, arrival.is_echo_older(sent));
    }

    /// Marks the segments within `block` as arrived (RFC 2018, section 5.1; RFC 6675, `Update`).
    pub fn sack(&mut self, block: (Seq, Seq), rack: &mut Rack, arrival: &Arrival) -> Delivery {
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
            Self::deliver(&sent, rack, arrival, &mut delivery);
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
    pub fn detect(&mut self, rack: &Rack, now: Ns, window: Ns) -> (u32, Option<Ns>) {
        let (mut lost, mut wait) = (0, None);
        for index in 0..self.queue.len() {
            let sent = self.queue[index];
            if !sent.is_in_flight() {
                continue;
            }
            match rack.remaining(&sent, now, window) {
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

    /// Gives memory back, if nothing is in flight.
    pub fn trim(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Drops all segments.
    pub fn clear(&mut self) {
        *self = Scoreboard::new();
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
            && count(Sent::is_sacked) == self.sacked()
            && count(Sent::is_lost) == self.lost();
        sums && has_no_gap && end == nxt
    }
}
