//! The knotes of a queue, found by the program's name for them and by the token of their event.

use crate::descriptor::{Identity, Open};
use crate::raw::{filter, note};
use heddle_events::{EventId, EventOptions};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Keeps threads that change or report different knotes from waiting for each other.
const SHARDS: usize = 64;

/// The name of a knote: a queue has at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub filter: i16,
    pub ident: usize,
}

/// The part of a knote that depends on its filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnoteKind {
    /// `connected`: whether it was a connected socket when it was registered.
    Descriptor { open: Open, connected: bool },
    /// Whether it is triggered.
    User(bool),
    /// Expirations, signals, an exit: counted by the queue.
    Counted,
}

/// A registration of the program.
#[derive(Clone, Copy, Debug)]
pub struct Knote {
    pub key: Key,
    pub id: EventId,
    pub options: EventOptions,
    pub kind: KnoteKind,
    /// The flags that it keeps.
    pub flags: u16,
    pub fflags: u32,
    pub data: i64,
    pub udata: usize,
    /// By EV_DISABLE, not by EV_DISPATCH.
    pub is_disabled: bool,
}

/// Some of the knotes: all with the same identifier, and others.
#[derive(Debug, Default)]
pub struct Shard {
    indices: HashMap<Key, usize>,
    notes: Vec<Option<Knote>>,
    free: Vec<usize>,
}

/// All knotes of a queue.
#[derive(Debug)]
pub struct Notes([Mutex<Shard>; SHARDS]);

impl Default for Notes {
    fn default() -> Self {
        Notes(std::array::from_fn(|_| Mutex::default()))
    }
}

fn shard_of(ident: usize) -> usize {
    // Identifiers are small numbers or addresses: the upper bits of a product depend on all their bits.
    (ident as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 58
}

/// A locked shard.
pub struct LockedShard<'a> {
    number: usize,
    shard: MutexGuard<'a, Shard>,
}

impl Notes {
    fn lock(&self, number: usize) -> LockedShard<'_> {
        LockedShard { number, shard: self.0[number].lock().unwrap() }
    }

    /// Locks the shard of an identifier.
    pub fn shard(&self, ident: usize) -> LockedShard<'_> {
        self.lock(shard_of(ident))
    }

    /// Locks the shard of a token. Also returns the token's index in it.
    pub fn of_token(&self, token: u64) -> (LockedShard<'_>, usize) {
        let token = token as usize;
        (self.lock(token % SHARDS), token / SHARDS)
    }
}

impl LockedShard<'_> {
    pub fn find(&mut self, key: Key) -> Option<&mut Knote> {
        let index = *self.shard.indices.get(&key)?;
        self.shard.notes[index].as_mut()
    }

    pub fn at(&mut self, index: usize) -> Option<&mut Knote> {
        self.shard.notes.get_mut(index)?.as_mut()
    }

    /// Adds the knote that `make` makes for a token.
    pub fn add<E>(&mut self, make: impl FnOnce(u64) -> Result<Knote, E>) -> Result<(), E> {
        let index = self.shard.free.last().copied().unwrap_or(self.shard.notes.len());
        let note = make((index * SHARDS + self.number) as u64)?;
        if self.shard.free.pop().is_none() {
            self.shard.notes.push(None);
        }
        self.shard.notes[index] = Some(note);
        self.shard.indices.insert(note.key, index);
        Ok(())
    }

    pub fn remove(&mut self, key: Key) -> Option<Knote> {
        let index = self.shard.indices.remove(&key)?;
        self.shard.free.push(index);
        self.shard.notes[index].take()
    }

    /// Removes the knotes of a descriptor that has been closed: those that do not have `now`, its current
    /// identity.
    pub fn purge(&mut self, ident: usize, now: Option<Identity>) -> Vec<Knote> {
        let keys = [filter::READ, filter::WRITE, filter::VNODE].map(|filter| Key { filter, ident });
        let mut gone = Vec::new();
        for key in keys {
            let is_old = self.find(key).is_some_and(|note| match note.kind {
                KnoteKind::Descriptor { open, .. } => Some(open.identity) != now,
                KnoteKind::User(_) | KnoteKind::Counted => false,
            });
            if is_old {
                gone.extend(self.remove(key));
            }
        }
        gone
    }
}

impl Knote {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether it waits for a number of bytes to read (NOTE_LOWAT).
    pub fn waits_for_bytes(&self) -> bool {
        self.key.filter == filter::READ && self.fflags & note::LOWAT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_spread() {
        let shards = |idents: &mut dyn Iterator<Item = usize>| {
            idents.map(shard_of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert!(shards(&mut (0..64)) > 40);
        assert!(shards(&mut (0..64).map(|i| 0x7fff_0000_0000 + i * 64)) > 30);
        assert!(shard_of(usize::MAX) < SHARDS);
    }
}
