//! What a change of the change list does.

use crate::descriptor::{Fd, What};
use crate::error::errno;
use crate::notes::{Key, Kind, Knote, Locked};
use crate::raw::{Kevent, ev, filter, note};
use crate::registry::{self, Kqueue};
use crate::{fflags, other, place};
use heddle_events::{EventError, EventId, EventOptions, FileChanges, Interest};
use rustix::io::Errno;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

/// Flags that the system sets in what it tells: programs hand them back in.
const SYSTEM: u16 = 0xf000;

/// A change on its way.
pub struct Change<'a> {
    pub kq: &'a Arc<Kqueue>,
    pub kevent: Kevent,
    /// The flags that the knote is to have: asked for, set by its filter, and those it has for life.
    pub flags: u16,
    pub options: EventOptions,
    /// What the knote will be of, if it is made.
    pub kind: Kind,
}

/// Makes one change.
pub fn apply(kq: &Arc<Kqueue>, kevent: &Kevent) -> Result<(), Errno> {
    let kevent = Kevent { flags: kevent.flags & !SYSTEM, ..*kevent };
    if kevent.flags & !ev::KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let mut options = EventOptions::default();
    // Pinning may make this thread a worker: not under a shard's lock, for other threads are told events meanwhile.
    if kevent.flags & ev::AFFINITY != 0 && kevent.flags & ev::ADD != 0 {
        options = place::pinned(kq, options)?;
    }
    fflags::check(&kevent)?;
    let mut shard = kq.notes.shard(kevent.ident);
    let kind = kind_of(kq, &mut shard, &kevent)?;
    let flags = flags_of(&kevent, shard.find(Key { filter: kevent.filter, ident: kevent.ident }));
    let options = with_flags(options, flags);
    // Readiness is not all that such a knote waits for: it is looked at each time that something happens, and not told of the rest.
    let options = if kevent.waits_for_bytes() { options.edge() } else { options };
    Change { kq, kevent, flags, options, kind }.make(&mut shard)
}

/// The flags of a knote that is made, or of `present` when it is added again.
fn flags_of(kevent: &Kevent, present: Option<&mut Knote>) -> u16 {
    let asked = kevent.flags & ev::KEPT;
    match present {
        None => asked | other::implied(kevent),
        Some(note) => asked & !ev::FOR_LIFE | note.flags & ev::FOR_LIFE,
    }
}

fn with_flags(options: EventOptions, flags: u16) -> EventOptions {
    type Option = fn(EventOptions) -> EventOptions;
    let by_flag: [(u16, Option); 3] = [
        (ev::CLEAR, EventOptions::edge),
        (ev::DISPATCH, EventOptions::dispatch),
        (ev::REALTIME, EventOptions::high),
    ];
    let set = by_flag.iter().filter(|(flag, _)| flags & flag != 0);
    set.fold(options, |options, (_, with)| with(options))
}

fn kind_of(kq: &Kqueue, shard: &mut Locked<'_>, kevent: &Kevent) -> Result<Kind, Errno> {
    match kevent.filter {
        filter::READ | filter::WRITE | filter::VNODE => descriptor(kq, shard, kevent),
        filter::USER => Ok(Kind::User(false)),
        which if other::is_known(which) => Ok(Kind::Counted),
        _ => Err(Errno::INVAL),
    }
}

/// The descriptor must be open, and what was registered of one that was closed ends (K3).
fn descriptor(kq: &Kqueue, shard: &mut Locked<'_>, kevent: &Kevent) -> Result<Kind, Errno> {
    let open = Fd::of(kevent.ident).and_then(Fd::look);
    for note in shard.purge(kevent.ident, open.ok().map(|open| open.identity)) {
        // It is ended already only if its queue is.
        let _ = kq.queue.deregister(note.id);
    }
    let open = open?;
    // Which of the threads that wait on a queue should be told of another?
    let is_queue = registry::is_queue(open.fd.as_raw_fd());
    let is_refused = is_queue || kevent.filter == filter::VNODE && !open.has_inode();
    if kevent.flags & ev::ADD != 0 && is_refused {
        return Err(Errno::INVAL);
    }
    let connected = open.what == What::Socket && open.fd.has_peer();
    Ok(Kind::Descriptor { open, connected })
}

