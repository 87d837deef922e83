//! Addresses of interfaces.

use super::Message;
use super::wire::{attributes_after, ip, u32_at};
use crate::control::{InterfaceAddress, Prefix};

/// The length of `struct ifaddrmsg`.
const FIXED: usize = 8;

const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const FLAGS: u16 = 8;

/// In IPv4: not the first one of its network; in IPv6: temporary.
const SECONDARY: u32 = 0x01;
const OPTIMISTIC: u32 = 0x04;
const DUPLICATE: u32 = 0x08;
const DEPRECATED: u32 = 0x20;
const TENTATIVE: u32 = 0x40;

/// Reads an address and the index of its interface; `None` if it cannot be used (yet).
pub(in super::super) fn parse(message: &Message<'_>) -> Option<(u32, InterfaceAddress)> {
    let payload = message.payload;
    let (length, index) = (*payload.get(1)?, u32_at(payload, 4)?);
    let mut flags = u32::from(*payload.get(2)?);
    let (mut own, mut network) = (None, None);
    for (kind, value) in attributes_after(payload, FIXED) {
        match kind {
            // With a peer, this is the peer's address and LOCAL is ours; without one, both are the same.
            ADDRESS => network = ip(value),
            LOCAL => own = ip(value),
            FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    let own = own.or(network)?;
    let unverified = flags & TENTATIVE != 0 && flags & OPTIMISTIC == 0;
    if unverified || flags & DUPLICATE != 0 {
        return None;
    }
    let preferred = match own.is_ipv4() {
        true => flags & SECONDARY == 0,
        false => flags & (DEPRECATED | OPTIMISTIC) == 0,
    };
    Some((index, InterfaceAddress { ip: own, network: Prefix::new(network?, length), preferred }))
}
