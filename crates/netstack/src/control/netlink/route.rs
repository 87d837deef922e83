//! Routes.

use std::net::IpAddr;

use super::Message;
use super::wire::{attributes, attributes_after, ip, u16_at, u32_at, unspecified};
use crate::control::Prefix;
use crate::control::routes::{Hop, RouteEntry, Target};

/// The length of `struct rtmsg`, and of `struct rtnexthop`.
const FIXED: usize = 12;
const NEXT_HOP: usize = 8;

const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const SOURCE: u16 = 7;
const METRICS: u16 = 8;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
const VIA: u16 = 18;
const ENCAPSULATION: u16 = 22;
const METRIC_MTU: u16 = 2;

const UNICAST: u8 = 1;
const THROW: u8 = 9;
/// Of a next hop: its interface is down or without a carrier.
const DEAD: u32 = 1;
const CLONED: u32 = 0x200;

/// What a route or one of its next hops says.
#[derive(Clone, Copy, Default)]
struct Leg {
    interface: Option<u32>,
    gateway: Option<IpAddr>,
    /// A tunnel or labels would have to be added.
    encapsulated: bool,
}

/// Reads a route, as far as it concerns interface `ours`; `None` if packets of this machine never take it.
pub(in super::super) fn parse(message: &Message<'_>, ours: u32) -> Option<RouteEntry> {
    let payload = message.payload;
    let [family, length, source_length, tos, table, _, _, kind] = *payload.first_chunk()?;
    let flags = u32_at(payload, 8)?;
    // Routes for one kind of service, for one source, and cached ones.
    if tos != 0 || source_length != 0 || flags & (CLONED | DEAD) != 0 {
        return None;
    }
    let mut prefix = Prefix::new(unspecified(family)?, 0);
    let (mut table, mut metric) = (u32::from(table), 0);
    let (mut leg, mut legs) = (Leg::default(), None);
    let (mut source, mut mtu) = (None, None);
    for (kind, value) in attributes_after(payload, FIXED) {
        match kind {
            DESTINATION => prefix = Prefix::new(ip(value)?, length),
            PRIORITY => metric = u32_at(value, 0)?,
            TABLE => table = u32_at(value, 0)?,
            SOURCE => source = ip(value),
            METRICS => mtu = mtu_of(value),
            MULTIPATH => legs = Some(value),
            _ => leg.read(kind, value),
        }
    }
    let leg = match legs {
        Some(legs) => choose(legs, ours),
        None => leg.is_ours(ours).then_some(leg),
    };
    let target = match (kind, leg) {
        (UNICAST, Some(Leg { gateway, .. })) => Target::Interface(Hop { gateway, source, mtu }),
        (THROW, _) => Target::Throw,
        _ => Target::Kernel,
    };
    Some(RouteEntry { table, prefix, metric, target })
}

impl Leg {
    fn read(&mut self, kind: u16, value: &[u8]) {
        match kind {
            INTERFACE => self.interface = u32_at(value, 0),
            GATEWAY => self.gateway = ip(value),
            // A gateway of the other family: the family's number and the address.
            VIA => self.gateway = value.get(2..).and_then(ip),
            ENCAPSULATION => self.encapsulated = true,
            _ => {}
        }
    }

    fn is_ours(&self, ours: u32) -> bool {
        self.interface == Some(ours) && !self.encapsulated
    }
}

/// Chooses the first usable leg by our interface: legs are equally good.
fn choose(mut legs: &[u8], ours: u32) -> Option<Leg> {
    while let Some(length) = u16_at(legs, 0).map(usize::from) {
        let mut leg = Leg { interface: u32_at(legs, 4), ..Leg::default() };
        let dead = u32::from(*legs.get(2)?) & DEAD != 0;
        attributes(legs.get(NEXT_HOP..length)?).for_each(|(kind, value)| leg.read(kind, value));
        if leg.is_ours(ours) && !dead {
            return Some(leg);
        }
        legs = legs.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn mtu_of(metrics: &[u8]) -> Option<u32> {
    let (_, value) = attributes(metrics).find(|(kind, _)| *kind == METRIC_MTU)?;
    u32_at(value, 0).filter(|mtu| *mtu != 0)
}
