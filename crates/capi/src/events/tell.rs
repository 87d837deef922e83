//! From an event that a thread was given to what the program is told of it.

use super::descriptor::{Open, What};
use super::notes::{Kind, Knote, Locked};
use super::raw::{Kevent, ev, filter};
use super::registry::Kqueue;
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
    let Some(told) = told(kq, &mut shard, place, &note, fired) else {
        // What is not told does not turn it off.
        if note.has(ev::DISPATCH) && !note.is_disabled {
            let _ = kq.queue.turn_on(note.id);
        }
        return None;
    };
    if note.has(ev::ONESHOT) {
        forget(kq, &mut shard, &note);
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

fn told(
    kq: &Kqueue,
    shard: &mut Locked<'_>,
    place: usize,
    note: &Knote,
    fired: &Fired,
) -> Option<Told> {
    match note.kind {
        Kind::Descriptor { open, connected } => of_descriptor(note, open, connected, fired),
        Kind::User(is_triggered) => of_user(kq, shard, place, note, is_triggered),
        Kind::Counted => {
            let (data, fflags, eof) = super::other::told(note, fired)?;
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
        (filter::VNODE, _) => {
            let changes = u32::try_from(fired.data).ok().filter(|&changes| changes != 0)?;
            Some(Told { data: 0, fflags: changes, eof: false })
        }
        (filter::READ, What::File) => Some(Told { data: open.to_read(), fflags: 0, eof: false }),
        (filter::READ, _) => readable(note, open, connected, fired),
        _ => writable(open),
    }
}

/// What is level-triggered and has bytes needs no second look: its end is told when they are read.
fn readable(note: &Knote, open: Open, connected: bool, fired: &Fired) -> Option<Told> {
    let data = open.to_read();
    if data > 1 && !note.has(ev::CLEAR) && fired.ready & BROKEN == 0 {
        return Some(Told { data, fflags: 0, eof: false });
    }
    let ready = open.fd.ready(READ);
    if ready == 0 {
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

/// Without EV_CLEAR it stays triggered: it will be told again when this thread lets go of it.
fn of_user(
    kq: &Kqueue,
    shard: &mut Locked<'_>,
    place: usize,
    note: &Knote,
    is_triggered: bool,
) -> Option<Told> {
    if !is_triggered {
        return None;
    }
    if note.has(ev::CLEAR) {
        shard.at(place)?.kind = Kind::User(false);
    } else if !note.has(ev::ONESHOT) {
        // It fails only if the queue is closed.
        let _ = kq.queue.trigger(note.id);
    }
    Some(Told { data: note.data.cast_unsigned(), fflags: note.fflags, eof: false })
}
