//! Listening and connecting by way of lanes.

use crate::control::{Resolution, Route};
use crate::lane::{Accepted, Called, Token, Woken};
use crate::net::Net;
use crate::retired::Entry;
use crate::steering::Protocol;
use crate::tcp::TcpListener;
use heddle_core::Ns;
use heddle_tcp::{ConnectError, ConnectionId, ListenerId};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A listener in all lanes.
#[derive(Debug)]
pub struct Listening {
    listener: Arc<TcpListener>,
    /// In each lane.
    ids: Box<[ListenerId]>,
}

impl Listening {
    /// Returns the listener.
    #[must_use]
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

/// How a connection to an address would be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// By the kernel: the address is not behind the interface of the lanes.
    Kernel,
    /// By a lane, from this address.
    Lane {
        /// The source address.
        source: IpAddr,
        /// The longest packet in bytes.
        mtu: u16,
        /// The neighbour's Ethernet address is known; otherwise it was asked for.
        is_resolved: bool,
    },
}

/// How many entries are looked at when one is added.
const LOOKS: usize = 4;

impl Net {
    /// Makes the lanes accept connections to `local`, which the kernel's socket is bound to but does not listen on yet:
    /// what the kernel would accept from here on would meet lanes with its next segments. Readiness is reported with
    /// `token`. The caller holds preemption off.
    ///
    /// # Errors
    /// The kernel's, or that another claim has the address.
    pub fn listen(
        &self,
        now: Ns,
        local: SocketAddr,
        backlog: usize,
        token: Token,
    ) -> io::Result<Listening> {
        let address = SocketAddr::new(local.ip().to_canonical(), local.port());
        let listener = Arc::new(TcpListener::new(address, self.lanes.len(), token));
        let mut ids = Vec::new();
        for lane in &self.lanes {
            match lane.listen(&listener, backlog) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.forget(&ids, now);
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, error));
                }
            }
        }
        if let Err(error) = self.claim(Protocol::Tcp, local, &[]) {
            self.forget(&ids, now);
            return Err(error);
        }
        Ok(Listening { listener, ids: ids.into() })
    }

    /// Makes the claim of `local` last as long as the kernel's `socket` listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn prove(&self, local: SocketAddr, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.claim(Protocol::Tcp, local, &[socket])
    }

    /// Undoes [`Net::listen`] for the socket bound to `local`, before it is closed. Connections that were accepted go
    /// on. The caller holds preemption off.
    pub fn stop_listening(&self, now: Ns, local: SocketAddr, listening: &Listening) {
        self.forget(&listening.ids, now);
        self.keep_connections(local.port());
        self.release(Protocol::Tcp, local);
    }

    /// Gives the connections of a port entries of their own: without a claim, their segments would go to the kernel,
    /// which resets them.
    fn keep_connections(&self, port: u16) {
        for (number, lane) in self.lanes.iter().enumerate() {
            let connections = lane.connections();
            for of_port in connections.iter().filter(|info| info.local.port() == port) {
                let (local, remote) = (of_port.local, of_port.remote);
                // Refused if there are too many: the connection is then reset.
                if self.steering.add_outgoing(local, remote, number as u32).is_ok() {
                    self.retire(Entry { local, remote, lane: number, _port: None });
                }
            }
        }
    }

    fn forget(&self, ids: &[ListenerId], now: Ns) {
        self.lanes.iter().zip(ids).for_each(|(lane, id)| lane.close_listener(now, *id));
    }

    /// Accepts a connection from any lane, first from lane `own`. Returns it with its lane. The caller holds preemption
    /// off.
    pub fn accept(&self, now: Ns, listening: &Listening, own: usize) -> Option<(usize, Accepted)> {
        let count = self.lanes.len();
        let order = (0..count).map(|at| (own + at) % count);
        let mut pending = order.filter(|lane| listening.listener.is_pending(*lane));
        pending.find_map(|lane| {
            let accepted = self.lanes[lane].accept(now, listening.ids[lane])?;
            Some((lane, accepted))
        })
    }

    /// Returns how a connection to `remote` would be made.
    #[must_use]
    pub fn plan(&self, remote: IpAddr) -> Plan {
        let snapshot = self.control().snapshot();
        let remote = remote.to_canonical();
        let Route::Interface { next_hop, source, mtu } = snapshot.next_hop(remote) else {
            return Plan::Kernel;
        };
        let is_resolved = matches!(snapshot.resolution(next_hop), Resolution::Resolved(_));
        if !is_resolved {
            self.control().resolve(next_hop);
        }
        Plan::Lane { source, mtu: u16::try_from(mtu).unwrap_or(u16::MAX), is_resolved }
    }

    /// Begins to connect `local`, which a socket of the kernel is bound to, to `remote` by way of `lane`. The caller
    /// holds preemption off.
    ///
    /// # Errors
    /// That there are too many connections, or the kernel's.
    pub fn connect(
        &self,
        now: Ns,
        lane: usize,
        local: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
    ) -> io::Result<Called<ConnectionId>> {
        self.release_forgotten();
        self.steering.add_outgoing(local, remote, lane as u32)?;
        let called = self.lanes[lane].connect(now, local, remote, mtu);
        match called.result {
            Ok(id) => Ok(Called { result: id, is_earlier: called.is_earlier }),
            Err(error) => {
                let _ = self.steering.remove_outgoing(local, remote);
                Err(refusal(error))
            }
        }
    }

    /// Keeps the port of an outgoing connection of `lane` that was closed, until the lane has forgotten the connection.
    /// The caller holds preemption off.
    pub fn retire_outgoing(
        &self,
        lane: usize,
        (local, remote): (SocketAddr, SocketAddr),
        port: OwnedFd,
    ) {
        self.retire(Entry { local, remote, lane, _port: Some(port) });
    }

    fn retire(&self, entry: Entry) {
        self.retired.lock().push_back(entry);
        self.release_forgotten();
    }

    /// Takes back entries of connections that their lanes have forgotten.
    fn release_forgotten(&self) {
        let mut entries = self.retired.lock();
        for _ in 0..LOOKS.min(entries.len()) {
            let Some(entry) = entries.pop_front() else { break };
            if self.lanes[entry.lane].has_flow(entry.local, entry.remote) {
                entries.push_back(entry);
            } else {
                // Fails only if it is gone already.
                let _ = self.steering.remove_outgoing(entry.local, entry.remote);
            }
        }
    }
}

