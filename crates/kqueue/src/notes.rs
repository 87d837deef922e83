//! The knotes of a queue, found by what the program calls them and by the token of their event.

use crate::descriptor::{Identity, Open};
use crate::raw::{filter, note};
use heddle_events::{EventId, EventOptions};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Changes and tellings of different knotes should seldom meet.
const SHARDS: usize = 64;

/// What names a knote: at most one of each in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub filter: i16,
    pub ident: usize,
}

/// What a knote has beside what all have, by filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `connected`: it is a socket that had a peer when it was registered.
    Descriptor { open: Open, connected: bool },
    /// Whether it is triggered.
    User(bool),
    /// Expirations, signals, an exit: counted by the queue.
    Counted,
}

/// What the program registered.
#[derive(Clone, Copy, Debug)]
pub struct Knote {
    pub key: Key,
    pub id: EventId,
    pub options: EventOptions,
    pub kind: Kind,
    /// Of its flags those that it keeps.
    pub flags: u16,
    pub fflags: u32,
    pub data: i64,
    pub udata: usize,
    /// By EV_DISABLE, not by EV_DISPATCH.
    pub is_disabled: bool,
}

/// Some of the knotes: all of the same identifier, and others.
#[derive(Debug, Default)]
pub struct Shard {
    places: HashMap<Key, usize>,
    notes: Vec<Option<Knote>>,
    free: Vec<usize>,
}

/// All of them.
#[derive(Debug)]
pub struct Notes([Mutex<Shard>; SHARDS]);

impl Default for Notes {
    fn default() -> Self {
        Notes(std::array::from_fn(|_| Mutex::default()))
    }
}

fn shard_of(ident: usize) -> usize {
    // Identifiers are small numbers or addresses: the upper bits of a product depend on all of theirs.
    (ident as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 58
}

/// A locked shard.
pub struct Locked<'a> {
    number: usize,
    shard: MutexGuard<'a, Shard>,
}

impl Notes {
    fn lock(&self, number: usize) -> Locked<'_> {
        Locked { number, shard: self.0[number].lock().unwrap() }
    }

    /// The shard of an identifier.
    pub fn shard(&self, ident: usize) -> Locked<'_> {
        self.lock(shard_of(ident))
    }

    /// The shard of a token, and the token's place in it.
    pub fn of_token(&self, token: u64) -> (Locked<'_>, usize) {
        let token = token as usize;
        (self.lock(token % SHARDS), token / SHARDS)
    }
}

impl Locked<'_> {
    pub fn find(&mut self, key: Key) -> Option<&mut Knote> {
        let place = *self.shard.places.get(&key)?;
        self.shard.notes[place].as_mut()
    }

    pub fn at(&mut self, place: usize) -> Option<&mut Knote> {
        self.shard.notes.get_mut(place)?.as_mut()
    }

    /// Adds what `make` makes, which is told the token.
    pub fn add<E>(&mut self, make: impl FnOnce(u64) -> Result<Knote, E>) -> Result<(), E> {
        let place = self.shard.free.last().copied().unwrap_or(self.shard.notes.len());
        let note = make((place * SHARDS + self.number) as u64)?;
        if self.shard.free.pop().is_none() {
            self.shard.notes.push(None);
        }
        self.shard.notes[place] = Some(note);
        self.shard.places.insert(note.key, place);
        Ok(())
    }

    pub fn remove(&mut self, key: Key) -> Option<Knote> {
        let place = self.shard.places.remove(&key)?;
        self.shard.free.push(place);
        self.shard.notes[place].take()
    }

    /// Takes away what was registered of a descriptor that has been closed: the knotes that do not have `now`, its present identity.
    pub fn purge(&mut self, ident: usize, now: Option<Identity>) -> Vec<Knote> {
        let keys = [filter::READ, filter::WRITE, filter::VNODE].map(|filter| Key { filter, ident });
        let mut gone = Vec::new();
        for key in keys {
            let is_old = self.find(key).is_some_and(|note| match note.kind {
                Kind::Descriptor { open, .. } => Some(open.identity) != now,
                Kind::User(_) | Kind::Counted => false,
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

    /// Whether it is about a number of bytes to read (NOTE_LOWAT).
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
