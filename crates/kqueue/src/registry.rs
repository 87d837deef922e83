//! The queues of the process, by the numbers of their descriptors.
//!
//! A queue's descriptor is the read end of a pipe whose other end the library keeps. When the program closes
//! its end, as it would close a kqueue, the other end breaks: an event of the queue like any other, which is
//! delivered to a waiting thread. If none waits, the numbers are checked when the next queue is made.

use crate::descriptor::{self, Fd, Identity};
use crate::error::errno;
use crate::notes::Notes;
use heddle_events::{EventOptions, EventQueue, Interest};
use heddle_sys::fork;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::PipeWriter;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// The token of the event that reports that the program has closed the queue's descriptor.
pub const CLOSED: u64 = u64::MAX;
/// The policy of queues for which the program chooses none.
const POLICY: &str = "HEDDLE_KQUEUE_POLICY";
/// The smallest and the largest capacity of a queue, in knotes. Between them it is the smallest plus two for
/// each descriptor that the process may have.
const ROOM: std::ops::RangeInclusive<u64> = 2_048..=131_072;

/// A queue.
pub struct Kqueue {
    pub queue: EventQueue,
    pub notes: Notes,
    pub number: RawFd,
    identity: Identity,
    ended: AtomicBool,
    _end: PipeWriter,
}

struct Registry {
    /// [`fork::generation`] of the process that made it.
    process: u32,
    queues: Mutex<HashMap<RawFd, Arc<Kqueue>>>,
}

static CURRENT: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the registry of this process. A child of fork(2) starts with none, in whatever state its parent's
/// locks were (K5).
fn registry() -> &'static Registry {
    let (process, find) = (fork::generation(), CURRENT.load(Ordering::Acquire));
    // SAFETY: null, or leaked below and only changed under its lock.
    if let Some(registry) = unsafe { find.as_ref() }
        && registry.process == process
    {
        return registry;
    }
    let fresh: &'static Registry =
        Box::leak(Box::new(Registry { process, queues: Mutex::default() }));
    let at = std::ptr::from_ref(fresh).cast_mut();
    match CURRENT.compare_exchange(find, at, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        // Another thread of this process was first.
        Err(_) => registry(),
    }
}

fn capacity() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let knotes = files.unwrap_or(*ROOM.end()).saturating_mul(2).saturating_add(*ROOM.start());
    knotes.min(*ROOM.end()) as usize
}

impl Kqueue {
    fn new(number: RawFd, end: PipeWriter) -> Result<Kqueue, Errno> {
        let identity = Fd::of(end.as_raw_fd() as usize)?.inspect()?.identity;
        let mut builder = EventQueue::builder().capacity(capacity());
        if let Ok(policy) = std::env::var(POLICY) {
            builder = builder.policy(&policy);
        }
        let queue = builder.build().map_err(errno)?;
        let watched = queue.register(&end, Interest::READ, CLOSED, EventOptions::default());
        watched.map_err(errno)?;
        Ok(Kqueue {
            queue,
            notes: Notes::default(),
            number,
            identity,
            ended: AtomicBool::new(false),
            _end: end,
        })
    }

    fn is_open(&self) -> bool {
        descriptor::is_same(self.number, self.identity)
    }

    /// Whether it is known that the program has closed it.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.queue.close();
    }
}

impl Registry {
    /// Ends the queues whose descriptors the program has closed.
    fn sweep(&self) {
        let mut ended = Vec::new();
        self.queues.lock().unwrap().retain(|_, kq| {
            let open = kq.is_open();
            if !open {
                ended.push(Arc::clone(kq));
            }
            open
        });
        ended.iter().for_each(|kq| kq.end());
    }
}

/// Makes a queue. Returns the number of its descriptor.
pub fn make() -> Result<RawFd, Errno> {
    let registry = registry();
    registry.sweep();
    let (here, end) =
        std::io::pipe().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let kq = Arc::new(Kqueue::new(here.as_raw_fd(), end)?);
    let old = registry.queues.lock().unwrap().insert(kq.number, kq);
    if let Some(old) = old {
        old.end();
    }
    Ok(here.into_raw_fd())
}

/// Returns the queue of a descriptor.
pub fn find(number: RawFd) -> Result<Arc<Kqueue>, Errno> {
    let found = registry().queues.lock().unwrap().get(&number).cloned().ok_or(Errno::BADF)?;
    if found.is_open() {
        return Ok(found);
    }
    end(&found);
    Err(Errno::BADF)
}

/// Whether the number belongs to a queue now: when the program closes a queue, its number is free for other
/// files at once.
pub fn is_queue(number: RawFd) -> bool {
    find(number).is_ok()
}

/// Ends a queue: threads that wait on it return.
pub fn end(kq: &Arc<Kqueue>) {
    let mut queues = registry().queues.lock().unwrap();
    if queues.get(&kq.number).is_some_and(|present| Arc::ptr_eq(present, kq)) {
        queues.remove(&kq.number);
    }
    drop(queues);
    kq.end();
}
