//! A connection: what is sent, what is received, and the timers (RFC 9293, section 3.3.1).
//!
//! The files: `segment` takes segments in, `handshake` those of opening ends, `ack` what acknowledgements say,
//! `recovery` what is done about loss, `path` how large segments may be, `output` builds segments, `large` several at
//! once, `timers` says when, `sides` has the two directions, `rare` what few connections need, `user` is the
//! application's side.

mod ack;
mod handshake;
mod large;
mod model;
mod output;
mod path;
mod rare;
mod recovery;
mod segment;
mod sides;
mod timers;
mod user;

use crate::address::Tuple;
use crate::buffer::Pool;
use crate::checksum::Sum;
use crate::config::Config;
use crate::congestion::Window;
use crate::counters::Counters;
use crate::error::Error;
use crate::id::ConnectionId;
use crate::seq::Seq;
use crate::state::State;
use crate::wire::TIMESTAMPS;
use heddle_core::Ns;

pub use handshake::send_header;
pub use recovery::Phase;
pub use sides::{AckDue, Fin, Receiver, Sender};
pub use timers::Alarm;

/// What a connection needs of its stack.
pub struct Context<'a> {
    pub now: Ns,
    pub config: &'a Config,
    pub pool: &'a mut Pool,
    pub counters: &'a mut Counters,
    /// What acknowledgements let go waits for [`flush`](crate::Stack::flush).
    pub gathers: bool,
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// The first sequence numbers: ours and theirs.
    pub iss: Seq,
    pub irs: Seq,
    /// The other end's window, not scaled, and by how many bits later ones are shifted; by how many ours are.
    pub window: u16,
    pub send_shift: u8,
    pub receive_shift: u8,
    pub has_scale: bool,
    /// The other end's MSS option.
    pub mss: u16,
    pub sack: bool,
    /// The other end's last timestamp, if both use them.
    pub timestamp: Option<u32>,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub id: ConnectionId,
    pub state: State,
    /// Events not yet polled.
    pub events: u8,
    /// It is in the stack's list of events; of refused output.
    pub has_event: bool,
    pub is_queued: bool,
    /// It is in the list of writers that wait for memory.
    pub is_starved: bool,
    /// The output refused a segment, or what may be sent is gathered.
    pub is_blocked: bool,
    /// Segments lead to it.
    pub is_registered: bool,
    /// The application has its id.
    pub is_attached: bool,
    /// A listener's backlog counts it until it is accepted.
    pub is_in_backlog: bool,
    pub tuple: Tuple,
    /// The part of the checksum that never changes.
    addresses: u16,
    /// The MSS option that we send.
    own_mss: u16,
    timestamp_offset: u32,
    pub send: Sender,
    pub receive: Receiver,
    pub timers: timers::Timers,
    pub recovery: recovery::Recovery,
    pub rare: rare::Lazy,
    sack: bool,
    close_reset: bool,
    pub error: Option<Error>,
    pub bytes: (u64, u64),
}

/// The MSS where the other end says nothing (RFC 9293, section 3.7.1).
pub fn default_mss(tuple: &Tuple) -> u16 {
    if tuple.is_v4() { 536 } else { 1220 }
}

/// The smallest MSS that is believed.
pub const MIN_MSS: u16 = 88;

impl Connection {
    /// A connection whose handshake ended with `agreed`.
    pub fn established(
        id: ConnectionId,
        tuple: Tuple,
        agreed: &Agreed,
        mtu: u16,
        offset: u32,
        cx: &Context<'_>,
    ) -> Connection {
        let mut new = Connection::new(id, tuple, agreed.iss, mtu, offset, cx);
        new.agree(agreed, mtu, cx);
        new.state = State::Established;
        new
    }

    /// A connection before its SYN is sent.
    pub fn new(
        id: ConnectionId,
        tuple: Tuple,
        iss: Seq,
        mtu: u16,
        offset: u32,
        cx: &Context<'_>,
    ) -> Connection {
        let addresses = Sum::addresses(tuple.local.to_ip(), tuple.remote.to_ip());
        let own_mss = mtu.saturating_sub(tuple.header_length()).max(MIN_MSS);
        let mut rare = rare::Lazy::default();
        if cx.config.keep_alive.is_some() {
            rare.edit().keep_alive = cx.config.keep_alive;
        }
        Connection {
            id,
            state: State::Closed,
            events: 0,
            has_event: false,
            is_queued: false,
            is_starved: false,
            is_blocked: false,
            is_registered: false,
            is_attached: true,
            is_in_backlog: false,
            tuple,
            addresses: addresses.partial(),
            own_mss,
            timestamp_offset: offset,
            send: Sender::new(iss, own_mss, cx),
            receive: Receiver::new(),
            timers: timers::Timers::new(),
            recovery: recovery::Recovery::new(),
            rare,
            sack: false,
            close_reset: false,
            error: None,
            bytes: (0, 0),
        }
    }

