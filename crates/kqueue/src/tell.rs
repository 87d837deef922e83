//! From an event that a thread was given to what the program is told of it.

use crate::descriptor::{Open, What};
use crate::notes::{Kind, Knote, Locked};
use crate::other;
use crate::raw::{Kevent, ev, filter, note};
use crate::registry::Kqueue;
use heddle_events::Fired;
use heddle_sys::epoll::{BROKEN, READ, WRITE};

/// The peer has ended its side.
const ENDED: u32 = libc::EPOLLRDHUP as u32;
const FAILED: u32 = libc::EPOLLERR as u32;

/// What `data`, `fflags` and whether it has ended a knote is told with.
struct Told {
    data: u64,
    fflags: u32,
    eof: bool,
}

/// What is told of an event. None if its knote is no more, or has nothing to tell.
pub fn tell(kq: &Kqueue, fired: &Fired) -> Option<Kevent> {
    let (mut shard, place) = kq.notes.of_token(fired.token);
    let note = *shard.at(place).filter(|note| note.id == fired.id)?;
    if !is_its_descriptor(&note) {
        forget(kq, &mut shard, &note);
        return None;
    }
    let Some(told) = told(&mut shard, place, &note, fired) else {
        if note.key.filter == filter::PROC {
            // It has ended, and nobody asked for that: there is nothing to wait for any more.
            forget(kq, &mut shard, &note);
        } else if note.has(ev::DISPATCH) && !note.is_disabled {
            // What is not told does not turn it off.
            let _ = kq.queue.turn_on(note.id);
        }
        return None;
    };
    if note.has(ev::ONESHOT) {
        forget(kq, &mut shard, &note);
    } else if !note.has(ev::CLEAR) {
        keep(kq, &note, fired);
    }
    Some(kevent(&note, &told))
}

/// False if its descriptor was closed, and the number may mean another file now (K3).
fn is_its_descriptor(note: &Knote) -> bool {
    match note.kind {
        Kind::Descriptor { open, .. } => {
            open.fd.look().is_ok_and(|now| now.identity == open.identity)
        }
        Kind::User(_) | Kind::Counted => true,
    }
}

fn told(shard: &mut Locked<'_>, place: usize, note: &Knote, fired: &Fired) -> Option<Told> {
    match note.kind {
        Kind::Descriptor { open, connected } => of_descriptor(note, open, connected, fired),
        Kind::User(is_triggered) => of_user(shard, place, note, is_triggered),
        Kind::Counted => {
            let (data, fflags, eof) = other::told(note, fired)?;
            Some(Told { data, fflags, eof })
        }
    }
}

fn kevent(note: &Knote, told: &Told) -> Kevent {
    let eof = if told.eof { ev::EOF } else { 0 };
    Kevent {
        ident: note.key.ident,
        filter: note.key.filter,
        flags: note.flags | eof,
        fflags: told.fflags,
        data: told.data.cast_signed(),
        udata: note.udata,
    }
}

fn forget(kq: &Kqueue, shard: &mut Locked<'_>, note: &Knote) {
    shard.remove(note.key);
    // It has ended already only if its queue has.
    let _ = kq.queue.deregister(note.id);
}

fn of_descriptor(note: &Knote, open: Open, connected: bool, fired: &Fired) -> Option<Told> {
    match (note.key.filter, open.what) {
        (filter::VNODE, _) => Some(Told { data: 0, fflags: other::changed(fired)?, eof: false }),
        (filter::READ, What::File) => {
            let is_told_at_its_end = note.fflags & note::FILE_POLL != 0;
            let data = Some(open.to_read()).filter(|&data| data > 0 || is_told_at_its_end)?;
            Some(Told { data, fflags: 0, eof: false })
        }
        (filter::READ, _) => readable(note, open, connected),
        _ => writable(open),
    }
}

/// Bytes and the end are told together: whoever knows of both need not ask again.
fn readable(note: &Knote, open: Open, connected: bool) -> Option<Told> {
    let ready = open.fd.ready(READ);
    if ready == 0 {
        return None;
    }
    let data = open.to_read();
    let is_short = note.waits_for_bytes() && data < note.data.max(0).unsigned_abs();
    if is_short && ready & (ENDED | BROKEN) == 0 {
        return None;
    }
    let eof = ready & (ENDED | BROKEN & !FAILED) != 0;
    // A connection that could not be made is what programs ask the socket about, which it answers once.
    let fflags = if eof && connected { open.fd.take_error() } else { 0 };
    Some(Told { data, fflags, eof })
}

fn writable(open: Open) -> Option<Told> {
    let ready = open.fd.ready(WRITE);
    if ready == 0 {
        return None;
    }
    let ends = if open.what == What::Socket { BROKEN & !FAILED } else { BROKEN };
    Some(Told { data: open.to_write(), fflags: 0, eof: ready & ends != 0 })
}

fn of_user(shard: &mut Locked<'_>, place: usize, note: &Knote, is_triggered: bool) -> Option<Told> {
    if !is_triggered {
        return None;
    }
    if note.has(ev::CLEAR) {
        shard.at(place)?.kind = Kind::User(false);
    }
    Some(Told { data: note.data.cast_unsigned(), fflags: note.fflags, eof: false })
}

/// Without EV_CLEAR what is so stays so: it is told again when this thread lets go of it. Readiness the queue looks at by itself.
fn keep(kq: &Kqueue, note: &Knote, fired: &Fired) {
    // Both fail only if the queue is closed.
    let _ = match note.kind {
        Kind::User(_) => kq.queue.trigger(note.id),
        Kind::Descriptor { .. } if note.waits_for_bytes() => kq.queue.trigger(note.id),
        _ if fired.data != 0 => kq.queue.tell_again(note.id, fired.data),
        _ => Ok(()),
    };
}
