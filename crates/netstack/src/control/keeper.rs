//! The neighbour entries that senders asked for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::MAX_NEIGHBOURS;
use super::counters::{Count, Counts, add};
use super::mirror::{Mirror, Stale, Table};
use super::netlink::{NeighbourRecord, NeighbourState, add_neighbour, delete_neighbour};

/// How long a neighbour may be without an answer before its entry is removed. The kernel itself asks for three seconds,
/// and then again and again.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same if the limit is reached and another neighbour is asked for: the kernel's first three tries. So a flood of
/// false addresses makes at most [`MAX_NEIGHBOURS`] entries in this time.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);

/// The entries that were added, and since when those without an answer wait for one.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    kept: HashMap<IpAddr, Option<Instant>>,
    /// Those that were removed, until a copy lacks them: the kernel keeps an entry that it is just sending a request
    /// for, and would go on asking forever.
    leaving: HashSet<IpAddr>,
}

impl Keeper {
    /// Asks the kernel to resolve and keep a neighbour, unless it does already.
    pub(super) fn keep(
        &mut self,
        next_hop: IpAddr,
        mirror: &mut Mirror,
        counts: &Counts,
        now: Instant,
    ) {
        let counter = match self.try_keep(next_hop, mirror, counts, now) {
            Ok(counter) => counter,
            // The entry is newer than the copy: look at it, then ask again.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut stale = Stale::default();
                stale.mark(Table::Neighbours);
                let _ = mirror.refresh(&mut stale, counts);
                self.try_keep(next_hop, mirror, counts, now).unwrap_or(&counts.denied)
            }
            Err(_) => &counts.denied,
        };
        add(counter);
    }

    /// Returns the counter of what was done, or the kernel's refusal.
    fn try_keep<'a>(
        &mut self,
        next_hop: IpAddr,
        mirror: &mut Mirror,
        counts: &'a Counts,
        now: Instant,
    ) -> io::Result<&'a Count> {
        if !may_be_neighbour(next_hop) || mirror.is_reserved(next_hop) {
            return Ok(&counts.refused);
        }
        let record = mirror.record(next_hop);
        if self.kept.contains_key(&next_hop) || record.is_some_and(|record| record.is_maintained())
        {
            return Ok(&counts.repeated);
        }
        let new = record.is_none();
        if self.kept.len() >= MAX_NEIGHBOURS && !self.make_room(mirror, counts, now) {
            return Ok(&counts.limit_reached);
        }
        mirror.change(add_neighbour(mirror.index(), next_hop, new))?;
        self.kept.insert(next_hop, Some(now));
        self.leaving.remove(&next_hop);
        Ok(&counts.resolutions)
    }

    /// Compares the entries with what the kernel has: forgets those that were removed, uses those again that have grown
    /// old on kernels that do not manage them, and gives up those that have not answered for long.
    pub(super) fn review(&mut self, mirror: &mut Mirror, counts: &Counts, now: Instant) {
        self.remove_again(mirror);
        let mut abandoned = Vec::new();
        let mut aged = Vec::new();
        self.kept.retain(|address, waits_since| {
            let Some(record) = mirror.record(*address) else { return false };
            match record.state {
                NeighbourState::Fresh | NeighbourState::Permanent => *waits_since = None,
                NeighbourState::Stale if record.managed => *waits_since = None,
                NeighbourState::Stale => aged.push(*address),
                NeighbourState::Pending | NeighbourState::Failed => {
                    let since = *waits_since.get_or_insert(now);
                    if now.saturating_duration_since(since) >= PATIENCE {
                        abandoned.push(*address);
                        return false;
                    }
                }
            }
            true
        });
        for address in aged {
            let _ = mirror.change(add_neighbour(mirror.index(), address, false));
        }
        for address in abandoned {
            self.abandon(address, mirror, counts);
        }
    }

    /// Returns when [`Keeper::review`] may have something to give up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.kept.values().flatten().min().map(|since| *since + PATIENCE)
    }

    /// Removes all entries.
    pub(super) fn remove_all(&mut self, mirror: &mut Mirror, counts: &Counts) {
        for (address, _) in std::mem::take(&mut self.kept) {
            self.remove(address, mirror);
        }
        let mut stale = Stale::default();
        stale.mark(Table::Neighbours);
        if mirror.refresh(&mut stale, counts).is_ok() {
            self.remove_again(mirror);
        }
    }

    fn remove(&mut self, address: IpAddr, mirror: &mut Mirror) {
        // It may be gone, with its interface for example.
        let _ = mirror.change(delete_neighbour(mirror.index(), address));
        self.leaving.insert(address);
    }

    /// Removes those again that the kernel has kept.
    fn remove_again(&mut self, mirror: &mut Mirror) {
        self.leaving.retain(|address| {
            let is_left = mirror.record(*address).is_some_and(NeighbourRecord::is_ours);
            is_left && mirror.change(delete_neighbour(mirror.index(), *address)).is_ok()
        });
    }

    /// Removes the entry that has waited longest for an answer. Returns false if none has waited for long.
    fn make_room(&mut self, mirror: &mut Mirror, counts: &Counts, now: Instant) -> bool {
        let waiting = self.kept.iter().filter_map(|(address, since)| Some(((*since)?, *address)));
        let Some((since, address)) = waiting.min() else { return false };
        if now.saturating_duration_since(since) < SHORT_PATIENCE {
            return false;
        }
        self.kept.remove(&address);
        self.abandon(address, mirror, counts);
        true
    }

    fn abandon(&mut self, address: IpAddr, mirror: &mut Mirror, counts: &Counts) {
        self.remove(address, mirror);
        add(&counts.abandoned);
    }
}

/// Returns whether an address can be a neighbour's.
fn may_be_neighbour(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !broadcast && !address.is_multicast() && !address.is_loopback() && !address.is_unspecified()
}
