//! The queues of which a thread is a worker (K1).

use crate::error::errno;
use crate::registry::Kqueue;
use heddle_events::{EventOptions, Worker};
use heddle_sys::fork;
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A thread's membership in a queue.
pub struct Membership {
    pub kq: Arc<Kqueue>,
    pub worker: Worker,
}

/// All memberships of a thread, which end with it.
struct Memberships {
    /// [`fork::generation`] when the list was begun.
    process: u32,
    list: Vec<Membership>,
}

impl Drop for Memberships {
    fn drop(&mut self) {
        // In a child of fork(2) they belong to the parent: leaving would change the epolls that it shares
        // (K5).
        if self.process != fork::generation() {
            std::mem::forget(std::mem::take(&mut self.list));
        }
    }
}

thread_local! {
    static MEMBERSHIPS: RefCell<Memberships> = const { RefCell::new(Memberships { process: 0, list: Vec::new() }) };
}

/// Calls `with` with this thread's memberships. Fails in a signal handler that interrupts another call, and
/// while the thread ends.
fn memberships<T>(with: impl FnOnce(&mut Memberships) -> Result<T, Errno>) -> Result<T, Errno> {
    let borrowed = MEMBERSHIPS.try_with(|memberships| {
        let mut memberships = memberships.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
        let process = fork::generation();
        if memberships.process != process {
            std::mem::forget(std::mem::take(&mut memberships.list));
            memberships.process = process;
        }
        with(&mut memberships)
    });
    borrowed.unwrap_or(Err(Errno::BADF))
}

/// Returns the queue with this number of which this thread is a worker.
pub fn find(number: RawFd) -> Option<Arc<Kqueue>> {
    let find = |memberships: &mut Memberships| {
        Ok(memberships
            .list
            .iter()
            .find(|membership| membership.kq.number == number)
            .map(|membership| Arc::clone(&membership.kq)))
    };
    memberships(find).ok().flatten()
}

/// Calls `with` with this thread's membership in `kq`, joining it first if necessary.
pub fn at<T>(
    kq: &Arc<Kqueue>,
    with: impl FnOnce(&mut Membership) -> Result<T, Errno>,
) -> Result<T, Errno> {
    memberships(|memberships| {
        let found = memberships.list.iter().position(|membership| Arc::ptr_eq(&membership.kq, kq));
        let index = match found {
            Some(index) => index,
            None => {
                let worker = kq.queue.worker().map_err(errno)?;
                // Another queue of the same number has ended, or the program would not have got the number
                // again.
                memberships.list.retain(|membership| membership.kq.number != kq.number);
                memberships.list.push(Membership { kq: Arc::clone(kq), worker });
                memberships.list.len() - 1
            }
        };
        with(&mut memberships.list[index])
    })
}

/// Pins what is registered with `options` to this thread.
pub fn pinned(kq: &Arc<Kqueue>, options: EventOptions) -> Result<EventOptions, Errno> {
    at(kq, |membership| Ok(options.pin(&membership.worker)))
}

/// Leaves a queue: what this thread holds is reported to others.
pub fn leave(number: RawFd) -> Result<(), Errno> {
    memberships(|memberships| {
        let before = memberships.list.len();
        memberships.list.retain(|membership| membership.kq.number != number);
        if memberships.list.len() == before { Err(Errno::NOENT) } else { Ok(()) }
    })
}
