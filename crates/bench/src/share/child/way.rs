//! The ways to give the CPU to the other process and to get it back.

use super::words::Words;
use crate::share::System;
use heddle_core::Ns;
use heddle_share::{Member, Thread};
use heddle_sys::futex;
use heddle_sys::scheduling::{self, Scheduling, yield_to_equals};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// How long a side sleeps before it looks whether the other has ended.
const LOOK: Ns = Ns::from_secs(1);

/// What a switch of one side does.
pub(super) trait Way {
    /// Begins to take part, and returns when it has the CPU.
    fn enter(&mut self);

    /// Gives the CPU away; returns when it has it again.
    fn switch(&mut self);

    /// Ends to take part for a while.
    fn leave(&mut self);

    /// Lets the other side run for the last time.
    fn release(&mut self) {}
}

/// The members of a share.
pub(super) struct Sharing(&'static Member);

impl Sharing {
    /// Prepares the calling thread, a worker of the only CPU.
    pub(super) fn new(member: &'static Member) -> Sharing {
        member.adopt_thread(Thread::Worker(0));
        Sharing(member)
    }
}

impl Way for Sharing {
    fn enter(&mut self) {
        self.0.enter(0);
    }

    fn switch(&mut self) {
        self.0.make_way(0);
    }

    fn leave(&mut self) {
        self.0.leave(0);
    }
}

/// `SCHED_FIFO` threads of one priority.
pub(super) struct Yielding;

impl Yielding {
    /// Makes the calling thread one.
    pub(super) fn new() -> io::Result<Yielding> {
        scheduling::set(0, Scheduling::fifo(1))?;
        Ok(Yielding)
    }
}

impl Way for Yielding {
    fn enter(&mut self) {}

    fn switch(&mut self) {
        yield_to_equals();
    }

    fn leave(&mut self) {}
}

/// Ways in which each side sleeps until the other calls: it counts calls.
pub(super) struct Calling<B> {
    bell: B,
    /// The peer's turn begins with a call.
    is_leader: bool,
}

/// How a side calls the other, and waits for its call.
pub(super) trait Bell {
    fn ring(&mut self);
    fn wait(&mut self);
}

impl<B: Bell> Calling<B> {
    pub(super) fn new(bell: B, is_leader: bool) -> Calling<B> {
        Calling { bell, is_leader }
    }
}

impl<B: Bell> Way for Calling<B> {
    fn enter(&mut self) {
        if !self.is_leader {
            self.bell.wait();
        }
    }

    fn switch(&mut self) {
        self.bell.ring();
        self.bell.wait();
    }

    fn leave(&mut self) {}

    fn release(&mut self) {
        self.bell.ring();
    }
}

/// Words of shared memory.
pub(super) struct Futexes {
    mine: &'static AtomicU32,
    theirs: &'static AtomicU32,
    seen: u32,
}

impl Futexes {
    /// The side's: the leader is 0.
    pub(super) fn new(words: Words, side: usize) -> Futexes {
        Futexes { mine: words.turn(side), theirs: words.turn(1 - side), seen: 0 }
    }
}

impl Bell for Futexes {
    fn ring(&mut self) {
        self.theirs.fetch_add(1, SeqCst);
        futex::wake_shared(self.theirs, 1);
    }

    fn wait(&mut self) {
        while self.mine.load(SeqCst) == self.seen {
            futex::wait_shared(self.mine, self.seen, 1, Some(LOOK));
        }
        self.seen = self.seen.wrapping_add(1);
    }
}

/// Eventfds or pipes: what is written to one is read from the other.
pub(super) struct Ends {
    from: OwnedFd,
    to: OwnedFd,
    /// What is written: eight bytes to an eventfd, one to a pipe.
    call: &'static [u8],
}

impl Ends {
    pub(super) fn new(system: System, from: OwnedFd, to: OwnedFd) -> Ends {
        const ONE: [u8; 8] = 1_u64.to_ne_bytes();
        let call = if system == System::Eventfd { &ONE[..] } else { &ONE[..1] };
        Ends { from, to, call }
    }
}

impl Bell for Ends {
    fn ring(&mut self) {
        // The other side may have ended.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.to, self.call));
    }

    fn wait(&mut self) {
        let mut call = [0; 8];
        let read = || rustix::io::read(&self.from, &mut call[..self.call.len()]);
        let _ = rustix::io::retry_on_intr(read);
    }
}
