//! Routing over netlink: messages, sockets, and the five kinds of records that are read.
//!
//! Own code instead of a library: what is needed are some thirty attributes of five messages, and a message with an
//! attribute of a newer kernel must not be lost. See `docs/design/dependencies.md`.

mod address;
mod link;
mod neighbour;
mod route;
mod rule;
mod socket;
mod wire;

pub(super) use address::parse as parse_address;
pub(super) use link::LinkRecord;
pub(super) use neighbour::{
    NeighbourRecord, NeighbourState, add as add_neighbour, delete as delete_neighbour,
};
pub(super) use route::parse as parse_route;
pub(super) use rule::parse as parse_rule;
pub(super) use socket::{Events, Requests};
pub(super) use wire::{Message, Request};

/// Kinds of messages (`linux/rtnetlink.h`).
pub(super) mod kind {
    pub(in super::super) const NEW_LINK: u16 = 16;
    pub(in super::super) const DEL_LINK: u16 = 17;
    pub(in super::super) const GET_LINK: u16 = 18;
    pub(in super::super) const NEW_ADDRESS: u16 = 20;
    pub(in super::super) const DEL_ADDRESS: u16 = 21;
    pub(in super::super) const GET_ADDRESS: u16 = 22;
    pub(in super::super) const NEW_ROUTE: u16 = 24;
    pub(in super::super) const DEL_ROUTE: u16 = 25;
    pub(in super::super) const GET_ROUTE: u16 = 26;
    pub(in super::super) const NEW_NEIGHBOUR: u16 = 28;
    pub(in super::super) const DEL_NEIGHBOUR: u16 = 29;
    pub(in super::super) const GET_NEIGHBOUR: u16 = 30;
    pub(in super::super) const NEW_RULE: u16 = 32;
    pub(in super::super) const DEL_RULE: u16 = 33;
    pub(in super::super) const GET_RULE: u16 = 34;
}

/// Families of addresses (`sys/socket.h`).
pub(super) mod family {
    pub(in super::super) const UNSPECIFIED: u8 = 0;
    pub(in super::super) const V4: u8 = 2;
    pub(in super::super) const V6: u8 = 10;
}
