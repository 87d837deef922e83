//! The kernel's routing decision, repeated on a copy of its rules and tables.

use std::collections::HashMap;
use std::net::IpAddr;

use super::prefix::{Prefix, PrefixMap};

/// The table of addresses of this machine, and the one for all else.
pub(super) const LOCAL: u32 = 255;
pub(super) const MAIN: u32 = 254;
const DEFAULT: u32 = 253;

/// What a route says about its destinations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// They are reached by our interface.
    Interface(Hop),
    /// They are the kernel's: this machine, another interface, a group, or unreachable.
    Kernel,
    /// This table does not decide.
    Throw,
}

/// A way through our interface.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hop {
    /// The next router; `None` if the destination itself is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// The source address that the route prefers.
    pub(super) source: Option<IpAddr>,
    /// The limit that the route puts on packets, in bytes.
    pub(super) mtu: Option<u32>,
}

/// A route, as read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RouteEntry {
    pub(super) table: u32,
    pub(super) prefix: Prefix,
    /// Lower is better.
    pub(super) metric: u32,
    pub(super) target: Target,
}

/// Whether a rule applies to a packet without mark from an unbound socket of this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Selects {
    Always,
    /// Only destinations in the prefix; or only those outside of it.
    Destination {
        prefix: Prefix,
        inside: bool,
    },
    /// That depends on what is not known here: the source, ports, the user.
    Unknown,
}

/// A rule that may apply to packets of this machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    /// Lower comes first.
    pub(super) priority: u32,
    pub(super) selects: Selects,
    /// The table to look into; `None` for any other action.
    pub(super) table: Option<u32>,
    /// Routes of prefixes with at most this length do not count.
    pub(super) suppress: Option<u8>,
}

impl Rule {
    fn lookup(priority: u32, table: u32) -> Self {
        Self { priority, selects: Selects::Always, table: Some(table), suppress: None }
    }

    /// Returns whether it applies; `None` if that cannot be known.
    fn applies(&self, destination: IpAddr) -> Option<bool> {
        match self.selects {
            Selects::Always => Some(true),
            Selects::Destination { prefix, inside } => Some(prefix.contains(destination) == inside),
            Selects::Unknown => None,
        }
    }
}

/// The rules and tables of both families.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Routes {
    v4: Family,
    v6: Family,
}

#[derive(Debug, Default, PartialEq)]
struct Family {
    rules: Vec<Rule>,
    tables: HashMap<u32, PrefixMap<(u32, Target)>>,
}

impl Routes {
    /// Collects routes and the rules for IPv4 and IPv6. No rules mean the kernel's usual ones, which it has even if it
    /// was built without rules.
    pub(super) fn new(entries: Vec<RouteEntry>, v4: Vec<Rule>, v6: Vec<Rule>) -> Self {
        let mut routes = Self { v4: Family::new(v4), v6: Family::new(v6) };
        for entry in entries {
            let family =
                if entry.prefix.address().is_ipv4() { &mut routes.v4 } else { &mut routes.v6 };
            family.insert(entry);
        }
        routes
    }

    /// Returns where packets to `destination` go: [`Target::Interface`] or [`Target::Kernel`].
    pub(super) fn lookup(&self, destination: IpAddr) -> Target {
        if destination.is_ipv4() {
            self.v4.lookup(destination)
        } else {
            self.v6.lookup(destination)
        }
    }
}

impl Family {
    fn new(mut rules: Vec<Rule>) -> Self {
        if rules.is_empty() {
            rules = vec![
                Rule::lookup(0, LOCAL),
                Rule::lookup(32_766, MAIN),
                Rule::lookup(32_767, DEFAULT),
            ];
        }
        rules.sort_by_key(|rule| rule.priority);
        Self { rules, tables: HashMap::new() }
    }

    /// Adds a route. Of two with the same prefix and metric, the first one counts.
    fn insert(&mut self, entry: RouteEntry) {
        let table = self.tables.entry(entry.table).or_default();
        table.insert(entry.prefix, (entry.metric, entry.target), |old, new| new.0 < old.0);
    }

    fn lookup(&self, destination: IpAddr) -> Target {
        for rule in &self.rules {
            match (rule.applies(destination), rule.table) {
                (Some(false), _) => {}
                (None, _) | (Some(true), None) => return Target::Kernel,
                (Some(true), Some(table)) => match self.in_table(table, rule.suppress, destination)
                {
                    None | Some(Target::Throw) => {}
                    Some(target) => return target,
                },
            }
        }
        Target::Kernel
    }

    fn in_table(&self, table: u32, suppress: Option<u8>, destination: IpAddr) -> Option<Target> {
        let (length, (_, target)) = self.tables.get(&table)?.longest_match(destination)?;
        let suppressed = suppress.is_some_and(|limit| length <= limit);
        (!suppressed).then_some(*target)
    }
}
