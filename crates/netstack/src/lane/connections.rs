//! The TCP connections of a lane: the stack, and what the lane knows of each connection beside it.

use super::{Accepted, Counters, Ready, Token, Woken};
use crate::control::Mac;
use crate::packet::{Path, TCP};
use crate::paths::{Paths, Way};
use crate::tcp::TcpListener;
use crate::wire::{Segmentation, Transmit};
use heddle_core::Ns;
use heddle_tcp::{ConnectionId, Cut, Event, Flow, ListenError, ListenerId, Output, Stack};
use std::collections::HashMap;
use std::sync::Arc;

/// The stack of a lane and its users.
pub(super) struct Connections {
    lane: usize,
    pub(super) stack: Stack,
    listeners: Vec<Option<Arc<TcpListener>>>,
    /// By index of the connection.
    known: Vec<Entry>,
    /// By index of the connection: further tokens of those that have several handles. A token whose handle is gone
    /// reports to none.
    more: HashMap<usize, Vec<Token>>,
}

/// What a lane knows of a connection.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Who waits for it: 0 if no task does, else a token plus 1.
    token: u64,
    /// The neighbour by way of which its segments go, as of `generation`.
    to: Mac,
    /// The batch of its last large segment: what follows that must not overtake it.
    batch: u16,
    /// The number of the kernel's snapshot, plus 1; 0 if there was none yet.
    generation: u64,
}

/// Sends the segments of a lane's stack.
pub(super) struct Segments<'a, T> {
    transmit: &'a mut T,
    paths: &'a mut Paths,
    known: &'a mut Vec<Entry>,
    counters: &'a mut Counters,
    /// The neighbour that has just sent a packet: answers may go to it while the kernel does not know a better one.
    from: Option<Mac>,
}

impl<T: Transmit> Segments<'_, T> {
    /// Returns the neighbour to send a segment to; `None` if there is none yet.
    fn neighbour(&mut self, flow: &Flow) -> Option<Mac> {
        let Some(id) = flow.connection else { return self.look_up(flow) };
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, Entry::default());
        }
        // Fetches a new snapshot if there is one.
        self.paths.snapshot();
        let generation = self.paths.generation() + 1;
        let known = self.known[id.index()];
        if known.generation == generation {
            return Some(known.to);
        }
        let to = self.look_up(flow).or((known.generation != 0).then_some(known.to))?;
        self.known[id.index()] = Entry { to, generation, ..known };
        Some(to)
    }

    fn look_up(&mut self, flow: &Flow) -> Option<Mac> {
        match self.paths.find(flow.local.ip(), flow.remote.ip()) {
            Way::Lane { path, .. } => Some(path.to),
            Way::Unknown { .. } => self.from,
            Way::Kernel => None,
        }
    }

    /// Returns the path of a segment to `to`.
    fn path(&self, flow: &Flow, to: Mac) -> Path {
        let (source, destination) = (flow.local.ip(), flow.remote.ip());
        Path { from: self.paths.mac(), to, source, destination }
    }

    /// Returns whether a large segment of the connection waits to be sent.
    #[inline]
    fn is_behind(&self, flow: &Flow) -> bool {
        let Some(batch) = self.transmit.batch() else { return false };
        flow.connection.is_some_and(|id| self.known[id.index()].batch == batch)
    }
}

