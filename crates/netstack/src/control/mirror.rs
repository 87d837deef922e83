//! A copy of the kernel's tables, read again when they change.
//!
//! Notifications only say which tables to read again. They cannot be applied one by one: the kernel sends none for the
//! routes that it removes with an interface or an address, and may drop any.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::counters::{Counts, add};
use super::netlink::{
    self, Message, NeighbourRecord, NeighbourState, Request, Requests, family, kind,
};
use super::routes::Routes;
use super::snapshot::{Link, Neighbour, Neighbours};
use super::{InterfaceAddress, Resolution, Snapshot};

/// A table of the kernel's, or what of it concerns the interface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Table {
    Link,
    Addresses,
    Routes,
    Neighbours,
}

impl Table {
    const ALL: [Table; 4] = [Table::Link, Table::Addresses, Table::Routes, Table::Neighbours];

    /// Returns what an error says that was tried.
    pub(super) fn action(self) -> &'static str {
        match self {
            Table::Link => "read the state",
            Table::Addresses => "read the addresses",
            Table::Routes => "read the routes",
            Table::Neighbours => "read the neighbours",
        }
    }
}

/// The tables that changed since they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stale([bool; 4]);

impl Stale {
    pub(super) const ALL: Stale = Stale([true; 4]);

    pub(super) fn any(self) -> bool {
        self != Self::default()
    }

    pub(super) fn has(self, table: Table) -> bool {
        self.0[table as usize]
    }

    pub(super) fn mark(&mut self, table: Table) {
        self.0[table as usize] = true;
    }

    /// Adds what a notification says about interface `index`.
    pub(super) fn note(&mut self, message: &Message<'_>, index: u32) {
        // Records of links, addresses and neighbours have the interface's index in the same place.
        let ours = message.payload.get(4..8).is_some_and(|bytes| bytes == index.to_ne_bytes());
        match message.kind {
            kind::NEW_LINK | kind::DEL_LINK if ours => *self = Self::ALL,
            // Routes by other interfaces vanish silently, and may have hidden ours.
            kind::NEW_LINK | kind::DEL_LINK => self.mark(Table::Routes),
            kind::NEW_ADDRESS | kind::DEL_ADDRESS => {
                self.mark(Table::Addresses);
                self.mark(Table::Routes);
            }
            kind::NEW_ROUTE | kind::DEL_ROUTE | kind::NEW_RULE | kind::DEL_RULE => {
                self.mark(Table::Routes)
            }
            kind::NEW_NEIGHBOUR | kind::DEL_NEIGHBOUR if ours => self.mark(Table::Neighbours),
            _ => {}
        }
    }
}

/// The copy.
#[derive(Debug)]
pub(super) struct Mirror {
    requests: Requests,
    link: Link,
    addresses: Arc<[InterfaceAddress]>,
    routes: Arc<Routes>,
    records: HashMap<IpAddr, NeighbourRecord>,
    neighbours: Arc<Neighbours>,
    changed: bool,
}

impl Mirror {
    /// Starts a copy for the interface of this index, with nothing in it.
    pub(super) fn new(requests: Requests, index: u32) -> Self {
        Self {
            requests,
            link: Link { index, ..Link::default() },
            addresses: Arc::new([]),
            routes: Arc::default(),
            records: HashMap::new(),
            neighbours: Arc::default(),
            changed: false,
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.link.index
    }

    /// Returns a snapshot of the copy.
    pub(super) fn snapshot(&self, generation: u64) -> Snapshot {
        Snapshot {
            generation,
            link: self.link.clone(),
            addresses: Arc::clone(&self.addresses),
            routes: Arc::clone(&self.routes),
            neighbours: Arc::clone(&self.neighbours),
        }
    }

    /// Returns the kernel's entry for a neighbour.
    pub(super) fn record(&self, address: IpAddr) -> Option<&NeighbourRecord> {
        self.records.get(&address)
    }

    /// Returns whether `address` is one of the interface's addresses, or that of one of its networks themselves.
    pub(super) fn is_reserved(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.ip == address || own.network.is_edge(address))
    }

