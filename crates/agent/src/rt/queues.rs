//! Queues: rings that are read without a system call, and slept on with one.

use super::Rt;
use super::live::GONE;
use crate::BackendError;
use crate::model::{FromWords as _, Message, QueueId};
use heddle_core::Ns;
use heddle_sys::bpf::{Map, MapKind, MapSpec, Ring};
use heddle_sys::epoll::{Epoll, Events};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, RwLock};

/// Bytes of a queue's ring: room for 4681 messages of 48 bytes, with their headers.
const RING_BYTES: u32 = 1 << 18;

/// A queue that this process has opened.
pub(super) struct Channel {
    ring: Ring,
    epoll: Epoll,
    events: Mutex<Events>,
}

/// The queues that this process has opened, by number.
#[derive(Default)]
pub(super) struct Channels(RwLock<Vec<Option<Arc<Channel>>>>);

impl Channel {
    fn new(ring: Map) -> io::Result<Channel> {
        let (ring, epoll) = (Ring::new(ring)?, Epoll::new()?);
        epoll.add(ring.as_fd(), 0)?;
        Ok(Channel { ring, epoll, events: Mutex::new(Events::with_capacity(2)) })
    }

    /// The oldest message; one of a kind that is unknown is no message.
    pub(super) fn next(&self) -> Option<Message> {
        std::iter::from_fn(|| self.ring.next()).find_map(|words| Message::from_words(words).ok())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(super) fn wait(&self, timeout: Option<Ns>) {
        let mut events = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.epoll.wait(&mut events, timeout);
    }

    pub(super) fn wake(&self) {
        self.epoll.ring();
    }
}

impl Rt {
    fn has_queue(&self, queue: QueueId) -> bool {
        let is_there = |queue| self.memory.queue(queue).enclave().load(Acquire) != 0;
        (queue.0 as usize) < self.memory.queue_room() && is_there(queue.0)
    }

    /// `queue`, opened where another process has made it.
    pub(super) fn channel(&self, queue: QueueId) -> Option<Arc<Channel>> {
        let at = queue.0 as usize;
        let read = |channels: &Vec<Option<Arc<Channel>>>| channels.get(at).cloned().flatten();
        let known = read(&self.channels.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()));
        known.or_else(|| self.has_queue(queue).then(|| self.open_queue(queue).ok()).flatten())
    }

    fn open_queue(&self, queue: QueueId) -> io::Result<Arc<Channel>> {
        let id = self.memory.rings.lookup(&queue.0.to_ne_bytes())?;
        let id = id.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes);
        let ring = Map::by_id(id.ok_or(io::ErrorKind::NotFound)?)?;
        Ok(self.keep(queue, Channel::new(ring)?))
    }

    fn keep(&self, queue: QueueId, channel: Channel) -> Arc<Channel> {
        let channel = Arc::new(channel);
        self.put(queue, Some(Arc::clone(&channel)));
        channel
    }

    fn put(&self, queue: QueueId, channel: Option<Arc<Channel>>) {
        let mut channels = self.channels.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let room = channels.len().max(queue.0 as usize + 1);
        channels.resize_with(room, || None);
        channels[queue.0 as usize] = channel;
    }

    pub(super) fn make_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        let room = self.memory.queue_room();
        let take = |at: &u32| {
            let enclave = self.memory.queue(*at).enclave();
            enclave.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
        };
        let at = (0..room as u32).find(take).ok_or(BackendError::NoRoom(room))?;
        let words = self.memory.queue(at);
        words.wakeup().store(wakes.into(), Relaxed);
        words.associated().store(0, Relaxed);
        self.make_ring(QueueId(at)).map_err(|source| {
            words.enclave().store(0, Release);
            BackendError::System { what: "making a queue".into(), source }
        })?;
        Ok(QueueId(at))
    }

    fn make_ring(&self, queue: QueueId) -> io::Result<()> {
        let (name, kind) = ("heddle_ring".to_owned(), MapKind::RingBuffer);
        let spec = MapSpec {
            name,
            kind,
            key_size: 0,
            value_size: 0,
            entries: RING_BYTES,
            read_only: false,
        };
        let ring = Map::create(&spec)?;
        self.memory.rings.put_fd(queue.0, ring.as_fd())?;
        self.keep(queue, Channel::new(ring)?);
        Ok(())
    }

    pub(super) fn set_wakes(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        if !self.has_queue(queue) {
            return Err(BackendError::NoQueue(queue));
        }
        self.memory.queue(queue.0).wakeup().store(wakes.into(), Release);
        Ok(())
    }

    pub(super) fn drop_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        if !self.has_queue(queue) {
            return Err(BackendError::NoQueue(queue));
        }
        let words = self.memory.queue(queue.0);
        let associated = words.associated().load(Acquire);
        let is_default = self.memory.default_queue().load(Relaxed) == queue.0;
        if associated > 0 || is_default {
            return Err(BackendError::InUse(queue, associated));
        }
        self.forget_queue(queue);
        Ok(())
    }

    /// The queue is nobody's; its sequence number stays, so that it never goes back.
    fn forget_queue(&self, queue: QueueId) {
        let _ = self.memory.rings.remove(&queue.0.to_ne_bytes());
        self.put(queue, None);
        self.memory.queue(queue.0).enclave().store(0, Release);
    }

    /// What another agent has left: all threads' messages go to the default queue again.
    pub(super) fn reset_queues(&self) {
        let default = self.memory.default_queue().load(Relaxed);
        let slots = 0..self.memory.slots();
        let threads = slots.map(|slot| self.memory.thread(slot));
        let managed = threads.filter(|t| t.tid().load(Acquire) != 0 && t.live().state() != GONE);
        let moved = managed.map(|thread| thread.queue().store(default, Release)).count();
        self.memory.queue(default).associated().store(moved as u64, Relaxed);
        let others = (0..self.memory.queue_room() as u32).filter(|queue| *queue != default);
        for queue in others.map(QueueId).filter(|queue| self.has_queue(*queue)) {
            self.memory.queue(queue.0).associated().store(0, Relaxed);
            self.forget_queue(queue);
        }
        for cpu in &self.cpus {
            self.memory.cpu(cpu.os_id).queue().store(default, Relaxed);
        }
    }
}
