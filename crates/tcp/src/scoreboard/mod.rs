//! The segments in flight, what the other end has of them, and which are lost (RFC 2018, 6675, 8985).

mod flight;
mod rack;
mod sent;

use crate::seq::Seq;
use alloc::boxed::Box;
use flight::Flight;
use heddle_core::Ns;

pub use rack::Reordering;
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
    /// One of these arrived after one with a higher number, and was sent once.
    pub is_reordered: bool,
}

impl Delivery {
    /// Adds what another part of the acknowledgement brought to light.
    pub fn add(&mut self, more: &Delivery) {
        self.delivered += more.delivered;
        self.rtt = self.rtt.or(more.rtt);
        self.largest = self.largest.max(more.largest);
        self.is_reordered |= more.is_reordered;
    }
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

/// Segments in the order of their numbers, without gaps. When [`trim`](Self::trim) finds none, it has no memory.
#[derive(Debug)]
pub struct Scoreboard(Option<Box<Flight>>);

impl Scoreboard {
    pub const fn new() -> Scoreboard {
        Scoreboard(None)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments that are not acknowledged.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |flight| flight.queue.len())
    }

    /// Sequence numbers in the network.
    pub fn in_flight(&self) -> u32 {
        self.0.as_ref().map_or(0, |flight| flight.in_flight)
    }

    pub fn sacked(&self) -> usize {
        self.0.as_ref().map_or(0, |flight| usize::from(flight.sacked))
    }

    /// The latest time of sending of all that has arrived.
    pub fn latest(&self) -> Ns {
        self.0.as_ref().map_or(Ns::ZERO, |flight| flight.rack.latest())
    }

    /// The first segment, which is the oldest.
    pub fn first(&self) -> Option<&Sent> {
        self.get(0)
    }

    pub fn get(&self, index: usize) -> Option<&Sent> {
        self.0.as_ref()?.queue.get(index)
    }

    /// Whether a segment is SACKed or was sent again, so that RACK must look.
    pub fn needs_detection(&self) -> bool {
        self.0.as_ref().is_some_and(|flight| flight.sacked > 0 || flight.lost > 0)
    }

    /// The end of the data in flight when a tail loss probe was sent, and whether it was sent again.
    pub fn probe(&self) -> Option<(Seq, bool)> {
        self.0.as_ref()?.probe
    }

    pub fn set_probe(&mut self, probe: Option<(Seq, bool)>) {
        self.0.iter_mut().for_each(|flight| flight.probe = probe);
    }

    /// Duplicate acknowledgements, without SACK.
    pub fn dup_acks(&self) -> u16 {
        self.0.as_ref().map_or(0, |flight| flight.dup_acks)
    }

    pub fn set_dup_acks(&mut self, count: u16) {
        self.0.iter_mut().for_each(|flight| flight.dup_acks = count);
    }

    /// Adds a segment that was sent.
    pub fn push(&mut self, sent: Sent) {
        self.0.get_or_insert_with(|| Box::new(Flight::new(sent.seq))).push(sent);
    }

    /// The most in flight in this round trip.
    pub fn peak(&self) -> u32 {
        self.0.as_ref().map_or(0, |flight| flight.peak)
    }

    /// Remembers the most that was in flight: now all from `una` to `nxt`.
    pub fn note_peak(&mut self, una: Seq, nxt: Seq) {
        self.0.iter_mut().for_each(|flight| flight.note_peak(una, nxt));
    }

    /// Drops all segments before `ack`.
    pub fn acknowledge(&mut self, ack: Seq, arrival: &Arrival) -> Delivery {
        self.0.as_mut().map_or_else(Delivery::default, |flight| flight.acknowledge(ack, arrival))
    }

    /// Marks the segments within `block` as arrived (RFC 2018, section 5.1; RFC 6675, `Update`).
    pub fn sack(&mut self, block: (Seq, Seq), arrival: &Arrival) -> Delivery {
        self.0.as_mut().map_or_else(Delivery::default, |flight| flight.sack(block, arrival))
    }

    /// Marks the segment at `index` as lost.
    pub fn mark_lost(&mut self, index: usize) {
        self.0.iter_mut().for_each(|flight| flight.mark_lost(index));
    }

    /// Marks what RACK takes to be lost. Returns how many sequence numbers, and how long until more may be.
    pub fn detect(&mut self, now: Ns, window: Ns) -> (u32, Option<Ns>) {
        self.0.as_mut().map_or((0, None), |flight| flight.detect(now, window))
    }

    /// Marks the segments in flight as lost for which `is_lost` holds, given their place and themselves.
    pub fn mark_lost_if(&mut self, is_lost: impl Fn(usize, &Sent) -> bool) {
        self.0.iter_mut().for_each(|flight| flight.mark_lost_if(&is_lost));
    }

    /// Marks what is lost if a timeout says that anything is; all of it without SACK (`is_all`).
    pub fn time_out(&mut self, is_all: bool, now: Ns, window: Ns, srtt: Ns) {
        self.0.iter_mut().for_each(|flight| flight.time_out(is_all, now, window, srtt));
    }

    /// Forgets what SACKs said: the other end may have dropped what it had (RFC 2018, section 8).
    pub fn renege(&mut self) {
        self.0.iter_mut().for_each(|flight| flight.renege());
    }

    /// Takes back that segments are lost.
    pub fn undo(&mut self) {
        self.0.iter_mut().for_each(|flight| flight.undo());
    }

    /// The first lost segment that was not sent again.
    pub fn next_lost(&mut self) -> Option<usize> {
        self.0.as_mut()?.next_lost()
    }

    /// The segment at `index` was sent again.
    pub fn retransmitted(&mut self, index: usize, now: Ns) {
        self.0.iter_mut().for_each(|flight| flight.retransmitted(index, now));
    }

    /// Cuts the segment at `index` after `length` bytes: segments must be smaller now.
    pub fn split(&mut self, index: usize, length: u16) {
        self.0.iter_mut().for_each(|flight| flight.split(index, length));
    }

    /// Gives memory back, if nothing is in flight.
    pub fn trim(&mut self) {
        self.0.take_if(|flight| flight.queue.is_empty());
    }

    #[cfg(test)]
    pub fn has_memory(&self) -> bool {
        self.0.is_some()
    }

    /// Drops all segments.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// I3: the sums agree with the segments, and there is no gap between these.
    pub fn is_consistent(&self, una: Seq, nxt: Seq) -> bool {
        self.0.as_ref().map_or(una == nxt, |flight| flight.is_consistent(una, nxt))
    }
}