    /// Takes over what both ends agreed on.
    fn agree(&mut self, agreed: &Agreed, mtu: u16, cx: &Context<'_>) {
        let own = mtu.saturating_sub(self.tuple.header_length());
        let options = if agreed.timestamp.is_some() { TIMESTAMPS as u16 } else { 0 };
        let mss = agreed.mss.min(own).max(MIN_MSS) - options;
        let (send, receive) = (&mut self.send, &mut self.receive);
        (send.una, send.nxt, send.small) = (agreed.iss + 1, agreed.iss + 1, agreed.iss + 1);
        send.window = u32::from(agreed.window);
        send.max_window = send.window;
        send.wl = (agreed.irs, send.una);
        (send.mss, send.shift) = (mss, agreed.send_shift);
        send.congestion =
            Window::new(cx.config.congestion, u32::from(mss), cx.config.initial_window);
        receive.nxt = agreed.irs + 1;
        (receive.acked, receive.shift) = (receive.nxt, agreed.receive_shift);
        receive.has_scale = agreed.has_scale;
        receive.edge = receive.nxt + cx.config.receive_buffer.min(u32::from(u16::MAX));
        receive.has_timestamps = agreed.timestamp.is_some();
        receive.note_timestamp(agreed.timestamp.unwrap_or(0), cx.now);
        self.sack = agreed.sack;
        self.timers.start(cx.now);
        self.heard(cx.now);
    }

    /// The clock of the timestamps: milliseconds (RFC 7323, section 5.4).
    fn timestamp(&self, now: Ns) -> u32 {
        timestamp(now, self.timestamp_offset)
    }

    /// Adds to the events to be polled.
    pub fn raise(&mut self, event: u8) {
        self.events |= event;
    }

    /// Whether SACK was agreed on.
    pub fn has_sack(&self) -> bool {
        self.sack
    }

    /// Whether timestamps were agreed on.
    pub fn has_timestamps(&self) -> bool {
        self.receive.has_timestamps
    }

    /// The other end's latest timestamp, for the record of TIME_WAIT.
    pub fn last_timestamp(&self) -> Option<u32> {
        self.receive.has_timestamps.then_some(self.receive.recent)
    }

    /// Bytes written and not sent. A FIN goes after all of them.
    pub fn unsent(&self) -> u32 {
        let in_flight = self.send.nxt - self.send.una;
        if self.send.fin == Fin::Sent {
            0
        } else {
            self.send.buffer.len().saturating_sub(in_flight)
        }
    }

    /// Checks what must hold after every step, in builds with assertions.
    pub fn check(&self, config: &Config) {
        let send = &self.send;
        debug_assert!(!send.una.is_after(send.nxt), "I2: snd_una <= snd_nxt");
        if self.state.is_synchronised() {
            debug_assert!(send.board.is_consistent(send.una, send.nxt), "I3: {:?}", send.board);
        }
        debug_assert!(send.buffer.len() <= config.send_buffer, "I5: the send buffer is bounded");
        debug_assert!(
            self.rare.reassembly.bytes() <= config.max_out_of_order,
            "I5: so is what is out of order"
        );
    }

    /// Ends the connection; `error` is what the application finds, if anything. What was received stays readable.
    pub fn end(&mut self, error: Option<Error>, cx: &mut Context<'_>) {
        self.state = State::Closed;
        self.release(cx);
        if error.is_some() {
            self.error = error;
            self.raise(crate::event::FAILED);
        }
        self.raise(crate::event::READABLE | crate::event::WRITABLE | crate::event::CLOSED);
    }

    /// Gives up all that only a living connection needs.
    fn release(&mut self, cx: &mut Context<'_>) {
        self.send.buffer.clear(cx.pool);
        self.send.board.clear();
        self.send.una = self.send.nxt;
        self.clear_reassembly(cx.pool);
        self.receive.ack = AckDue::None;
        self.stop_timers();
    }
}

/// The clock of timestamps with `offset`: milliseconds.
pub fn timestamp(now: Ns, offset: u32) -> u32 {
    ((now.0 / 1_000_000) as u32).wrapping_add(offset)
}
