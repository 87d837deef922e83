//! The clients of MariaDB: connections for point selects, open loop, and connections that aggregate, each one query
//! after the other. One thread does both and never waits.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use heddle_core::Ns;
use heddle_load::{Answer, Arrival, Transport};
use heddle_sys::clock;
use heddle_sys::epoll::{Epoll, Events, READ};

use super::connection::Connection;
use super::data::{self, DATABASE};

/// Connections reported per check; the next check reports the others.
const AT_ONCE: usize = 64;

/// The connections to one server.
pub(super) struct Clients {
    /// Those for selects, then those that aggregate.
    connections: Vec<Connection>,
    selects: usize,
    /// The select that a connection waits for, by its id.
    waiting: Vec<Option<u64>>,
    idle: VecDeque<usize>,
    aggregate: String,
    /// When aggregates were complete, by the system's clock.
    aggregated: Vec<Ns>,
    epoll: Epoll,
    events: Events,
    ready: VecDeque<usize>,
}

impl Clients {
    /// Opens connections; `aggregates` of them aggregate the first `rows` rows from [`Clients::begin`] on.
    ///
    /// # Errors
    /// Network errors; the server refuses.
    pub(super) fn connect(
        socket: &Path,
        (selects, aggregates): (usize, usize),
        rows: u64,
    ) -> io::Result<Clients> {
        let open = |_| Connection::open(socket, DATABASE);
        Ok(Clients {
            connections: (0..selects + aggregates).map(open).collect::<io::Result<_>>()?,
            selects,
            waiting: vec![None; selects],
            idle: (0..selects).collect(),
            aggregate: data::aggregate(rows),
            aggregated: Vec::new(),
            epoll: Epoll::new()?,
            events: Events::with_capacity(AT_ONCE),
            ready: VecDeque::new(),
        })
    }

    /// The kernel's ids of the threads that serve the connections that aggregate.
    ///
    /// # Errors
    /// The server's.
    pub(super) fn aggregating_threads(&mut self) -> io::Result<Vec<u32>> {
        let sql = "SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()";
        let missing = || io::Error::other("MariaDB does not say which thread serves a connection");
        let tid = |connection: &mut Connection| {
            let found = connection.query(sql)?.and_then(|tid| tid.parse().ok());
            found.ok_or_else(missing)
        };
        self.connections[self.selects..].iter_mut().map(tid).collect()
    }

    /// Starts the aggregates. From now on nothing waits.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        for (key, connection) in (0..).zip(&mut self.connections) {
            let descriptor = connection.make_prompt()?;
            self.epoll.watch(descriptor, key, READ, false)?;
        }
        let aggregates = &mut self.connections[self.selects..];
        aggregates.iter_mut().try_for_each(|connection| connection.send(&self.aggregate))
    }

    /// When aggregates were complete, by the system's clock.
    pub(super) fn aggregated(&self) -> &[Ns] {
        &self.aggregated
    }

    /// Takes what has arrived on a connection: the answer to a select, or nothing.
    fn take(&mut self, index: usize) -> io::Result<Option<Answer>> {
        let Some(outcome) = self.connections[index].receive()? else { return Ok(None) };
        if index < self.selects {
            let id = self.waiting[index].take();
            let id = id.ok_or_else(|| io::Error::other("MariaDB answered without a query"))?;
            self.idle.push_back(index);
            let ok = matches!(outcome, Ok(Some(_)));
            return Ok(Some(Answer { id, ok, service: None, at: None }));
        }
        outcome.map_err(io::Error::other)?;
        self.aggregated.push(clock::now());
        self.connections[index].send(&self.aggregate).map(|()| None)
    }
}

impl Transport for Clients {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let index = self.idle.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        self.waiting[index] = Some(id);
        self.connections[index].send(&data::select(request.key))
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        if self.ready.is_empty() {
            self.epoll.wait(&mut self.events, Some(Ns::ZERO));
            let keys = self.events.iter().filter_map(|(key, _)| usize::try_from(key).ok());
            self.ready.extend(keys);
        }
        // After an answer a connection has nothing more until the next query, which is reported anew.
        while let Some(index) = self.ready.pop_front() {
            let answer = self.take(index)?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }
}
