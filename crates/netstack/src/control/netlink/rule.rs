//! Rules: which tables a packet is looked up in.
//!
//! What matters is whether a rule applies to a packet of an unbound socket of this machine that has no mark.

use super::Message;
use super::wire::{attributes_after, ip, text, u32_at};
use crate::control::Prefix;
use crate::control::routes::{Rule, Selects};

/// The length of `struct fib_rule_hdr`.
const FIXED: usize = 12;
const ACTION_TABLE: u8 = 1;
const ACTION_NONE: u8 = 3;
const INVERTED: u32 = 2;

const DESTINATION: u16 = 1;
const INPUT: u16 = 3;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const SUPPRESS_LENGTH: u16 = 14;
const TABLE: u16 = 15;
const MASK: u16 = 16;
const OUTPUT: u16 = 17;
const PADDING: u16 = 18;
const VRF: u16 = 19;
const PROTOCOL: u16 = 21;

/// What a rule asks for.
#[derive(Default)]
struct Conditions {
    destination: Option<Prefix>,
    mark: u32,
    mask: Option<u32>,
    /// Packets that come in by an interface, that leave by one, or that belong to a VRF: never ours.
    foreign: bool,
    /// The source, ports, the user, and whatever newer kernels have.
    unknown: bool,
}

/// Reads a rule and its family; `None` if it never applies to us.
pub(in super::super) fn parse(message: &Message<'_>) -> Option<(u8, Rule)> {
    let payload = message.payload;
    let [family, length, source_length, tos, table, _, _, action] = *payload.first_chunk()?;
    let inverted = u32_at(payload, 8)? & INVERTED != 0;
    let mut table = u32::from(table);
    let (mut priority, mut suppress) = (0, None);
    let mut conditions =
        Conditions { unknown: source_length != 0 || tos != 0, ..Conditions::default() };
    for (kind, value) in attributes_after(payload, FIXED) {
        match kind {
            PRIORITY => priority = u32_at(value, 0)?,
            TABLE => table = u32_at(value, 0)?,
            // Minus one is none.
            SUPPRESS_LENGTH => {
                suppress = u32_at(value, 0).and_then(|length| u8::try_from(length).ok())
            }
            DESTINATION => conditions.destination = Some(Prefix::new(ip(value)?, length)),
            _ => conditions.read(kind, value),
        }
    }
    let selects = conditions.selects(inverted)?;
    let table = (action == ACTION_TABLE).then_some(table);
    (action != ACTION_NONE).then_some((family, Rule { priority, selects, table, suppress }))
}

impl Conditions {
    fn read(&mut self, kind: u16, value: &[u8]) {
        match kind {
            // Packets of this machine come from the loopback interface.
            INPUT => self.foreign |= text(value) != "lo",
            OUTPUT => self.foreign = true,
            VRF => self.foreign |= value.first().is_some_and(|on| *on != 0),
            MARK => self.mark = u32_at(value, 0).unwrap_or(0),
            MASK => self.mask = u32_at(value, 0),
            PROTOCOL | PADDING => {}
            _ => self.unknown = true,
        }
    }

    /// Returns what the rule selects; `None` if never a packet of ours.
    fn selects(&self, inverted: bool) -> Option<Selects> {
        let marked = self.mark & self.mask.unwrap_or(u32::MAX) != 0;
        match (self.foreign || marked, self.unknown, inverted) {
            (true, _, false) => None,
            (true, _, true) => Some(Selects::Always),
            (false, true, _) => Some(Selects::Unknown),
            (false, false, _) => match (self.destination, inverted) {
                (Some(prefix), _) => Some(Selects::Destination { prefix, inside: !inverted }),
                (None, false) => Some(Selects::Always),
                (None, true) => None,
            },
        }
    }
}
