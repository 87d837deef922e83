//! From a delivered event to the report that the program gets.

use crate::counted;
use crate::descriptor::{FileKind, Open};
use crate::notes::{Knote, KnoteKind, LockedShard};
use crate::raw::{Kevent, ev, filter, note};
use crate::registry::Kqueue;
use heddle_events::Fired;
use heddle_sys::epoll::{BROKEN, READ, WRITE};

/// The peer has closed its side.
const ENDED: u32 = libc::EPOLLRDHUP as u32;
const FAILED: u32 = libc::EPOLLERR as u32;

/// The variable part of a report.
struct Report {
    data: u64,
    fflags: u32,
    eof: bool,
}

/// Returns the report of an event. None if its knote has ended or has nothing to report.
pub fn report(kq: &Kqueue, fired: &Fired) -> Option<Kevent> {
    let (mut shard, index) = kq.notes.of_token(fired.token);
    let note = *shard.at(index).filter(|note| note.id == fired.id)?;
    if !is_its_descriptor(&note) {
        forget(kq, &mut shard, &note);
        return None;
    }
    let Some(report) = report_of(&mut shard, index, &note, fired) else {
        if note.key.filter == filter::PROC {
            // It has ended, and that was not asked for: there is nothing left to wait for.
            forget(kq, &mut shard, &note);
        } else if note.has(ev::DISPATCH) && !note.is_disabled {
            // An event that is not reported does not turn the knote off.
            let _ = kq.queue.turn_on(note.id);
        }
        return None;
    };
    if note.has(ev::ONESHOT) {
        forget(kq, &mut shard, &note);
    } else if !note.has(ev::CLEAR) {
        report_again(kq, &note, fired);
    }
    Some(kevent(&note, &report))
}

/// Returns false if its descriptor was closed, and the number may mean another file now (K3).
fn is_its_descriptor(note: &Knote) -> bool {
    match note.kind {
        KnoteKind::Descriptor { open, .. } => {
            open.fd.inspect().is_ok_and(|now| now.identity == open.identity)
        }
        KnoteKind::User(_) | KnoteKind::Counted => true,
    }
}

fn report_of(
    shard: &mut LockedShard<'_>,
    index: usize,
    note: &Knote,
    fired: &Fired,
) -> Option<Report> {
    match note.kind {
        KnoteKind::Descriptor { open, connected } => of_descriptor(note, open, connected, fired),
        KnoteKind::User(is_triggered) => of_user(shard, index, note, is_triggered),
        KnoteKind::Counted => {
            let (data, fflags, eof) = counted::report(note, fired)?;
            Some(Report { data, fflags, eof })
        }
    }
}

fn kevent(note: &Knote, report: &Report) -> Kevent {
    let eof = if report.eof { ev::EOF } else { 0 };
    Kevent {
        ident: note.key.ident,
        filter: note.key.filter,
        flags: note.flags | eof,
        fflags: report.fflags,
        data: report.data.cast_signed(),
        udata: note.udata,
    }
}

fn forget(kq: &Kqueue, shard: &mut LockedShard<'_>, note: &Knote) {
    shard.remove(note.key);
    // Fails only if its queue has ended.
    let _ = kq.queue.deregister(note.id);
}

fn of_descriptor(note: &Knote, open: Open, connected: bool, fired: &Fired) -> Option<Report> {
    match (note.key.filter, open.kind) {
        _ if fired.is_idle() => Some(Report { data: 0, fflags: note::IDLE, eof: false }),
        (filter::VNODE, _) => {
            Some(Report { data: 0, fflags: counted::changed(fired)?, eof: false })
        }
        (filter::READ, FileKind::File) => {
            let reports_at_end = note.fflags & note::FILE_POLL != 0;
            let data = Some(open.to_read()).filter(|&data| data > 0 || reports_at_end)?;
            Some(Report { data, fflags: 0, eof: false })
        }
        (filter::READ, _) => readable(note, open, connected, fired),
        _ => writable(open),
    }
}

/// Where no second report follows, bytes and the end are reported together.
fn readable(note: &Knote, open: Open, connected: bool, fired: &Fired) -> Option<Report> {
    let is_known = fired.ready & READ != 0 && fired.ready & (ENDED | BROKEN) == 0;
    let follows = !note.has(ev::CLEAR | ev::ONESHOT | ev::DISPATCH) && !note.waits_for_bytes();
    let unread = if is_known && follows { open.fd.unread().unwrap_or(0) } else { 0 };
    if unread > 0 {
        // The queue checks it once more when it is released, and the end is reported then.
        return Some(Report { data: unread, fflags: 0, eof: false });
    }
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
    // Programs ask the socket for the error of a connection that could not be made, and it answers only once.
    let fflags = if eof && connected { open.fd.take_error() } else { 0 };
    Some(Report { data, fflags, eof })
}

fn writable(open: Open) -> Option<Report> {
    let ready = open.fd.ready(WRITE);
    if ready == 0 {
        return None;
    }
    let ends = if open.kind == FileKind::Socket { BROKEN & !FAILED } else { BROKEN };
    Some(Report { data: open.to_write(), fflags: 0, eof: ready & ends != 0 })
}

fn of_user(
    shard: &mut LockedShard<'_>,
    index: usize,
    note: &Knote,
    is_triggered: bool,
) -> Option<Report> {
    if !is_triggered {
        return None;
    }
    if note.has(ev::CLEAR) {
        shard.at(index)?.kind = KnoteKind::User(false);
    }
    Some(Report { data: note.data.cast_unsigned(), fflags: note.fflags, eof: false })
}

/// Without EV_CLEAR, a condition that holds is reported again when this thread releases the event. The queue
/// checks readiness by itself.
fn report_again(kq: &Kqueue, note: &Knote, fired: &Fired) {
    // Both fail only if the queue is closed.
    let _ = match note.kind {
        KnoteKind::User(_) => kq.queue.trigger(note.id),
        KnoteKind::Descriptor { .. } if note.waits_for_bytes() => kq.queue.trigger(note.id),
        _ if fired.data != 0 => kq.queue.notify(note.id, fired.data),
        _ => Ok(()),
    };
}
