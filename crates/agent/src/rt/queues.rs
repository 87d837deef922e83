//! Queues: rings that are read without a system call; sleeping on one takes a system call.

use super::Rt;
use super::memory::QueueWords;
use super::state_word::GONE;
use crate::BackendError;
use crate::model::{FromWords as _, Message, QueueId};
use heddle_bpf::{Map, MapKind, MapSpec, Ring};
use heddle_core::Ns;
use heddle_sys::epoll::{Epoll, Events};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, RwLock};

/// The size of a queue's ring: room for 4681 messages of 48 bytes, with their headers.
const RING_BYTES: u32 = 1 << 18;

/// A queue that this process has opened.
pub(super) struct Channel {
    /// This process has made the queue.
    is_own: bool,
    ring: Ring,
    epoll: Epoll,
    events: Mutex<Events>,
}

/// The queues that this process has opened, by number.
#[derive(Default)]
pub(super) struct Channels(RwLock<Vec<Option<Arc<Channel>>>>);

impl Channel {
    fn new(ring: Map, is_own: bool) -> io::Result<Channel> {
        let (ring, epoll) = (Ring::new(ring)?, Epoll::new()?);
        epoll.add(ring.as_fd(), 0)?;
        Ok(Channel { is_own, ring, epoll, events: Mutex::new(Events::with_capacity(2)) })
    }

    /// Takes the oldest message. Messages of unknown kinds are skipped.
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
    fn queue_words(&self, queue: QueueId) -> Result<QueueWords<'_>, BackendError> {
        let words = self.memory.queue(queue.0);
        let there = words.filter(|words| words.enclave().load(Acquire) != 0);
        there.ok_or(BackendError::NoQueue(queue))
    }

    fn has_queue(&self, queue: QueueId) -> bool {
        self.queue_words(queue).is_ok()
    }

    /// Returns `queue` if this process has opened it.
    fn opened(&self, queue: QueueId) -> Option<Arc<Channel>> {
        let channels = self.channels.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        channels.get(queue.0 as usize).cloned().flatten()
    }

    fn is_own(&self, queue: QueueId) -> bool {
        self.opened(queue).is_some_and(|channel| channel.is_own)
    }

    /// Returns `queue`, and opens it first if another process has made it.
    pub(super) fn channel(&self, queue: QueueId) -> Option<Arc<Channel>> {
        let open = || self.has_queue(queue).then(|| self.open_queue(queue).ok()).flatten();
        self.opened(queue).or_else(open)
    }

    fn open_queue(&self, queue: QueueId) -> io::Result<Arc<Channel>> {
        let id = self.memory.rings.lookup(&queue.0.to_ne_bytes())?;
        let id = id.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes);
        let ring = Map::by_id(id.ok_or(io::ErrorKind::NotFound)?)?;
        Ok(self.keep(queue, Channel::new(ring, false)?))
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
        let take = |at| {
            let words = self.memory.queue(at)?;
            let taken = words.enclave().compare_exchange(0, 1, AcqRel, Relaxed);
            taken.is_ok().then_some((at, words))
        };
        let (at, words) = (0..room as u32).find_map(take).ok_or(BackendError::NoRoom(room))?;
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
        self.keep(queue, Channel::new(ring, true)?);
        Ok(())
    }

    pub(super) fn set_wakes(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        self.queue_words(queue)?.wakeup().store(wakes.into(), Release);
        Ok(())
    }

    pub(super) fn drop_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        let words = self.queue_words(queue)?;
        let associated = words.associated().load(Acquire);
        let is_default = self.memory.default_queue() == queue.0;
        if associated > 0 || is_default {
            return Err(BackendError::InUse(queue, associated));
        }
        self.forget_queue(queue, &words);
        Ok(())
    }

    /// Frees a queue. Its sequence number stays, so that it never goes back.
    fn forget_queue(&self, queue: QueueId, words: &QueueWords<'_>) {
        let _ = self.memory.rings.remove(&queue.0.to_ne_bytes());
        self.put(queue, None);
        words.enclave().store(0, Release);
    }

    /// Cleans up after another agent: its queues end, and all threads' messages go to the default queue again.
    /// Queues that this agent has made before it attached stay, and those of its CPUs.
    pub(super) fn reset_queues(&self) {
        let default = self.memory.default_queue();
        let slots = 0..self.memory.slots();
        let threads = slots.map(|slot| self.memory.thread(slot));
        let managed = threads.filter(|t| t.tid().load(Acquire) != 0 && t.live().state() != GONE);
        let moved = managed.map(|thread| thread.queue().store(default, Release)).count();
        for queue in (0..self.memory.queue_room() as u32).map(QueueId) {
            let Ok(words) = self.queue_words(queue) else { continue };
            if queue.0 == default {
                words.associated().store(moved as u64, Relaxed);
            } else {
                words.associated().store(0, Relaxed);
                if !self.is_own(queue) {
                    self.forget_queue(queue, &words);
                }
            }
        }
        for cpu in &self.cpus {
            let words = self.memory.cpu(cpu.os_id);
            if !self.is_own(QueueId(words.queue().load(Relaxed))) {
                words.queue().store(default, Relaxed);
            }
        }
    }
}