impl<T: Transmit> Output for Segments<'_, T> {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(to) = self.neighbour(&flow) else {
            // As if it were lost on the way: it is sent again, when the neighbour may be known.
            self.counters.tcp_unroutable += 1;
            return true;
        };
        let path = self.path(&flow, to);
        let write = |frame: &mut [u8]| write(path.write(frame, TCP));
        let sent = if self.is_behind(&flow) {
            self.transmit.send_behind(path.frame(length), write)
        } else {
            self.transmit.send_with(path.frame(length), write)
        };
        self.counters.tcp_sent += u64::from(sent);
        sent
    }

    fn largest(&mut self, flow: &Flow) -> usize {
        let room = self.transmit.largest();
        // Without a neighbour segments are lost, one by one.
        match if room > 0 { self.neighbour(flow) } else { None } {
            Some(to) => room.saturating_sub(self.path(flow, to).headers()),
            None => 0,
        }
    }

    fn send_large(
        &mut self,
        flow: Flow,
        length: usize,
        cut: Cut,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(to) = self.neighbour(&flow) else { return false };
        let path = self.path(&flow, to);
        let how = Segmentation {
            is_v6: path.destination.is_ipv6(),
            before: path.headers() as u16,
            header: cut.header,
            payload: cut.payload,
        };
        let write = |frame: &mut [u8]| write(path.write(frame, TCP));
        let sent = self.transmit.send_large(how, path.frame(length), write);
        if sent {
            self.counters.tcp_large += 1;
            self.counters.tcp_sent += cut.pieces(length) as u64;
            if let (Some(id), Some(batch)) = (flow.connection, self.transmit.batch()) {
                self.known[id.index()].batch = batch;
            }
        }
        sent
    }
}

impl Connections {
    pub(super) fn new(lane: usize, stack: Stack) -> Connections {
        Connections { lane, stack, listeners: Vec::new(), known: Vec::new(), more: HashMap::new() }
    }

    /// Runs `f` on the stack, with its output. `from` is the neighbour that sent the packet that is answered.
    pub(super) fn with<T: Transmit, R>(
        &mut self,
        (transmit, paths, counters): (&mut T, &mut Paths, &mut Counters),
        from: Option<Mac>,
        f: impl FnOnce(&mut Stack, &mut Segments<'_, T>) -> R,
    ) -> R {
        let mut out = Segments { transmit, paths, known: &mut self.known, counters, from };
        f(&mut self.stack, &mut out)
    }

    /// Reports what has happened.
    pub(super) fn report(&mut self, woken: &mut Woken) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Accept(id) => {
                    if let Some(Some(listener)) = self.listeners.get(id.index()) {
                        listener.wake(self.lane, woken);
                    }
                }
                Event::Connection(id, ready) => self.report_to(id, ready, woken),
            }
        }
    }

    fn report_to(&self, id: ConnectionId, ready: heddle_tcp::Ready, woken: &mut Woken) {
        let token = self.known.get(id.index()).and_then(|known| known.token.checked_sub(1));
        let broken = ready.is_failed() || ready.is_closed();
        let write = ready.is_writable() || ready.is_connected();
        let ready = Ready { read: ready.is_readable(), write, broken };
        let more = self.more.get(&id.index()).into_iter().flatten().copied();
        token.map(Token).into_iter().chain(more).for_each(|token| woken.push(token, ready));
    }

    pub(super) fn listen(
        &mut self,
        listener: &Arc<TcpListener>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        let id = self.stack.listen(listener.local(), backlog)?;
        if self.listeners.len() <= id.index() {
            self.listeners.resize(id.index() + 1, None);
        }
        self.listeners[id.index()] = Some(Arc::clone(listener));
        Ok(id)
    }

    pub(super) fn forget_listener(&mut self, id: ListenerId) {
        self.listeners[id.index()] = None;
    }

    pub(super) fn accept(&mut self, now: Ns, id: ListenerId) -> Option<Accepted> {
        let Some(accepted) = self.stack.accept(id, now) else {
            if let Some(Some(listener)) = self.listeners.get(id.index()) {
                listener.set_pending(self.lane, false);
            }
            return None;
        };
        let info = self.stack.info(accepted).ok()?;
        Some(Accepted { id: accepted, local: info.local, remote: info.remote })
    }

    /// Adds a token to the connection's.
    pub(super) fn add_token(&mut self, id: ConnectionId, token: Token) {
        self.more.entry(id.index()).or_default().push(token);
    }

    /// Makes `token` the one that waits for the connection; `None` means no task.
    pub(super) fn set_token(&mut self, id: ConnectionId, token: Option<Token>) {
        if self.known.len() <= id.index() {
            self.known.resize(id.index() + 1, Entry::default());
        }
        self.known[id.index()].token = token.map_or(0, |token| token.0 + 1);
        if token.is_none() {
            self.more.remove(&id.index());
        }
    }
}
