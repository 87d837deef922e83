//! The stack from outside.

use super::Stack;
use crate::address::Tuple;
use crate::connection::Connection;
use crate::error::Error;
use crate::half_open::HalfOpen;
use crate::id::{ConnectionId, ListenerId};
use crate::info::{Info, ListenerInfo};
use crate::state::State;
use crate::time_wait::TimeWait;
use core::net::SocketAddr;
use heddle_core::Ns;

/// How far [`Stack::next_connections`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    table: Table,
    slot: usize,
}

/// Where connections are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Table {
    #[default]
    Connections,
    HalfOpen,
    TimeWaits,
    /// All were seen.
    End,
}

impl Stack {
    /// The state of one connection.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn info(&self, id: ConnectionId) -> Result<Info, Error> {
        let connection = self.connections.get(id.index).filter(|connection| connection.id == id);
        connection.map(|connection| self.describe(connection)).ok_or(Error::Stale)
    }

    /// All connections: those that were closed and are not over, half-open ones and those in TIME_WAIT included.
    pub fn connections(&self) -> impl Iterator<Item = Info> {
        let full = self.connections.iter().map(|(_, connection)| self.describe(connection));
        let half = self.half_open.iter().map(|(_, half)| half.into());
        let old = self.time_waits.iter().map(|(_, record)| record.into());
        full.chain(half).chain(old)
    }

    /// Passes the connections in the next `slots` places to `each`: [`Stack::connections`] in steps of bounded length,
    /// between which the stack may change. Returns false if these were the last.
    ///
    /// A connection that exists all the time is passed once. One that is closed meanwhile may be passed again, in
    /// TIME_WAIT.
    pub fn next_connections(
        &self,
        progress: &mut Progress,
        slots: usize,
        mut each: impl FnMut(Info),
    ) -> bool {
        let first = progress.slot;
        let (next, more) = match progress.table {
            Table::Connections => {
                let (part, more) = self.connections.part(first, slots);
                part.for_each(|connection| each(self.describe(connection)));
                (Table::HalfOpen, more)
            }
            Table::HalfOpen => {
                let (part, more) = self.half_open.part(first, slots);
                part.for_each(|half| each(half.into()));
                (Table::TimeWaits, more)
            }
            Table::TimeWaits => {
                let (part, more) = self.time_waits.part(first, slots);
                part.for_each(|record| each(record.into()));
                (Table::End, more)
            }
            Table::End => return false,
        };
        match more {
            true => progress.slot += slots,
            false => *progress = Progress { table: next, slot: 0 },
        }
        progress.table != Table::End
    }

    /// Whether segments from `remote` to `local` belong to a connection, a half-open one or one in TIME_WAIT. A segment
    /// of no flow and no listener is answered by a reset, so a caller with several stacks may want to ask first.
    pub fn has_flow(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let tuple = Tuple::new(local, remote);
        self.find(self.secret.flow(&tuple), &tuple).is_some()
    }

    /// Whether a listener takes connections to `local`.
    pub fn has_listener(&self, local: SocketAddr) -> bool {
        self.listener_for(&Tuple::new(local, local)).is_some()
    }

    /// All listeners.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerInfo> {
        self.listeners.iter().map(|(index, listener)| ListenerInfo {
            id: ListenerId { index, generation: self.listeners.generation(index) },
            local: listener.local,
            ready: listener.ready.len(),
            backlog: listener.backlog,
        })
    }

    /// How many connections there are, half-open ones and those in TIME_WAIT not included.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// How many connections are half open.
    pub fn half_open_count(&self) -> usize {
        self.half_open.len()
    }

    /// How many are in TIME_WAIT.
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Bytes of blocks in use by all buffers.
    pub fn buffered_bytes(&self) -> usize {
        self.pool.used_bytes()
    }

    fn describe(&self, connection: &Connection) -> Info {
        let (send, receive) = (&connection.send, &connection.receive);
        let min_rtt = Some(send.rtt.min()).filter(|&min| min != Ns::MAX);
        Info {
            id: Some(connection.id),
            receive_queue: receive.buffer.len(),
            out_of_order: connection.rare.reassembly.bytes(),
            send_queue: send.buffer.len(),
            unsent: connection.unsent(),
            unacked: send.board.len(),
            retransmits: connection.rare.retransmits,
            backoff: connection.timers.backoff,
            srtt: send.rtt.smoothed().unwrap_or(Ns::ZERO),
            rttvar: send.rtt.variation(),
            min_rtt: min_rtt.unwrap_or(Ns::ZERO),
            rto: send.rtt.timeout(self.config.rto_min, self.config.rto_max),
            cwnd: send.congestion.cwnd,
            ssthresh: send.congestion.ssthresh,
            mss: send.mss,
            send_window: send.window,
            bytes_received: connection.bytes.0,
            bytes_sent: connection.bytes.1,
            sack: connection.has_sack(),
            timestamps: connection.has_timestamps(),
            ..Info::of_record(
                connection.tuple.local_addr(),
                connection.tuple.remote_addr(),
                connection.state,
            )
        }
    }
}

impl From<&HalfOpen> for Info {
    fn from(half: &HalfOpen) -> Info {
        let (local, remote) = (half.tuple.local_addr(), half.tuple.remote_addr());
        Info { mss: half.mss, ..Info::of_record(local, remote, State::SynReceived) }
    }
}

impl From<&TimeWait> for Info {
    fn from(record: &TimeWait) -> Info {
        let (local, remote) = (record.tuple.local_addr(), record.tuple.remote_addr());
        Info::of_record(local, remote, State::TimeWait)
    }
}
