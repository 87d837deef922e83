//! RACK: what was sent before a segment that arrived, and long enough, is lost (RFC 8985, section 6).

use super::sent::Sent;
use crate::seq::Seq;
use heddle_core::Ns;

/// Recoveries after which a widened reordering window shrinks again (RFC 8985, section 6.2, step 4).
const PERSIST: u8 = 16;

/// The most recently sent segment that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// When it was sent.
    xmit: Ns,
    /// Its end.
    end: Seq,
    /// Its round-trip time; 0 if none has arrived.
    rtt: Ns,
    /// The highest number that arrived (`RACK.fack`).
    forward: Seq,
}

impl Rack {
    pub fn new(start: Seq) -> Rack {
        Rack { xmit: Ns::ZERO, end: start, rtt: Ns::ZERO, forward: start }
    }

    /// Takes note of a segment that arrived (steps 2 and 3). `min_rtt` is the smallest round trip measured; a
    /// retransmission that seems to have been faster was not what is acknowledged. Returns whether the path reorders.
    pub fn delivered(&mut self, sent: &Sent, now: Ns, min_rtt: Ns, is_echo_older: bool) -> bool {
        let rtt = now - sent.at;
        let is_late = sent.end().is_before(self.forward);
        if !is_late {
            self.forward = sent.end();
        }
        let is_other = sent.is_retransmitted() && (rtt < min_rtt || is_echo_older);
        if !is_other && is_sent_after((sent.at, sent.end()), (self.xmit, self.end)) {
            (self.xmit, self.end, self.rtt) = (sent.at, sent.end(), rtt);
        }
        is_late && !sent.is_retransmitted()
    }

    /// When the segment was sent that was sent last of all that arrived.
    pub fn latest(&self) -> Ns {
        self.xmit
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
    pub fn is_overdue(&self, sent: &Sent, now: Ns, window: Ns, srtt: Ns) -> bool {
        let rtt = if self.rtt == Ns::ZERO { srtt } else { self.rtt };
        sent.at + rtt + window <= now
    }
}

/// What is known of reordering on the path.
#[derive(Clone, Copy, Debug)]
pub struct Reordering {
    /// The round in which a D-SACK widened the window ends here.
    round: Option<Seq>,
    /// Whether reordering was seen.
    is_seen: bool,
    /// The reordering window in quarters of the smallest round-trip time, and how long it stays wide.
    multiplier: u8,
    persist: u8,
}

impl Reordering {
    pub const NONE: Reordering =
        Reordering { round: None, is_seen: false, multiplier: 1, persist: 0 };

    pub fn seen(&mut self) {
        self.is_seen = true;
    }

    /// The reordering window (step 4).
    pub fn window(&self, is_recovering: bool, min_rtt: Ns, srtt: Ns) -> Ns {
        if !self.is_seen && is_recovering || min_rtt == Ns::MAX {
            return Ns::ZERO;
        }
        (min_rtt / 4 * u64::from(self.multiplier)).min(srtt)
    }

    /// Widens the window, once a round trip: a retransmission was unnecessary.
    pub fn duplicate(&mut self, una: Seq, nxt: Seq) {
        if self.round.is_none_or(|round| !una.is_before(round)) {
            self.round = Some(nxt);
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
