//! Neighbours.

use std::net::IpAddr;

use super::socket::change_flags;
use super::wire::{attributes_after, ip, u16_at, u32_at};
use super::{Message, Request, family, kind};
use crate::control::{Mac, NEIGHBOUR_PROTOCOL};

/// The length of `struct ndmsg`.
const FIXED: usize = 12;

const DESTINATION: u16 = 1;
const HARDWARE: u16 = 2;
const INTERFACE: u16 = 8;
const PROTOCOL: u16 = 12;
const FLAGS_EXTENDED: u16 = 15;

const FLAG_USE: u8 = 0x01;
const FLAG_EXTERN_LEARNED: u8 = 0x10;
const EXTENDED_MANAGED: u32 = 1;

const CREATE: u16 = 0x400;
const EXCLUSIVE: u16 = 0x200;

/// The state of an entry, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum NeighbourState {
    /// Being resolved.
    Pending,
    /// Resolved; the kernel checks it only when it sends there itself.
    Stale,
    /// Resolved, and recently confirmed or being confirmed.
    Fresh,
    /// Permanent, set by an administrator.
    Permanent,
    /// Did not answer.
    Failed,
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct NeighbourRecord {
    pub(in super::super) index: u32,
    pub(in super::super) address: IpAddr,
    pub(in super::super) mac: Option<Mac>,
    pub(in super::super) state: NeighbourState,
    /// The kernel keeps it resolved.
    pub(in super::super) managed: bool,
    /// A program keeps it.
    pub(in super::super) extern_learned: bool,
    /// The program that made it.
    pub(in super::super) protocol: u8,
}

impl NeighbourRecord {
    /// Returns whether the entry stays valid without traffic.
    pub(in super::super) fn is_maintained(&self) -> bool {
        let is_permanent = self.state == NeighbourState::Permanent;
        is_permanent || self.managed || self.extern_learned || self.protocol == NEIGHBOUR_PROTOCOL
    }

    /// Returns whether it may be removed: we have made it.
    pub(in super::super) fn is_ours(&self) -> bool {
        self.protocol == NEIGHBOUR_PROTOCOL && self.state != NeighbourState::Permanent
    }
}

/// Returns a request for the entries of one interface.
pub(super) fn dump(index: u32, flags: u16) -> Request {
    Request::new(kind::GET_NEIGHBOUR, flags, &[0; FIXED]).attribute(INTERFACE, &index.to_ne_bytes())
}

/// Reads an entry; `None` if it has no state yet.
pub(in super::super) fn parse(message: &Message<'_>) -> Option<NeighbourRecord> {
    let payload = message.payload;
    let (index, flags) = (u32_at(payload, 4)?, *payload.get(10)?);
    let state = state(u16_at(payload, 8)?)?;
    let (mut address, mut mac, mut managed, mut protocol) = (None, None, false, 0);
    for (kind, value) in attributes_after(payload, FIXED) {
        match kind {
            DESTINATION => address = ip(value),
            HARDWARE => mac = value.try_into().ok().map(Mac),
            PROTOCOL => protocol = *value.first()?,
            FLAGS_EXTENDED => managed = u32_at(value, 0)? & EXTENDED_MANAGED != 0,
            _ => {}
        }
    }
    let extern_learned = flags & FLAG_EXTERN_LEARNED != 0;
    Some(NeighbourRecord {
        index,
        address: address?,
        mac,
        state,
        managed,
        extern_learned,
        protocol,
    })
}

fn state(bits: u16) -> Option<NeighbourState> {
    match bits {
        0x01 => Some(NeighbourState::Pending),
        // Reachable, delay, probe: fresh, or about to be.
        0x02 | 0x08 | 0x10 => Some(NeighbourState::Fresh),
        0x04 => Some(NeighbourState::Stale),
        0x20 => Some(NeighbourState::Failed),
        // 0x40: on a link without addresses, which is as good as permanent.
        0x40 | 0x80 => Some(NeighbourState::Permanent),
        _ => None,
    }
}

/// Returns a request to resolve an entry and to keep it so. Kernels before 5.16 do not know "managed" and resolve it
/// once, by the older flag "use".
///
/// A new entry is made only if there is none, so that no permanent entry is changed unseen.
pub(in super::super) fn add(index: u32, address: IpAddr, new: bool) -> Request {
    let flags = change_flags() | CREATE | if new { EXCLUSIVE } else { 0 };
    let fixed = fixed(index, address, FLAG_USE | FLAG_EXTERN_LEARNED);
    destination(Request::new(kind::NEW_NEIGHBOUR, flags, &fixed), address)
        .attribute(PROTOCOL, &[NEIGHBOUR_PROTOCOL])
        .attribute(FLAGS_EXTENDED, &EXTENDED_MANAGED.to_ne_bytes())
}

/// Returns a request to remove an entry.
pub(in super::super) fn delete(index: u32, address: IpAddr) -> Request {
    let fixed = fixed(index, address, 0);
    destination(Request::new(kind::DEL_NEIGHBOUR, change_flags(), &fixed), address)
}

fn fixed(index: u32, address: IpAddr, flags: u8) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[0] = if address.is_ipv4() { family::V4 } else { family::V6 };
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[10] = flags;
    bytes
}

fn destination(request: Request, address: IpAddr) -> Request {
    match address {
        IpAddr::V4(v4) => request.attribute(DESTINATION, &v4.octets()),
        IpAddr::V6(v6) => request.attribute(DESTINATION, &v6.octets()),
    }
}
