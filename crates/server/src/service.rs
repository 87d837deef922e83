//! The part of a server that does not depend on the system: store, limits and counters; no sockets.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::counters::{Counters, Gauge};
use super::item_state::ItemState;
use super::limits::{Bounds, Limit, Reservation};
use super::{Options, Protocol};
use heddle_proto::resp::Limits;
use heddle_store::{Guarded, Section, Store};

/// Most keys per RANGE or SCAN.
pub(super) const MAX_RANGE: usize = 1_000_000;
/// Longest reply of a RANGE.
pub(super) const MAX_REPLY: usize = 64 << 20;
/// Datagrams up to this many bytes are bounded by their number alone.
const SMALL_DATAGRAM: usize = 2 << 10;

/// Describes the runtime, as lines of INFO.
type Describe = Box<dyn Fn() -> String + Send + Sync>;

/// The part of a server that all connections share.
pub(super) struct Service<S> {
    pub(super) store: Guarded<S>,
    pub(super) section: S,
    pub(super) protocol: Protocol,
    pub(super) items: ItemState,
    pub(super) limits: Limits,
    pub(super) bounds: Arc<Bounds>,
    pub(super) system: &'static str,
    pub(super) counters: Counters,
    pub(super) connections: Gauge,
    in_flight: Gauge,
    runtime: OnceLock<Describe>,
    started: Instant,
}

impl<S: Section> Service<S> {
    pub(super) fn new(
        store: Box<dyn Store>,
        section: S,
        options: &Options,
        bounds: &Arc<Bounds>,
    ) -> Arc<Service<S>> {
        Arc::new(Service {
            store: Guarded::new(store, section.clone()),
            section,
            protocol: options.protocol.clone(),
            items: ItemState::default(),
            limits: options.limits,
            bounds: bounds.clone(),
            system: options.system.name(),
            counters: Counters::default(),
            connections: Gauge::new(options.max_connections),
            in_flight: Gauge::new(options.max_in_flight),
            runtime: OnceLock::new(),
            started: Instant::now(),
        })
    }

    /// Adds the runtime's description to INFO.
    pub(super) fn describe_runtime(&self, describe: impl Fn() -> String + Send + Sync + 'static) {
        // The first description stays; a service has one system.
        let _ = self.runtime.set(Box::new(describe));
    }

    /// Reserves room for one more datagram of `len` bytes; `None`, counted, if there is none.
    pub(super) fn admit(self: &Arc<Self>, len: usize) -> Option<Ticket<S>> {
        self.counters.datagrams_received.add();
        if self.in_flight.enter() {
            let mut ticket = Ticket { service: self.clone(), _hold: None };
            if len <= SMALL_DATAGRAM {
                return Some(ticket);
            }
            let mut hold = Reservation::with(&self.bounds, SMALL_DATAGRAM);
            if hold.input(len).is_ok() {
                ticket._hold = Some(hold);
                return Some(ticket);
            }
        }
        self.counters.datagrams_dropped.add();
        None
    }

    /// The answer to a connection beyond the maximum.
    pub(super) fn too_many(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Memcached => b"ERROR Too many open connections\r\n",
            _ => b"-ERR max number of clients reached\r\n",
        }
    }

    /// Seconds since the start.
    pub(super) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The reply to INFO.
    pub(super) fn info(&self) -> String {
        let store = self.store.store();
        let mut text = format!(
            "# Server\r\nheddle_version:{}\r\nsystem:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n\r\n\
             # Store\r\nstore:{}\r\nstore_detail:{}\r\nkeys_estimate:{}\r\n\r\n\
             # Now\r\nconnected_clients:{}\r\ndatagrams_in_flight:{}\r\n\r\n# Stats\r\n",
            env!("CARGO_PKG_VERSION"),
            self.system,
            std::process::id(),
            self.uptime_s(),
            store.name(),
            store.describe(),
            store.len_estimate(),
            self.connections.now(),
            self.in_flight.now(),
        );
        for (name, value) in self.counters.list() {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
        for limit in Limit::ALL {
            text.push_str(&format!("limit_hit_{}:{}\r\n", limit.name(), self.bounds.hits(limit)));
        }
        if let Some(describe) = self.runtime.get() {
            text.push_str("\r\n# Runtime\r\n");
            text.push_str(&describe());
        }
        text
    }
}

/// The permission to answer one datagram; returned when dropped, even by a panic.
pub(super) struct Ticket<S> {
    service: Arc<Service<S>>,
    /// The memory of a long one.
    _hold: Option<Reservation>,
}

impl<S> Ticket<S> {
    pub(super) fn service(&self) -> &Service<S> {
        &self.service
    }
}

impl<S> Drop for Ticket<S> {
    fn drop(&mut self) {
        self.service.in_flight.leave();
    }
}