/// Segments of connections that the program at XDP has placed wrongly.
impl Net {
    /// Polls lane `number` ([`crate::lane::Lane::poll`]), and gives segments that belong to other lanes to these. The
    /// caller holds preemption off.
    pub fn poll(&self, number: usize, now: Ns, woken: &mut Woken) -> usize {
        let lane = &self.lanes[number];
        let frames = lane.poll(now, woken);
        if lane.has_strays() {
            lane.take_strays().iter().for_each(|frame| self.place(number, now, frame));
        }
        frames
    }

    /// Gives a segment that came to lane `wrong` to the lane that has its connection, and has the program remember it.
    /// If no lane has it, `wrong` answers.
    fn place(&self, wrong: usize, now: Ns, frame: &[u8]) {
        let others = (0..self.lanes.len()).filter(|number| *number != wrong);
        let placed = others.into_iter().find_map(|number| {
            let ends = self.lanes[number].take_stray(now, frame, false)?;
            Some((number, ends))
        });
        match placed {
            // If it is not remembered, the next segment comes here again.
            Some((number, (local, remote))) => {
                let _ = self.steering.record_flow(local, remote, number as u32);
            }
            None => drop(self.lanes[wrong].take_stray(now, frame, true)),
        }
    }
}

fn refusal(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::AddressInUse => io::ErrorKind::AddrInUse,
        ConnectError::InvalidAddress => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::OutOfMemory,
    };
    io::Error::new(kind, error)
}
