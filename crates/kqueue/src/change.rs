//! Changes of the change list.

use crate::descriptor::{Fd, FileKind, Open};
use crate::error::errno;
use crate::notes::{Key, Knote, KnoteKind, LockedShard};
use crate::raw::{Kevent, ev, filter, note};
use crate::registry::{self, Kqueue};
use crate::{counted, fflags, membership};
use heddle_events::{EventError, EventId, EventOptions, FileChanges, Interest};
use rustix::io::Errno;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

/// Flags that the system sets in its reports; programs hand them back in.
const SYSTEM: u16 = 0xf000;

/// A change to be made.
struct Change<'a> {
    kq: &'a Arc<Kqueue>,
    kevent: Kevent,
    /// The flags that the knote will have: those asked for, those that its filter sets, and those that it
    /// keeps for life.
    flags: u16,
    options: EventOptions,
    /// The kind of knote, if one is made.
    kind: KnoteKind,
}

/// Makes one change.
pub fn apply(kq: &Arc<Kqueue>, kevent: &Kevent) -> Result<(), Errno> {
    let kevent = Kevent { flags: kevent.flags & !SYSTEM, ..*kevent };
    if kevent.flags & !ev::VALID != 0 {
        return Err(Errno::INVAL);
    }
    let mut options = EventOptions::default();
    // Pinning may make this thread a worker. It is not done under a shard's lock, because other threads
    // deliver events meanwhile.
    if kevent.flags & ev::AFFINITY != 0 && kevent.flags & ev::ADD != 0 {
        options = membership::pinned(kq, options)?;
    }
    fflags::check(&kevent)?;
    let mut shard = kq.notes.shard(kevent.ident);
    let kind = kind_of(kq, &mut shard, &kevent)?;
    let flags = flags_of(&kevent, shard.find(Key { filter: kevent.filter, ident: kevent.ident }));
    let options = with_flags(options, flags);
    // Such a knote waits for more than readiness: it is checked on each activity, and most of that is not
    // reported.
    let options = if kevent.waits_for_bytes() { options.edge() } else { options };
    Change { kq, kevent, flags, options, kind }.make(&mut shard)
}

