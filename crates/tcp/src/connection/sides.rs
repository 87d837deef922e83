//! The two directions of a connection (RFC 9293, section 3.3.1).

use super::{Context, segment};
use crate::buffer::{Chain, Cursor};
use crate::congestion::Window;
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::seq::Seq;

/// Whether our FIN was asked for, and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fin {
    None,
    Queued,
    Sent,
}

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckDue {
    None,
    /// It may wait for data to go with.
    Delayed,
    Now,
}

/// The sending side.
#[derive(Debug)]
pub struct Sender {
    /// The first number not acknowledged, which is that of the first byte in `buffer`.
    pub una: Seq,
    /// The next number to be sent.
    pub nxt: Seq,
    /// The other end's window in bytes, and the largest it ever was.
    pub window: u32,
    pub max_window: u32,
    /// The segment that the window is from: its number and acknowledgement.
    pub wl: (Seq, Seq),
    /// Payload of the largest segment.
    pub mss: u16,
    pub shift: u8,
    pub fin: Fin,
    pub buffer: Chain,
    /// Where the buffer was read last.
    pub cursor: Cursor,
    pub board: Scoreboard,
    pub rtt: Rtt,
    pub congestion: Window,
    /// The window, not the application, limited what was sent.
    pub is_cwnd_limited: bool,
    /// The pacer holds back what the windows would let go.
    pub is_held: bool,
    /// The application met a full buffer.
    pub wants_room: bool,
    pub nodelay: bool,
    /// The end of the last small segment.
    pub small: Seq,
}

/// The receiving side.
#[derive(Debug)]
pub struct Receiver {
    /// The next number expected.
    pub nxt: Seq,
    /// The end of the window offered.
    pub edge: Seq,
    /// What the last segment sent acknowledged.
    pub acked: Seq,
    pub shift: u8,
    pub ack: AckDue,
    /// All up to the FIN was received.
    pub is_finished: bool,
    /// Both ends scale their windows.
    pub has_scale: bool,
    /// The largest payload received: half of what is acknowledged at once.
    pub largest: u16,
    /// The application wants no more data.
    pub is_shut: bool,
    /// Acknowledgements that are not to be delayed: the other end begins, or recovers from loss. After a loss those of
    /// small segments count as well.
    pub quick: u8,
    pub is_quick_small: bool,
    pub buffer: Chain,
    /// Both ends use timestamps. The other end's latest (`TS.Recent`), and the second in which it came.
    pub has_timestamps: bool,
    pub recent: u32,
    pub recent_second: u32,
}

impl Sender {
    pub fn new(iss: Seq, mss: u16, cx: &Context<'_>) -> Sender {
        Sender {
            una: iss,
            nxt: iss,
            window: 0,
            max_window: 0,
            wl: (iss, iss),
            mss,
            shift: 0,
            fin: Fin::None,
            buffer: Chain::new(),
            cursor: Cursor::default(),
            board: Scoreboard::new(),
            rtt: Rtt::new(),
            congestion: Window::new(cx.config.congestion, u32::from(mss), cx.config.initial_window),
            is_cwnd_limited: false,
            is_held: false,
            wants_room: false,
            nodelay: !cx.config.nagle,
            small: iss,
        }
    }
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver {
            nxt: Seq(0),
            edge: Seq(0),
            acked: Seq(0),
            shift: 0,
            ack: AckDue::None,
            is_finished: false,
            has_scale: false,
            largest: 536,
            is_shut: false,
            quick: segment::QUICK_ACKS,
            is_quick_small: false,
            buffer: Chain::new(),
            has_timestamps: false,
            recent: 0,
            recent_second: 0,
        }
    }
}
