//! Connections that are over, for as long as their segments may still arrive (RFC 9293, section 3.4.2).

use crate::address::Tuple;
use crate::connection::timestamp;
use crate::half_open::Bare;
use crate::seq::Seq;
use crate::wire::{Flags, Header, OutgoingOptions, Timestamps};
use heddle_core::Ns;

/// What remains of a connection: 60 bytes.
#[derive(Debug)]
pub struct TimeWait {
    pub tuple: Tuple,
    /// The next number we would send.
    pub nxt: Seq,
    /// The next number expected.
    pub receive_nxt: Seq,
    /// When it ends, in units of 2^24 ns: 17 ms.
    expires: u32,
    /// It ends later than its place in the stack's queue says.
    is_restarted: bool,
    /// The other end's latest timestamp, if it has any.
    pub timestamp: Option<u32>,
}

const _: () = assert!(size_of::<TimeWait>() <= 64, "the promise of docs/design/tcp.md");

/// What to do with a segment in TIME_WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Ignore,
    /// Acknowledge what is expected.
    Acknowledge,
    /// The same, and wait anew: the other end's FIN came again.
    Restart,
    /// A new connection may begin.
    Reuse,
}

/// The first unit that is not before `time`.
fn units(time: Ns) -> u32 {
    time.0.div_ceil(1 << UNIT_BITS) as u32
}

const UNIT_BITS: u32 = 24;

impl TimeWait {
    pub fn new(
        tuple: Tuple,
        nxt: Seq,
        receive_nxt: Seq,
        timestamp: Option<u32>,
        expires: Ns,
    ) -> TimeWait {
        TimeWait {
            tuple,
            nxt,
            receive_nxt,
            expires: units(expires),
            is_restarted: false,
            timestamp,
        }
    }

    /// It ends at `expires` instead.
    pub fn restart(&mut self, expires: Ns) {
        (self.expires, self.is_restarted) = (units(expires), true);
    }

    /// Whether it was restarted since it was put into the queue; it is put there again.
    pub fn take_restarted(&mut self) -> bool {
        core::mem::take(&mut self.is_restarted)
    }

    /// When it ends.
    pub fn expires(&self) -> Ns {
        Ns(u64::from(self.expires) << UNIT_BITS)
    }

    /// Decides about a segment (RFC 9293, section 3.10.7.4; RFC 6191, section 2; RFC 1337, section 3).
    pub fn receive(&self, header: &Header, payload: &[u8]) -> Verdict {
        if header.is(Flags::RST) {
            return Verdict::Ignore;
        }
        if header.is(Flags::SYN) {
            let is_new = !header.is(Flags::ACK) && self.is_reusable(header);
            return if is_new { Verdict::Reuse } else { Verdict::Acknowledge };
        }
        let end = header.seq + header.length(payload);
        if header.is(Flags::FIN) && end == self.receive_nxt {
            return Verdict::Restart;
        }
        let is_expected = header.seq == self.receive_nxt && header.length(payload) == 0;
        if is_expected { Verdict::Ignore } else { Verdict::Acknowledge }
    }

    /// Whether a SYN cannot be an old one: its timestamp or its number is newer than all of the connection.
    fn is_reusable(&self, header: &Header) -> bool {
        match (self.timestamp, header.options.timestamps) {
            (Some(old), Some(new)) if new.value != old => Seq(new.value).is_after(Seq(old)),
            _ => header.seq.is_after(self.receive_nxt),
        }
    }

    /// The acknowledgement of what is expected.
    pub fn acknowledgement(&self, offset: u32, now: Ns) -> Bare {
        let value = timestamp(now, offset);
        let timestamps = self.timestamp.map(|echo| Timestamps { value, echo });
        let options = OutgoingOptions { timestamps, ..OutgoingOptions::default() };
        Bare {
            tuple: self.tuple,
            seq: self.nxt,
            ack: self.receive_nxt,
            flags: Flags::ACK,
            window: 0,
            options,
        }
    }
}
