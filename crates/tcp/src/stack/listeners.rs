//! Listeners and what they accept.

use super::{Listener, Pending, Stack, listening_key};
use crate::address::{Address, Tuple};
use crate::error::ListenError;
use crate::flows::Target;
use crate::id::{ConnectionId, ListenerId};
use crate::output::Output;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use heddle_core::Ns;

impl Stack {
    /// Listens on `local`. `0.0.0.0` takes connections to every IPv4 address, `::` to every address; a listener on the
    /// exact address comes first. At most `backlog` connections, at least 1, wait to be accepted.
    ///
    /// # Errors
    /// Another listener has the same address, or the port is 0.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        if local.port() == 0 {
            return Err(ListenError::NoPort);
        }
        let key = listening_key(local.port(), local.ip().into());
        if self.listening.contains_key(&key) {
            return Err(ListenError::AddressInUse);
        }
        let ready = VecDeque::new();
        let index = self.listeners.insert(Listener {
            local,
            backlog: backlog.max(1),
            ready,
            has_event: false,
        });
        self.listening.insert(key, index);
        Ok(ListenerId { index, generation: self.listeners.generation(index) })
    }

    /// Stops listening. Connections that were not accepted are reset, half-open ones forgotten. A stale id is ignored.
    pub fn close_listener(&mut self, id: ListenerId, now: Ns, out: &mut impl Output) {
        if self.listener_mut(id).is_none() {
            return;
        }
        let Some(listener) = self.listeners.remove(id.index) else { return };
        self.listening.remove(&listening_key(listener.local.port(), listener.local.ip().into()));
        for connection in listener.ready {
            self.with(connection.index, now, |connection, cx| {
                connection.is_in_backlog = false;
                connection.is_attached = false;
                connection.abort(cx, out);
            });
        }
        let is_its = |(index, half): (u32, &crate::half_open::HalfOpen)| {
            (half.listener == id.index).then_some(index)
        };
        let half_open: Vec<u32> = self.half_open.iter().filter_map(is_its).collect();
        half_open.into_iter().for_each(|index| self.forget_half_open(index));
    }

    pub(super) fn listener_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let is_current = self.listeners.generation(id.index) == id.generation;
        self.listeners.get_mut(id.index).filter(|_| is_current)
    }

    /// Returns the oldest connection that waits at the listener; `None` if there is none, or the id is stale. What
    /// can be read already is reported by an event after this.
    pub fn accept(&mut self, id: ListenerId, now: Ns) -> Option<ConnectionId> {
        let connection = self.listener_mut(id)?.ready.pop_front()?;
        self.with(connection.index, now, |connection, _| connection.is_in_backlog = false);
        Some(connection)
    }

    /// The listener for segments to the local end of `tuple`.
    pub(super) fn listener_for(&self, tuple: &Tuple) -> Option<u32> {
        let any_v4 = tuple.is_v4().then_some(Address::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        let any = Address::from(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let addresses = [Some(tuple.local), any_v4, Some(any)].into_iter().flatten();
        addresses
            .filter_map(|address| self.listening.get(&listening_key(tuple.local_port, address)))
            .next()
            .copied()
    }

    /// Whether the backlog of the listener is used up.
    pub(super) fn is_backlog_full(&self, listener: u32) -> bool {
        self.listeners.get(listener).is_none_or(|listener| listener.ready.len() >= listener.backlog)
    }

    /// Gives the listener a connection to be accepted.
    pub(super) fn push_ready(&mut self, index: u32, id: ConnectionId) {
        let Some(listener) = self.listeners.get_mut(index) else { return };
        listener.ready.push_back(id);
        if !core::mem::replace(&mut listener.has_event, true) {
            self.events.push_back(Pending::Listener(index));
        }
    }

    pub(super) fn forget_half_open(&mut self, index: u32) {
        self.half_open_timers.cancel(index);
        if let Some(half) = self.half_open.remove(index) {
            self.flows.remove(self.secret.flow(&half.tuple), Target::HalfOpen(index));
        }
    }
}
