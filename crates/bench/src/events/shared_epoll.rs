//! The three ways in which threads use epoll without a queue.

use super::demux::{Demux, EventWorker, Handler, Watched};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Events per wait on a private epoll.
const BATCH: usize = 64;

/// How descriptors are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    /// Each in one epoll, level-triggered.
    Dealt,
    /// All in one epoll, one-shot; one event per wait, so that nothing waits behind what a thread handles.
    OneShot,
    /// Each in every epoll; the kernel wakes one thread. Another that waits again before the first has read
    /// gets the event too.
    Everywhere,
}

/// One epoll, or one per thread.
pub(super) struct Epolls<'a> {
    how: Registration,
    epolls: Vec<OwnedFd>,
    watched: &'a [Watched<'a>],
}

impl<'a> Epolls<'a> {
    fn new(how: Registration, epolls: usize, watched: &'a [Watched<'a>]) -> io::Result<Epolls<'a>> {
        let create = |_| epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from);
        Ok(Epolls { how, epolls: (0..epolls).map(create).collect::<io::Result<_>>()?, watched })
    }

    pub(super) fn per_thread(threads: usize, watched: &'a [Watched<'a>]) -> io::Result<Epolls<'a>> {
        Epolls::new(Registration::Dealt, threads, watched)
    }

    pub(super) fn shared(watched: &'a [Watched<'a>]) -> io::Result<Epolls<'a>> {
        Epolls::new(Registration::OneShot, 1, watched)
    }

    pub(super) fn exclusive(threads: usize, watched: &'a [Watched<'a>]) -> io::Result<Epolls<'a>> {
        Epolls::new(Registration::Everywhere, threads, watched)
    }

    fn flags(&self) -> epoll::EventFlags {
        let extra = match self.how {
            Registration::Dealt => epoll::EventFlags::empty(),
            Registration::OneShot => epoll::EventFlags::ONESHOT,
            Registration::Everywhere => epoll::EventFlags::EXCLUSIVE,
        };
        epoll::EventFlags::IN | extra
    }

    fn add(&self, epoll: &OwnedFd, number: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(epoll, self.watched[number].fd, data, self.flags())?)
    }

    fn arm(&self, epoll: &OwnedFd, number: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::modify(epoll, self.watched[number].fd, data, self.flags())?)
    }
}

impl Demux for Epolls<'_> {
    fn register(&self, number: usize) -> io::Result<()> {
        match self.how {
            Registration::Dealt => self.add(&self.epolls[number % self.epolls.len()], number),
            Registration::OneShot => self.add(&self.epolls[0], number),
            Registration::Everywhere => {
                self.epolls.iter().try_for_each(|epoll| self.add(epoll, number))
            }
        }
    }

    fn worker(&self, thread: usize) -> io::Result<Box<dyn EventWorker + '_>> {
        let batch = if self.how == Registration::OneShot { 1 } else { BATCH };
        let epoll = &self.epolls[thread % self.epolls.len()];
        Ok(Box::new(EpollWorker { epolls: self, epoll, events: Vec::with_capacity(batch) }))
    }
}

struct EpollWorker<'a> {
    epolls: &'a Epolls<'a>,
    epoll: &'a OwnedFd,
    events: Vec<epoll::Event>,
}

impl EventWorker for EpollWorker<'_> {
    fn serve(&mut self, patience: Duration, handle: &mut Handler<'_>) -> io::Result<()> {
        self.events.clear();
        let limit = Timespec::try_from(patience).map_err(io::Error::other)?;
        match epoll::wait(self.epoll.as_fd(), spare_capacity(&mut self.events), Some(&limit)) {
            Err(Errno::INTR) => return Ok(()),
            done => done?,
        };
        for event in &self.events {
            let number = event.data.u64() as usize;
            // A level-triggered epoll reports leftovers by itself.
            handle(number);
            if self.epolls.how == Registration::OneShot {
                self.epolls.arm(self.epoll, number)?;
            }
        }
        Ok(())
    }
}
