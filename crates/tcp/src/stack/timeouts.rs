//! What is done when time passes.

use super::Stack;
use crate::half_open::HalfOpen;
use crate::output::Output;
use crate::time_wait::TimeWait;
use heddle_core::Ns;

/// The first SYN-ACK is sent again after so long (RFC 6298, section 2.1).
pub(super) const SYN_ACK_TIMEOUT: Ns = Ns::from_secs(1);

impl Stack {
    /// When [`advance`](Self::advance) must be called next; `None` if no timer is set. It may be earlier than
    /// necessary, never later. Times are rounded up to 8.2 us.
    pub fn next_deadline(&self) -> Option<Ns> {
        let first = self.time_wait_order.front();
        let time_wait =
            first.map(|&entry| self.time_wait(entry).map_or(Ns::ZERO, TimeWait::expires));
        let wheels =
            [self.timers.next_deadline(), self.half_open_timers.next_deadline(), time_wait];
        wheels.into_iter().flatten().min()
    }

    /// Does what is due at `now`: retransmissions, delayed acknowledgements, probes, the end of TIME_WAIT.
    pub fn advance(&mut self, now: Ns, out: &mut impl Output) {
        while let Some(index) = self.timers.expire(now) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.timers.armed = Ns::MAX;
            self.with(index, now, |connection, cx| connection.expire(cx, out));
        }
        while let Some(index) = self.half_open_timers.expire(now) {
            self.half_open_timeout(index, now, out);
        }
        self.end_time_waits(now);
    }

    fn half_open_timeout(&mut self, index: u32, now: Ns, out: &mut impl Output) {
        let limit = self.config.syn_ack_retries;
        let Some(half) = self.half_open.get_mut(index) else { return };
        if half.retries >= limit {
            self.counters.failed_opens += 1;
            return self.forget_half_open(index);
        }
        half.retries += 1;
        self.counters.syn_ack_retransmits += 1;
        self.send_syn_ack(index, now, out);
        self.arm_half_open(index, now);
    }

    pub(super) fn arm_half_open(&mut self, index: u32, now: Ns) {
        let retries = self.half_open.get(index).map_or(0, |half: &HalfOpen| half.retries);
        let wait = (SYN_ACK_TIMEOUT * (1 << retries.min(16))).min(self.config.rto_max);
        self.half_open_timers.arm(index, now, now + wait);
    }

    /// The record that an entry of the queue names; `None` if it was dropped before its time.
    fn time_wait(&self, (index, generation): (u32, u32)) -> Option<&TimeWait> {
        self.time_waits.get(index).filter(|_| self.time_waits.generation(index) == generation)
    }

    fn end_time_waits(&mut self, now: Ns) {
        while let Some(&entry) = self.time_wait_order.front() {
            let is_early = self.time_wait(entry).is_some_and(|record| record.expires() > now);
            let record = self.time_waits.get_mut(entry.0).filter(|_| is_early);
            match record.map(TimeWait::take_restarted) {
                Some(false) => break,
                Some(true) => self.time_wait_order.push_back(entry),
                None if self.time_wait(entry).is_some() => self.forget_time_wait(entry.0),
                None => {}
            }
            self.time_wait_order.pop_front();
        }
    }
}
