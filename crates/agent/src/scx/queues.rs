//! Message queues: rings in the kernel, and this process's ends of them.

use super::memory::Memory;
use heddle_bpf::{Map, MapKind, MapSpec, Ring};
use heddle_core::Ns;
use heddle_sys::epoll::{Epoll, Events};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::{Arc, PoisonError, RwLock};

/// This process's end of a queue.
#[derive(Debug)]
pub(super) struct End {
    pub(super) ring: Ring,
    epoll: Epoll,
}

impl End {
    fn open(memory: &Memory, queue: u32) -> io::Result<End> {
        let id = memory.rings.lookup(&queue.to_ne_bytes())?.unwrap_or_default();
        let id = <[u8; 4]>::try_from(&id[..]).map_err(|_| io::ErrorKind::NotFound)?;
        let ring = Ring::new(Map::by_id(u32::from_ne_bytes(id))?)?;
        let epoll = Epoll::new()?;
        epoll.add(ring.as_fd(), 0)?;
        Ok(End { ring, epoll })
    }

    pub(super) fn wait(&self, timeout: Option<Ns>) {
        if self.ring.is_empty() {
            self.epoll.wait(&mut Events::with_capacity(2), timeout);
        }
    }

    pub(super) fn wake(&self) {
        self.epoll.ring();
    }
}

/// The ends opened so far.
#[derive(Debug)]
pub(super) struct Ends(Box<[RwLock<Option<Arc<End>>>]>);

impl Ends {
    pub(super) fn new(room: usize) -> Ends {
        Ends((0..room).map(|_| RwLock::default()).collect())
    }

    /// Calls `f` with the end of `queue`, and opens it first if necessary.
    pub(super) fn with<T>(
        &self,
        memory: &Memory,
        queue: u32,
        f: impl FnOnce(&End) -> T,
    ) -> Option<T> {
        let place = self.0.get(queue as usize)?;
        if let Some(end) = &*place.read().unwrap_or_else(PoisonError::into_inner) {
            return Some(f(end));
        }
        Some(f(&*self.opened(memory, queue)?))
    }

    /// Returns the end, for a caller that sleeps on it.
    pub(super) fn opened(&self, memory: &Memory, queue: u32) -> Option<Arc<End>> {
        let mut place = self.0.get(queue as usize)?.write().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = End::open(memory, queue).ok().map(Arc::new);
        }
        place.clone()
    }

    pub(super) fn close(&self, queue: u32) {
        if let Some(place) = self.0.get(queue as usize) {
            *place.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Makes a queue for enclave `id`. `OutOfMemory` if all are in use.
pub(super) fn make(memory: &Memory, id: u32, bytes: u32, wakes: bool) -> io::Result<u32> {
    let queue = (0..memory.queue_room() as u32).find(|&queue| take(memory, queue, id));
    let queue = queue.ok_or(io::ErrorKind::OutOfMemory)?;
    for word in 1..8 {
        memory.queue_word(queue, word).store(0, Relaxed);
    }
    memory.queue_wakeup(queue).store(u32::from(wakes), Release);
    let made = put_ring(memory, queue, bytes);
    if made.is_err() {
        destroy(memory, queue);
    }
    made.map(|()| queue)
}

fn take(memory: &Memory, queue: u32, id: u32) -> bool {
    memory.queue_enclave(queue).compare_exchange(0, id, AcqRel, Relaxed).is_ok()
}

fn put_ring(memory: &Memory, queue: u32, bytes: u32) -> io::Result<()> {
    let ring = Map::create(&MapSpec {
        name: format!("hd_ring{queue}"),
        kind: MapKind::RingBuffer,
        key_size: 0,
        value_size: 0,
        entries: bytes,
        read_only: false,
    })?;
    memory.rings.put_fd(queue, ring.as_fd())
}

pub(super) fn destroy(memory: &Memory, queue: u32) {
    // It does not exist if making it failed.
    let _ = memory.rings.remove(&queue.to_ne_bytes());
    memory.queue_enclave(queue).store(0, Release);
}

/// Returns the queues of enclave `id`.
pub(super) fn of(memory: &Memory, id: u32) -> Vec<u32> {
    let mine = |queue: &u32| memory.queue_enclave(*queue).load(Relaxed) == id;
    (0..memory.queue_room() as u32).filter(mine).collect()
}
