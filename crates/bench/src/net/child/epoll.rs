//! One epoll instance over numbered descriptors.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Events returned by a call, at most.
const EVENTS: usize = 256;

pub(super) struct Epoll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS),
        })
    }

    /// Watches whether `fd` is readable.
    pub(super) fn add(&self, fd: impl AsFd, number: usize) -> io::Result<()> {
        let data = EventData::new_u64(number as u64);
        Ok(epoll::add(&self.epoll, fd, data, EventFlags::IN)?)
    }

    /// Waits until some are readable, a tenth of a second at most, and calls `f` with each.
    pub(super) fn wait(&mut self, mut f: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
        let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&limit),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.events.iter().try_for_each(|event| f(event.data.u64() as usize))
    }
}
