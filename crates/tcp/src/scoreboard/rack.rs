//! RACK: what was sent before a segment that arrived, and long enough, is lost (RFC 8985, section 6).

use super::sent::Sent;
use crate::seq::Seq;
use heddle_core::Ns;

/// Recoveries after which a widened reordering window shrinks again (RFC 8985, section 6.2, step 4).
const PERSIST: u8 = 16;

/// The most recently sent segment that arrived, and what is known of reordering on the path.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// When it was sent.
    xmit: Ns,
    /// Its end.
    end: Seq,
    /// Its round-trip time.
    rtt: Ns,
    /// The highest number that arrived (`RACK.fack`).
    forward: Seq,
    /// Whether reordering was seen.
    is_reordered: bool,
    /// The reordering window in quarters of the smallest round-trip time, and how long it stays wide.
    multiplier: u8,
    persist: u8,
    /// The round in which a D-SACK widened the window ends here.
    round: Seq,
}

impl Rack {
    pub fn new(start: Seq) -> Rack {
        Rack {
            xmit: Ns::ZERO,
            end: start,
            rtt: Ns::ZERO,
            forward: start,
            is_reordered: false,
            multiplier: 1,
            persist: 0,
            round: start,
        }
    }

    /// Takes note of a segment that arrived (steps 2 and 3). `min_rtt` is the smallest round trip measured; a
    /// retransmission that seems to have been faster was not what is acknowledged.
    pub fn delivered(&mut self, sent: &Sent, now: Ns, min_rtt: Ns, is_echo_older: bool) {
        let rtt = now - sent.at;
        if sent.end().is_before(self.forward) {
            self.is_reordered |= !sent.is_retransmitted();
        } else {
            self.forward = sent.end();
        }
        if sent.is_retransmitted() && (rtt < min_rtt || is_echo_older) {
            return;
        }
        if is_sent_after((sent.at, sent.end()), (self.xmit, self.end)) {
            (self.xmit, self.end, self.rtt) = (sent.at, sent.end(), rtt);
        }
    }

    /// Whether any segment arrived that was sent after `sent`.
    fn passed(&self, sent: &Sent) -> bool {
        is_sent_after((self.xmit, self.end), (sent.at, sent.end()))
    }

    /// How long to wait until `sent` counts as lost: zero if it does; `None` if nothing sent later arrived (step 5).
    pub fn remaining(&self, sent: &Sent, now: Ns, window: Ns) -> Option<Ns> {
        self.passed(sent).then(|| (sent.at + self.rtt + window) - now)
    }

    /// Whether `sent` has been under way for a round trip and the reordering window: it is lost if a timeout says that
    /// anything is (section 6.3).
    pub fn is_overdue(&self, sent: &Sent, now: Ns, window: Ns) -> bool {
        sent.at + self.rtt + window <= now
    }

    /// The reordering window (step 4).
    pub fn window(&self, is_recovering: bool, min_rtt: Ns, srtt: Ns) -> Ns {
        if !self.is_reordered && is_recovering || min_rtt == Ns::MAX {
            return Ns::ZERO;
        }
        (min_rtt / 4 * u64::from(self.multiplier)).min(srtt)
    }

    /// Widens the window, once a round trip: a retransmission was unnecessary.
    pub fn duplicate(&mut self, una: Seq, nxt: Seq) {
        if !una.is_before(self.round) {
            self.round = nxt;
            self.multiplier = self.multiplier.saturating_add(1).min(40);
            self.persist = PERSIST;
        }
    }

    /// A recovery is over.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }
}

fn is_sent_after(one: (Ns, Seq), other: (Ns, Seq)) -> bool {
    one.0 > other.0 || one.0 == other.0 && one.1.is_after(other.1)
}
