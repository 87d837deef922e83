//! All connections of one worker, and the calls on them.

mod listeners;
mod opening;
mod segments;
mod settle;
mod timeouts;
mod user;
mod view;

use crate::address::{Address, Tuple};
use crate::buffer::Pool;
use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::counters::Counters;
use crate::event::{Event, Ready};
use crate::flows::{Flows, Target};
use crate::half_open::HalfOpen;
use crate::id::{ConnectionId, ListenerId};
use crate::output::Output;
use crate::secret::Secret;
use crate::slab::Slab;
use crate::time_wait::TimeWait;
use crate::wheel::Wheel;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddr;
use heddle_core::Ns;

pub use user::Shutdown;
pub use view::Progress;

/// A report of ICMP about a segment that was sent (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// A packet did not fit: ICMPv4 "fragmentation needed" (RFC 1191), ICMPv6 "packet too big" (RFC 8201).
    PacketTooBig {
        /// The largest packet that fits, IP header included.
        mtu: u16,
    },
    /// The other end cannot be reached.
    Unreachable {
        /// A hard error: protocol or port unreachable, administratively prohibited. It ends connections whose handshake
        /// is not over, no others (RFC 5927, section 4.2).
        is_hard: bool,
    },
}

/// A listener.
#[derive(Debug)]
struct Listener {
    local: SocketAddr,
    backlog: usize,
    /// Connections to be accepted.
    ready: VecDeque<ConnectionId>,
    /// It is in the list of events.
    has_event: bool,
}

/// What the list of events names; it is turned into an event when it is polled.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Listener(u32),
    Connection(ConnectionId),
}

/// How many answers to segments of no connection were given in this second.
#[derive(Debug, Default)]
struct Budget {
    second: u64,
    used: u32,
}

impl Budget {
    /// Whether one more may be given.
    fn take(&mut self, now: Ns, limit: u32) -> bool {
        let second = now.0 / 1_000_000_000;
        if self.second != second {
            (self.second, self.used) = (second, 0);
        }
        let has_room = self.used < limit;
        self.used += u32::from(has_room);
        has_room
    }
}

/// A TCP of its own: flow table, timers, buffers, listeners and connections.
///
/// It is single-threaded and knows neither sockets nor clocks: segments come in by [`receive`](Self::receive), leave by
/// an [`Output`], and each call is given the time, which must not run backwards. After any call,
/// [`poll_event`](Self::poll_event) says what changed, and [`next_deadline`](Self::next_deadline) when
/// [`advance`](Self::advance) must be called.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    secret: Secret,
    counters: Counters,
    pool: Pool,
    flows: Flows,
    connections: Slab<Connection>,
    half_open: Slab<HalfOpen>,
    time_waits: Slab<TimeWait>,
    /// Records of TIME_WAIT in the order in which they end, by index and generation.
    time_wait_order: VecDeque<(u32, u32)>,
    listeners: Slab<Listener>,
    listening: BTreeMap<(u16, [u32; 4]), u32>,
    timers: Wheel,
    half_open_timers: Wheel,
    events: VecDeque<Pending>,
    /// Connections whose output was refused.
    blocked: VecDeque<u32>,
    /// Connections whose writers wait until the pool has room.
    starved: VecDeque<ConnectionId>,
    resets: Budget,
    answers: Budget,
    gathers: bool,
}

