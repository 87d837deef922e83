//! The queues that a thread is a worker of (K1).

use crate::error::errno;
use crate::registry::Kqueue;
use heddle_events::{EventOptions, Worker};
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A thread's place in a queue.
pub struct Place {
    pub kq: Arc<Kqueue>,
    pub worker: Worker,
}

/// All places of a thread. They are left when it ends.
struct Places {
    process: u32,
    list: Vec<Place>,
}

impl Drop for Places {
    fn drop(&mut self) {
        // In a child of fork(2) they are the parent's: to leave would change the epolls that it shares (K5).
        if self.process != std::process::id() {
            std::mem::forget(std::mem::take(&mut self.list));
        }
    }
}

thread_local! {
    static PLACES: RefCell<Places> = const { RefCell::new(Places { process: 0, list: Vec::new() }) };
}

/// Calls `with` with the places of this thread. Refused in a handler of a signal that interrupts another call, and while the thread ends.
fn places<T>(with: impl FnOnce(&mut Places) -> Result<T, Errno>) -> Result<T, Errno> {
    let borrowed = PLACES.try_with(|places| {
        let mut places = places.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
        let process = std::process::id();
        if places.process != process {
            std::mem::forget(std::mem::take(&mut places.list));
            places.process = process;
        }
        with(&mut places)
    });
    borrowed.unwrap_or(Err(Errno::BADF))
}

/// The queue that this thread is a worker of under that number, if it is.
pub fn known(number: RawFd) -> Option<Arc<Kqueue>> {
    let find = |places: &mut Places| {
        Ok(places
            .list
            .iter()
            .find(|place| place.kq.number == number)
            .map(|place| Arc::clone(&place.kq)))
    };
    places(find).ok().flatten()
}

/// Calls `with` with this thread's place in `kq`, which it takes if it has none.
pub fn at<T>(
    kq: &Arc<Kqueue>,
    with: impl FnOnce(&mut Place) -> Result<T, Errno>,
) -> Result<T, Errno> {
    places(|places| {
        let found = places.list.iter().position(|place| Arc::ptr_eq(&place.kq, kq));
        let index = match found {
            Some(index) => index,
            None => {
                let worker = kq.queue.worker().map_err(errno)?;
                // One of the same number has ended, or its program would not have got the number again.
                places.list.retain(|place| place.kq.number != kq.number);
                places.list.push(Place { kq: Arc::clone(kq), worker });
                places.list.len() - 1
            }
        };
        with(&mut places.list[index])
    })
}

/// Pins what is registered with `options` to this thread.
pub fn pinned(kq: &Arc<Kqueue>, options: EventOptions) -> Result<EventOptions, Errno> {
    at(kq, |place| Ok(options.pin(&place.worker)))
}

/// Leaves a queue: what this thread holds is told to others.
pub fn leave(number: RawFd) -> Result<(), Errno> {
    places(|places| {
        let before = places.list.len();
        places.list.retain(|place| place.kq.number != number);
        if places.list.len() == before { Err(Errno::NOENT) } else { Ok(()) }
    })
}