impl Change<'_> {
    fn key(&self) -> Key {
        Key { filter: self.kevent.filter, ident: self.kevent.ident }
    }

    pub fn has(&self, flag: u16) -> bool {
        self.kevent.flags & flag != 0
    }

    fn make(&self, shard: &mut Locked<'_>) -> Result<(), Errno> {
        match shard.find(self.key()) {
            Some(_) if self.has(ev::DELETE) => self.delete(shard),
            Some(note) if self.has(ev::ADD) => {
                let asks_for_more = note.fflags != self.kevent.fflags;
                let must_begin_anew = note.options != self.options
                    || note.key.filter == filter::VNODE && asks_for_more;
                if must_begin_anew {
                    self.delete(shard)?;
                    return self.add(shard);
                }
                self.again(note)
            }
            Some(note) => self.touch(note),
            None if self.has(ev::ADD) && !self.has(ev::DELETE) => self.add(shard),
            None => Err(Errno::NOENT),
        }
    }

    fn delete(&self, shard: &mut Locked<'_>) -> Result<(), Errno> {
        let note = shard.remove(self.key()).ok_or(Errno::NOENT)?;
        self.kq.queue.deregister(note.id).map_err(errno)
    }

    fn add(&self, shard: &mut Locked<'_>) -> Result<(), Errno> {
        let beside = self.beside(shard);
        shard.add(|token| {
            let id = self.register(beside, token)?;
            let mut note = Knote {
                key: self.key(),
                id,
                options: self.options,
                kind: self.kind,
                flags: self.flags,
                fflags: self.kevent.fflags,
                data: self.kevent.data,
                udata: self.kevent.udata,
                is_disabled: self.has(ev::DISABLE),
            };
            if let Kind::User(_) = self.kind {
                note.fflags &= note::FFLAGSMASK;
                self.trigger(&mut note)?;
            }
            Ok(note)
        })
    }

    /// The event of the other filter on the same descriptor. Of a file one is none of its descriptor's readiness.
    fn beside(&self, shard: &mut Locked<'_>) -> Option<EventId> {
        if matches!(self.kind, Kind::Descriptor { open, .. } if open.what == What::File) {
            return None;
        }
        let of = match self.kevent.filter {
            filter::READ => filter::WRITE,
            filter::WRITE => filter::READ,
            _ => return None,
        };
        shard.find(Key { filter: of, ident: self.kevent.ident }).map(|note| note.id)
    }

    fn register(&self, beside: Option<EventId>, token: u64) -> Result<EventId, Errno> {
        let queue = &self.kq.queue;
        let options = if self.has(ev::DISABLE) { self.options.off() } else { self.options };
        let id = match (self.kind, beside) {
            (Kind::Descriptor { open, .. }, _) if self.kevent.filter == filter::VNODE => {
                let changes = other::changes(&self.kevent)?;
                queue.register_file(open.fd.path(), changes, token, options)
            }
            (Kind::Descriptor { open, .. }, _)
                if is_file_to_read(self.kevent.filter, open.what) =>
            {
                let grown = FileChanges::WRITE;
                let id = queue.register_file(open.fd.path(), grown, token, options);
                id.and_then(|id| queue.tell_again(id, grown.into()).map(|()| id))
            }
            (Kind::Descriptor { .. }, Some(first)) => {
                queue.register_beside(first, self.interest(), token, options)
            }
            (Kind::Descriptor { open, .. }, None) => {
                queue.register(&open.fd, self.interest(), token, options)
            }
            (Kind::User(_), _) => queue.register_user(token, options),
            (Kind::Counted, _) => return other::register(self, token, options),
        };
        id.map_err(errno)
    }

    fn interest(&self) -> Interest {
        if self.kevent.filter == filter::READ { Interest::READ } else { Interest::WRITE }
    }

    /// Added again: parameters change, and what is ready is told.
    fn again(&self, note: &mut Knote) -> Result<(), Errno> {
        (note.flags, note.udata) = (self.flags, self.kevent.udata);
        if let Kind::User(_) = note.kind {
            self.change_user(note)?;
            return self.turn(note, !self.has(ev::DISABLE));
        }
        (note.fflags, note.data) = (self.kevent.fflags, self.kevent.data);
        if let Kind::Descriptor { .. } = note.kind {
            note.kind = self.kind;
            self.watch_again(note)?;
        } else {
            other::again(self, note)?;
        }
        // The manual: adding an event enables it, unless EV_DISABLE says otherwise.
        self.turn(note, !self.has(ev::DISABLE))
    }

    /// The number may mean another file of the same identity, an eventfd or a FIFO that was opened again; and an edge has to be told again.
    fn watch_again(&self, note: &Knote) -> Result<(), Errno> {
        let Kind::Descriptor { open, .. } = note.kind else { return Ok(()) };
        let is_vnode = note.key.filter == filter::VNODE;
        let is_the_same = matches!(open.what, What::Socket | What::Pipe) && !note.has(ev::CLEAR);
        if is_vnode || is_the_same || open.what == What::File {
            return Ok(());
        }
        self.kq.queue.set_interest(note.id, self.interest()).map_err(errno)
    }

    /// Changed without EV_ADD.
    fn touch(&self, note: &mut Knote) -> Result<(), Errno> {
        // Some systems take udata from any change, some from EV_ADD alone: a null pointer is taken for none.
        if self.kevent.udata != 0 {
            note.udata = self.kevent.udata;
        }
        if let Kind::User(_) = note.kind {
            self.change_user(note)?;
        }
        if self.has(ev::ENABLE | ev::DISABLE) {
            self.turn(note, self.has(ev::ENABLE))?;
        }
        Ok(())
    }

    fn turn(&self, note: &mut Knote, on: bool) -> Result<(), Errno> {
        let queue = &self.kq.queue;
        note.is_disabled = !on;
        let turned = match on {
            true => self.look_again(note).and_then(|()| queue.turn_on(note.id)),
            false => queue.turn_off(note.id),
        };
        turned.map_err(errno)
    }

    /// Has looked at what the queue does not look at by itself: how many bytes there are.
    fn look_again(&self, note: &Knote) -> Result<(), EventError> {
        match note.kind {
            Kind::Descriptor { open, .. } if is_file_to_read(note.key.filter, open.what) => {
                self.kq.queue.tell_again(note.id, FileChanges::WRITE.into())
            }
            _ if note.waits_for_bytes() => self.kq.queue.trigger(note.id),
            _ => Ok(()),
        }
    }

    /// EVFILT_USER: the flags that are the program's, and whether it is triggered.
    fn change_user(&self, note: &mut Knote) -> Result<(), Errno> {
        let given = self.kevent.fflags & note::FFLAGSMASK;
        match self.kevent.fflags & note::FFCOPY {
            note::FFAND => note.fflags &= given,
            note::FFOR => note.fflags |= given,
            note::FFCOPY => note.fflags = given,
            _ => {}
        }
        note.data = self.kevent.data;
        if self.has(ev::CLEAR) {
            note.kind = Kind::User(false);
        }
        self.trigger(note)
    }

    fn trigger(&self, note: &mut Knote) -> Result<(), Errno> {
        if self.kevent.fflags & note::TRIGGER == 0 {
            return Ok(());
        }
        note.kind = Kind::User(true);
        self.kq.queue.trigger(note.id).map_err(errno)
    }
}

/// Whether it is a file that is read: ready while its offset is not at its end, which is looked at when it was written to.
pub fn is_file_to_read(filter: i16, what: What) -> bool {
    filter == filter::READ && what == What::File
}