/// Returns the flags of a new knote, or of `present` when it is added again.
fn flags_of(kevent: &Kevent, present: Option<&mut Knote>) -> u16 {
    let asked = kevent.flags & ev::KEPT;
    match present {
        None => asked | counted::implied(kevent),
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

fn kind_of(kq: &Kqueue, shard: &mut LockedShard<'_>, kevent: &Kevent) -> Result<KnoteKind, Errno> {
    match kevent.filter {
        filter::READ | filter::WRITE | filter::VNODE => descriptor(kq, shard, kevent),
        filter::USER => Ok(KnoteKind::User(false)),
        which if counted::is_counted(which) => Ok(KnoteKind::Counted),
        _ => Err(Errno::INVAL),
    }
}

/// Requires the descriptor to be open, and ends what was registered under its number before it was closed
/// (K3).
fn descriptor(
    kq: &Kqueue,
    shard: &mut LockedShard<'_>,
    kevent: &Kevent,
) -> Result<KnoteKind, Errno> {
    let open = Fd::of(kevent.ident).and_then(Fd::inspect);
    for note in shard.purge(kevent.ident, open.ok().map(|open| open.identity)) {
        // Fails only if its queue has ended.
        let _ = kq.queue.deregister(note.id);
    }
    let open = open?;
    let is_added = kevent.flags & ev::ADD != 0;
    if is_added && is_refused(kevent, &open) {
        return Err(Errno::INVAL);
    }
    let connected = is_added && open.kind == FileKind::Socket && open.fd.has_peer();
    Ok(KnoteKind::Descriptor { open, connected })
}

fn is_refused(kevent: &Kevent, open: &Open) -> bool {
    match kevent.filter {
        filter::VNODE if !open.has_inode() => true,
        // It is unclear which of the threads that wait on one queue would be notified about the other.
        _ => registry::is_queue(open.fd.as_raw_fd()),
    }
}

impl Change<'_> {
    fn key(&self) -> Key {
        Key { filter: self.kevent.filter, ident: self.kevent.ident }
    }

    fn has(&self, flag: u16) -> bool {
        self.kevent.flags & flag != 0
    }

    fn make(&self, shard: &mut LockedShard<'_>) -> Result<(), Errno> {
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
                self.add_again(note)
            }
            Some(note) => self.modify(note),
            None if self.has(ev::ADD) && !self.has(ev::DELETE) => self.add(shard),
            None => Err(Errno::NOENT),
        }
    }

    fn delete(&self, shard: &mut LockedShard<'_>) -> Result<(), Errno> {
        let note = shard.remove(self.key()).ok_or(Errno::NOENT)?;
        self.kq.queue.deregister(note.id).map_err(errno)
    }

    fn add(&self, shard: &mut LockedShard<'_>) -> Result<(), Errno> {
        let sibling = self.sibling(shard);
        shard.add(|token| {
            let id = self.register(sibling, token)?;
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
            if let KnoteKind::User(_) = self.kind {
                note.fflags &= note::FFLAGSMASK;
                self.trigger(&mut note)?;
            }
            Ok(note)
        })
    }

    /// Returns the event of the other filter on the same descriptor. A file's events are not registered
    /// through its descriptor.
    fn sibling(&self, shard: &mut LockedShard<'_>) -> Option<EventId> {
        if matches!(self.kind, KnoteKind::Descriptor { open, .. } if open.kind == FileKind::File) {
            return None;
        }
        let of = match self.kevent.filter {
            filter::READ => filter::WRITE,
            filter::WRITE => filter::READ,
            _ => return None,
        };
        shard.find(Key { filter: of, ident: self.kevent.ident }).map(|note| note.id)
    }

    fn register(&self, sibling: Option<EventId>, token: u64) -> Result<EventId, Errno> {
        let queue = &self.kq.queue;
        let options = if self.has(ev::DISABLE) { self.options.off() } else { self.options };
        let id = match (self.kind, sibling) {
            (KnoteKind::Descriptor { open, .. }, _) if self.kevent.filter == filter::VNODE => {
                let changes = counted::changes(&self.kevent)?;
                queue.register_file(open.fd.path(), changes, token, options)
            }
            (KnoteKind::Descriptor { open, .. }, _)
                if is_file_to_read(self.kevent.filter, open.kind) =>
            {
                let grown = FileChanges::WRITE;
                let id = queue.register_file(open.fd.path(), grown, token, options);
                id.and_then(|id| queue.notify(id, grown.into()).map(|()| id))
            }
            (KnoteKind::Descriptor { .. }, Some(first)) => {
                queue.register_second(first, self.interest(), token, options)
            }
            (KnoteKind::Descriptor { open, .. }, None) => {
                queue.register(&open.fd, self.interest(), token, options)
            }
            (KnoteKind::User(_), _) => queue.register_user(token, options),
            (KnoteKind::Counted, _) => {
                return counted::register(queue, &self.kevent, self.flags, token, options);
            }
        };
        id.map_err(errno)
    }

    fn interest(&self) -> Interest {
        if self.kevent.filter == filter::READ { Interest::READ } else { Interest::WRITE }
    }

    /// Applies a repeated EV_ADD: parameters change, and what is ready is reported.
    fn add_again(&self, note: &mut Knote) -> Result<(), Errno> {
        (note.flags, note.udata) = (self.flags, self.kevent.udata);
        if let KnoteKind::User(_) = note.kind {
            self.change_user(note)?;
            return self.turn(note, !self.has(ev::DISABLE));
        }
        (note.fflags, note.data) = (self.kevent.fflags, self.kevent.data);
        if let KnoteKind::Descriptor { .. } = note.kind {
            note.kind = self.kind;
            self.rewatch(note)?;
        } else {
            counted::add_again(&self.kq.queue, &self.kevent, note)?;
        }
        // The manual: adding an event enables it, unless EV_DISABLE says otherwise.
        self.turn(note, !self.has(ev::DISABLE))
    }

    /// The number may now mean another file of the same identity (an eventfd, or a FIFO that was opened
    /// again), and an edge must be reported again.
    fn rewatch(&self, note: &Knote) -> Result<(), Errno> {
        let KnoteKind::Descriptor { open, .. } = note.kind else { return Ok(()) };
        let is_vnode = note.key.filter == filter::VNODE;
        let is_the_same =
            matches!(open.kind, FileKind::Socket | FileKind::Pipe) && !note.has(ev::CLEAR);
        if is_vnode || is_the_same || open.kind == FileKind::File {
            return Ok(());
        }
        self.kq.queue.set_interest(note.id, self.interest()).map_err(errno)
    }

    /// Applies a change without EV_ADD.
    fn modify(&self, note: &mut Knote) -> Result<(), Errno> {
        // Some systems take udata from any change, some from EV_ADD alone. A null pointer counts as not
        // given.
        if self.kevent.udata != 0 {
            note.udata = self.kevent.udata;
        }
        if let KnoteKind::User(_) = note.kind {
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
            true => self.check_again(note).and_then(|()| queue.turn_on(note.id)),
            false => queue.turn_off(note.id),
        };
        turned.map_err(errno)
    }

    /// Triggers a check of what the queue does not check itself: the number of bytes.
    fn check_again(&self, note: &Knote) -> Result<(), EventError> {
        match note.kind {
            KnoteKind::Descriptor { open, .. } if is_file_to_read(note.key.filter, open.kind) => {
                self.kq.queue.notify(note.id, FileChanges::WRITE.into())
            }
            _ if note.waits_for_bytes() => self.kq.queue.trigger(note.id),
            _ => Ok(()),
        }
    }

    /// EVFILT_USER: changes the program's flags, and triggers if asked.
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
            note.kind = KnoteKind::User(false);
        }
        self.trigger(note)
    }

    fn trigger(&self, note: &mut Knote) -> Result<(), Errno> {
        if self.kevent.fflags & note::TRIGGER == 0 {
            return Ok(());
        }
        note.kind = KnoteKind::User(true);
        self.kq.queue.trigger(note.id).map_err(errno)
    }
}

/// Whether this is EVFILT_READ on a file: ready while its offset is not at its end, which is checked whenever
/// it is written to.
pub fn is_file_to_read(filter: i16, kind: FileKind) -> bool {
    filter == filter::READ && kind == FileKind::File
}