impl Stack {
    /// Makes a stack without connections. Settings out of their range are brought into it. `secret` must be random: an
    /// attacker who knows it can guess sequence numbers.
    pub fn new(config: Config, secret: Secret) -> Stack {
        let config = config.clamped();
        Stack {
            pool: Pool::new(config.max_buffered),
            config,
            secret,
            counters: Counters::default(),
            flows: Flows::new(),
            connections: Slab::new(),
            half_open: Slab::new(),
            time_waits: Slab::new(),
            time_wait_order: VecDeque::new(),
            listeners: Slab::new(),
            listening: BTreeMap::new(),
            timers: Wheel::new(),
            half_open_timers: Wheel::new(),
            events: VecDeque::new(),
            blocked: VecDeque::new(),
            starved: VecDeque::new(),
            resets: Budget::default(),
            answers: Budget::default(),
            gathers: false,
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What happened since the stack was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns a change that was not reported yet. Each connection and listener is in the list at most once, with all
    /// that happened to it. Connections that were not accepted yet are not reported.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(pending) = self.events.pop_front() {
            let event = match pending {
                Pending::Listener(index) => self.listener_event(index),
                Pending::Connection(id) => self.connection_event(id),
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Whether [`poll_event`](Self::poll_event) has something to report.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn listener_event(&mut self, index: u32) -> Option<Event> {
        let generation = self.listeners.generation(index);
        let listener = self.listeners.get_mut(index)?;
        listener.has_event = false;
        Some(Event::Accept(ListenerId { index, generation }))
    }

    fn connection_event(&mut self, id: ConnectionId) -> Option<Event> {
        let connection =
            self.connections.get_mut(id.index).filter(|connection| connection.id == id)?;
        connection.has_event = false;
        let events = core::mem::take(&mut connection.events);
        (connection.is_attached && events != 0).then_some(Event::Connection(id, Ready(events)))
    }

    /// Runs `f` on the connection `index`, and takes care of what changed.
    #[inline]
    fn with<R>(
        &mut self,
        index: u32,
        now: Ns,
        f: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let connection = self.connections.get_mut(index)?;
        let Stack { config, pool, counters, gathers, .. } = self;
        let gathers = *gathers;
        let result = f(connection, &mut Context { now, config, pool, counters, gathers });
        self.settle(index, now);
        Some(result)
    }

    /// While this is set, more data than a segment waits for [`flush`](Self::flush): what several acknowledgements let
    /// go can then leave as one. It is for the time of a batch of segments, after which the caller unsets it and
    /// flushes.
    pub fn set_gathering(&mut self, is_gathering: bool) {
        self.gathers = is_gathering;
    }

    /// Sends what an [`Output`] had refused. Stops at the first refusal.
    pub fn flush(&mut self, now: Ns, out: &mut impl Output) {
        for _ in 0..self.blocked.len() {
            let Some(index) = self.blocked.pop_front() else { break };
            let Some(connection) = self.connections.get_mut(index) else { continue };
            (connection.is_queued, connection.is_blocked) = (false, false);
            self.with(index, now, |connection, cx| connection.resume(cx, out));
            if self.connections.get(index).is_some_and(|connection| connection.is_blocked) {
                break;
            }
        }
    }

    /// Whether an [`Output`] refused something that is still to be sent, or something was gathered.
    pub fn needs_flush(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn find(&self, hash: u32, tuple: &Tuple) -> Option<Target> {
        self.flows.find(hash, |target| match target {
            Target::Connection(index) => {
                self.connections.get(index).is_some_and(|c| c.tuple == *tuple)
            }
            Target::HalfOpen(index) => self.half_open.get(index).is_some_and(|h| h.tuple == *tuple),
            Target::TimeWait(index) => {
                self.time_waits.get(index).is_some_and(|t| t.tuple == *tuple)
            }
        })
    }
}

/// The key of a listener's address.
fn listening_key(port: u16, address: Address) -> (u16, [u32; 4]) {
    (port, address.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Congestion;
    use crate::output::{Flow, Output};
    use crate::slab::Slot;
    use alloc::vec;
    use alloc::vec::Vec;

    const MTU: u16 = 1500;

    /// Segments on their way.
    #[derive(Default)]
    struct Wire(Vec<(Flow, Vec<u8>)>);

    impl Output for Wire {
        fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
            let mut bytes = vec![0; length];
            write(&mut bytes);
            self.0.push((flow, bytes));
            true
        }
    }

    impl Wire {
        fn deliver(&mut self, to: &mut Stack, now: Ns, out: &mut Wire) {
            for (flow, bytes) in self.0.drain(..) {
                to.receive(now, flow.local.ip(), flow.remote.ip(), &bytes, MTU, out);
            }
        }
    }

    #[test]
    fn what_an_exchange_needed_is_given_back() {
        Congestion::ALL.into_iter().for_each(exchange);
    }

    fn exchange(congestion: Congestion) {
        let config = Config { congestion, ..Config::default() };
        let stack = |key| Stack::new(config.clone(), Secret::new([key; 64]));
        let (mut client, mut server, now) = (stack(1), stack(2), Ns::from_secs(1));
        let (mut there, mut back, mut buf) = (Wire::default(), Wire::default(), [0; 8]);
        let addr = |host, port| SocketAddr::from(([192, 0, 2, host], port));
        let listener = server.listen(addr(1, 80), 1).unwrap();
        let asks = client.connect(now, addr(2, 10_000), addr(1, 80), MTU, &mut there).unwrap();
        for _ in 0..2 {
            there.deliver(&mut server, now, &mut back);
            back.deliver(&mut client, now, &mut there);
        }
        let answers = server.accept(listener, now).unwrap();
        client.write(now, asks, b"request", &mut there).unwrap();
        there.deliver(&mut server, now, &mut back);
        assert_eq!(server.read(now, answers, &mut buf, &mut back), Ok(7));
        server.write(now, answers, &buf[..7], &mut back).unwrap();
        back.deliver(&mut client, now, &mut there);
        assert_eq!(client.read(now, asks, &mut buf, &mut there), Ok(7));
        let has_memory = |stack: &Stack, id: ConnectionId| {
            let connection = stack.connections.get(id.index).unwrap();
            (connection.send.board.has_memory(), connection.rare.known().is_some())
        };
        assert_eq!(has_memory(&server, answers), (true, false), "its answer is in flight");
        let congestion = &server.connections.get(answers.index).unwrap().send.congestion;
        assert!(congestion.known_model().is_none(), "an exchange needs no model of the path");
        let later = now + Ns::from_secs(1);
        client.advance(later, &mut there);
        there.deliver(&mut server, later, &mut back);
        server.advance(later, &mut back);
        assert_eq!(has_memory(&client, asks), (false, false));
        assert_eq!(has_memory(&server, answers), (false, false));
    }

    #[test]
    fn an_idle_connection_and_the_records_are_small() {
        let table = Flows::ENTRY;
        let connection = size_of::<Slot<Connection>>() + Wheel::ENTRY + table;
        assert!(connection <= 332, "{connection} bytes for an idle connection");
        let half_open = size_of::<Slot<HalfOpen>>() + Wheel::ENTRY + table;
        assert!(half_open <= 144, "{half_open} bytes for a half-open connection");
        assert!(
            size_of::<Slot<TimeWait>>() <= 64,
            "{} bytes in TIME_WAIT",
            size_of::<Slot<TimeWait>>()
        );
    }
}
