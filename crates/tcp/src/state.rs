//! The states of a connection (RFC 9293, section 3.3.2).

use core::fmt;

/// A connection's state.
///
/// ```text
/// SynSent -> SynReceived -> Established -> FinWait1 -> FinWait2 -> TimeWait
///    \_________________________^   \          \-> Closing ----------^
///                                   \-> CloseWait -> LastAck -> Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was received, and answered.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// This end has no more data and waits for the acknowledgement of its FIN.
    FinWait1,
    /// The FIN was acknowledged; the other end may still send.
    FinWait2,
    /// The other end has no more data.
    CloseWait,
    /// Both ends sent a FIN at the same time; ours is not acknowledged.
    Closing,
    /// The other end closed first; our FIN is not acknowledged.
    LastAck,
    /// Both ends are done; late segments are still answered.
    TimeWait,
    /// Over.
    Closed,
}

impl State {
    /// Whether the handshake is over and the connection is not.
    pub fn is_synchronised(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether the other end may send data.
    pub fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether data that was written may have to be sent.
    pub fn may_send(self) -> bool {
        use State::{CloseWait, Closing, Established, FinWait1, LastAck};
        matches!(self, Established | CloseWait | FinWait1 | Closing | LastAck)
    }
}

impl fmt::Display for State {
    /// As `ss` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECV",
            State::Established => "ESTAB",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
            State::Closed => "CLOSED",
        })
    }
}
