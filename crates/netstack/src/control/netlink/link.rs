//! Interfaces.

use super::Message;
use super::wire::{attributes, attributes_after, text, u16_at, u32_at};
use crate::control::Mac;

/// The length of `struct ifinfomsg`.
const FIXED: usize = 16;
const UP: u32 = 1;
const RUNNING: u32 = 0x40;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LOWER: u16 = 5;
const MASTER: u16 = 10;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const FAMILIES: u16 = 26;
const LOWER_NAMESPACE: u16 = 37;
const FAMILY_V6: u16 = 10;
const SETTINGS_V6: u16 = 2;
/// The position of the MTU among the settings of IPv6.
const SETTING_MTU: usize = 2;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct LinkRecord {
    pub(in super::super) index: u32,
    /// The kind of hardware (`linux/if_arp.h`).
    pub(in super::super) hardware: u16,
    pub(in super::super) name: String,
    pub(in super::super) mac: Mac,
    pub(in super::super) mtu: u32,
    /// The MTU of IPv6; 0 if unknown.
    pub(in super::super) mtu6: u32,
    /// It is up and has a carrier.
    pub(in super::super) up: bool,
    /// The driver of a virtual interface, "veth" for example; empty for a card.
    pub(in super::super) kind: String,
    /// The interface below this one, if it is in this namespace.
    pub(in super::super) lower: Option<u32>,
    /// The bridge, bond or VRF that this one is a port of.
    pub(in super::super) master: Option<u32>,
}

/// Returns the fixed part of a request for the interface of this index; 0 means all.
pub(super) fn fixed(index: u32) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

/// Reads an interface.
pub(in super::super) fn parse(message: &Message<'_>) -> Option<LinkRecord> {
    let payload = message.payload;
    let flags = u32_at(payload, 8)?;
    let up = flags & (UP | RUNNING) == UP | RUNNING;
    let (index, hardware) = (u32_at(payload, 4)?, u16_at(payload, 2)?);
    let mut link = LinkRecord { index, hardware, up, ..LinkRecord::default() };
    let mut lower_is_foreign = false;
    for (kind, value) in attributes_after(payload, FIXED) {
        match kind {
            ADDRESS => link.mac = value.try_into().map(Mac).unwrap_or_default(),
            NAME => link.name = text(value),
            MTU => link.mtu = u32_at(value, 0)?,
            LOWER => link.lower = u32_at(value, 0),
            MASTER => link.master = u32_at(value, 0),
            INFO => link.kind = find(value, INFO_KIND).map(text).unwrap_or_default(),
            LOWER_NAMESPACE => lower_is_foreign = true,
            FAMILIES => link.mtu6 = mtu6(value).unwrap_or(0),
            _ => {}
        }
    }
    link.lower = link.lower.filter(|_| !lower_is_foreign);
    Some(link)
}

fn mtu6(families: &[u8]) -> Option<u32> {
    let settings = find(find(families, FAMILY_V6)?, SETTINGS_V6)?;
    u32_at(settings, 4 * SETTING_MTU)
}

fn find(nested: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(nested).find(|(other, _)| *other == kind).map(|(_, value)| value)
}