    /// Asks the kernel for a change.
    pub(super) fn change(&mut self, request: Request) -> io::Result<()> {
        self.requests.change(request)
    }

    /// Returns whether anything is different since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Reads tables again and clears their marks, except of one that went on changing while it was read.
    ///
    /// # Errors
    /// The table that could not be read and the kernel's answer. It and those after it keep content and mark.
    pub(super) fn refresh(
        &mut self,
        stale: &mut Stale,
        counts: &Counts,
    ) -> Result<(), (Table, io::Error)> {
        for table in Table::ALL {
            if !stale.has(table) {
                continue;
            }
            add(&counts.dumps);
            let result = self.read(table);
            let whole = matches!(result, Ok(true));
            if !whole {
                add(&counts.failed_dumps);
            }
            stale.0[table as usize] = !whole;
            result.map_err(|error| (table, error))?;
        }
        Ok(())
    }

    fn read(&mut self, table: Table) -> io::Result<bool> {
        match table {
            Table::Link => self.read_link(),
            Table::Addresses => self.read_addresses(),
            Table::Routes => self.read_routes(),
            Table::Neighbours => self.read_neighbours(),
        }
    }

    fn read_link(&mut self) -> io::Result<bool> {
        let link = match self.requests.link(self.link.index)? {
            Some(record) => Link {
                index: record.index,
                name: record.name,
                mac: record.mac,
                mtu: record.mtu,
                mtu6: record.mtu6,
                up: record.up,
                veth: record.kind == "veth",
                exists: true,
            },
            None => Link { up: false, exists: false, ..self.link.clone() },
        };
        self.changed |= self.link != link;
        self.link = link;
        Ok(true)
    }

    fn read_addresses(&mut self) -> io::Result<bool> {
        let (records, whole) =
            self.requests.dump(kind::GET_ADDRESS, family::UNSPECIFIED, |message| {
                netlink::parse_address(message).filter(|(index, _)| *index == self.link.index)
            })?;
        let addresses: Arc<[InterfaceAddress]> =
            records.into_iter().map(|(_, address)| address).collect();
        self.changed |= self.addresses != addresses;
        self.addresses = addresses;
        Ok(whole)
    }

    fn read_routes(&mut self) -> io::Result<bool> {
        let index = self.link.index;
        let route = |message: &Message<'_>| netlink::parse_route(message, index);
        let (mut entries, whole4) = self.requests.dump(kind::GET_ROUTE, family::V4, route)?;
        let (entries6, whole6) = self.requests.dump(kind::GET_ROUTE, family::V6, route)?;
        let (rules, whole_rules) =
            self.requests.dump(kind::GET_RULE, family::UNSPECIFIED, netlink::parse_rule)?;
        entries.extend(entries6);
        let of = |wanted| rules.iter().filter(move |(family, _)| *family == wanted);
        let rules_of = |family| of(family).map(|(_, rule)| rule.clone()).collect();
        let routes = Routes::new(entries, rules_of(family::V4), rules_of(family::V6));
        self.changed |= *self.routes != routes;
        self.routes = Arc::new(routes);
        Ok(whole4 && whole6 && whole_rules)
    }

    fn read_neighbours(&mut self) -> io::Result<bool> {
        let (records, whole) = self.requests.dump_neighbours(self.link.index)?;
        self.records = records.into_iter().map(|record| (record.address, record)).collect();
        let neighbours: Neighbours =
            self.records.values().map(|record| (record.address, describe(record))).collect();
        self.changed |= *self.neighbours != neighbours;
        self.neighbours = Arc::new(neighbours);
        Ok(whole)
    }
}

fn describe(record: &NeighbourRecord) -> Neighbour {
    let resolution = match (record.state, record.mac) {
        (NeighbourState::Pending, _) => Resolution::Pending,
        (NeighbourState::Failed, _) | (_, None) => Resolution::Unreachable,
        (_, Some(mac)) => Resolution::Resolved(mac),
    };
    Neighbour { resolution, maintained: record.is_maintained() }
}
