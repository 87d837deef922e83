//! Readiness of file descriptors.

use heddle_core::Ns;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor became readable, or its peer closed.
pub const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
/// A descriptor became writable.
pub const WRITE: u32 = libc::EPOLLOUT as u32;
/// A descriptor failed or was hung up: both directions should check.
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

const EXCLUSIVE_ONLY: u32 = (libc::EPOLLIN | libc::EPOLLOUT) as u32 | BROKEN;

/// One epoll instance with a doorbell.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    bell: OwnedFd,
}

/// The result of one wait: pairs of key and readiness.
pub struct Events {
    buffer: Vec<libc::epoll_event>,
}

/// The key of the doorbell, which [`Epoll::wait`] does not report as an event.
const BELL: u64 = u64::MAX;

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Epoll {
    /// Returns a new instance.
    ///
    /// # Errors
    /// The system's, usually because the process is out of file descriptors.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: plain system calls; the results are checked and then owned.
        let (epoll, bell) = unsafe {
            let epoll = check(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())?;
            let epoll = OwnedFd::from_raw_fd(epoll as i32);
            let bell = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).into())?;
            (epoll, OwnedFd::from_raw_fd(bell as i32))
        };
        let this = Epoll { epoll, bell };
        let bell = this.bell.as_raw_fd();
        this.control(libc::EPOLL_CTL_ADD, bell, (libc::EPOLLIN | libc::EPOLLET) as u32, BELL)?;
        Ok(this)
    }

    fn control(&self, op: i32, fd: i32, events: u32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: both descriptors are open, the event is valid for the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) };
        check(result.into()).map(drop)
    }

    /// Reports changes of readiness of `fd`, in both directions and edge-triggered, under `key`.
    ///
    /// # Errors
    /// The system's: the descriptor cannot be polled (a file), or the limit on watches is reached.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        assert_ne!(key, BELL, "the largest key is the doorbell's");
        let events = READ | WRITE | libc::EPOLLET as u32;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events, key)
    }

    /// Reports when `fd` becomes ready for `events`, edge-triggered, under `key`. If `exclusive`, then of the instances
    /// that watch a descriptor exclusively, the kernel wakes only the first, in order of registration, on which a
    /// thread waits.
    ///
    /// # Errors
    /// The system's: not open, already watched, or not pollable (`EPERM`: a file on a disk).
    pub fn watch(&self, fd: RawFd, key: u64, events: u32, exclusive: bool) -> io::Result<()> {
        assert_ne!(key, BELL, "the largest key is the doorbell's");
        // The kernel accepts only these in exclusive registrations; a peer that closes makes a descriptor readable too.
        let events = if exclusive { events & EXCLUSIVE_ONLY } else { events };
        let how = libc::EPOLLET | if exclusive { libc::EPOLLEXCLUSIVE } else { 0 };
        self.control(libc::EPOLL_CTL_ADD, fd, events | how as u32, key)
    }

    /// Reports `events` of `fd` under `key` once, now or when they occur. Replaces what was asked of `fd` before.
    ///
    /// # Errors
    /// The system's: not open, or not pollable (`EPERM`: a file on a disk).
    pub fn arm(&self, fd: RawFd, key: u64, events: u32) -> io::Result<()> {
        assert_ne!(key, BELL, "the largest key is the doorbell's");
        let events = events | libc::EPOLLONESHOT as u32;
        self.control(libc::EPOLL_CTL_MOD, fd, events, key)
            .or_else(|_| self.control(libc::EPOLL_CTL_ADD, fd, events, key))
            // Another thread was faster.
            .or_else(|_| self.control(libc::EPOLL_CTL_MOD, fd, events, key))
    }

    /// Stops reports on a descriptor, which may already be closed.
    pub fn unwatch(&self, fd: RawFd) {
        // Fails only if it was not registered.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Stops reports on `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // Fails only if it was not registered.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0);
    }

    /// Wakes a thread from [`Epoll::wait`], now or when it next waits.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes to an open descriptor. A full counter also rings.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Returns whether [`Epoll::wait`] would return an event at once. About 0.5 us.
    pub fn is_ready(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry, no waiting.
        unsafe { libc::poll(&mut fd, 1, 0) > 0 }
    }

    /// Waits at most `time` until [`Epoll::wait`] would return an event at once. Returns whether it would.
    pub fn await_ready(&self, time: Ns) -> bool {
        wait_for(self.epoll.as_fd(), READ, Some(time))
    }

    /// Waits at most `timeout` (forever if `None`, not at all if zero) and fills `events`. Returns false if a signal
    /// ended it.
    pub fn wait(&self, events: &mut Events, timeout: Option<Ns>) -> bool {
        let ts = timeout.map(crate::futex::timespec);
        let ts = ts.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let room = events.buffer.capacity();
        // SAFETY: the buffer has `room` entries; the kernel returns how many it wrote. An interruption counts as none.
        unsafe {
            let (fd, buffer) = (self.epoll.as_raw_fd(), events.buffer.as_mut_ptr());
            let mask = core::ptr::null::<libc::sigset_t>();
            let n = libc::syscall(libc::SYS_epoll_pwait2, fd, buffer, room, ts, mask, 8);
            events.buffer.set_len(usize::try_from(n).unwrap_or(0));
            n >= 0
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Epoll {
    /// Returns the epoll's own descriptor, for another epoll to watch.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl Events {
    /// Returns a buffer for `capacity` events per wait.
    pub fn with_capacity(capacity: usize) -> Events {
        Events { buffer: Vec::with_capacity(capacity) }
    }

    /// Returns the events of the last wait: key and readiness.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.buffer.iter().map(|e| (e.u64, e.events)).filter(|&(key, _)| key != BELL)
    }

    /// Returns whether the doorbell was rung. A thread that waits on a foreign instance must ring it again.
    pub fn has_bell(&self) -> bool {
        self.buffer.iter().any(|event| event.u64 == BELL)
    }

    /// Returns whether the last wait filled the buffer, so there may be more.
    pub fn is_full(&self) -> bool {
        self.buffer.len() == self.buffer.capacity()
    }

    /// Returns whether the last wait returned no event, the doorbell aside.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Blocks the calling kernel thread until `fd` is ready for `events` ([`READ`] or [`WRITE`]) or `timeout` has passed.
/// Returns whether it is ready.
pub fn wait_for(fd: BorrowedFd<'_>, events: u32, timeout: Option<Ns>) -> bool {
    let ts = timeout.map(crate::futex::timespec);
    let ts = ts.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let interest = if events & READ != 0 { libc::POLLIN } else { libc::POLLOUT };
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: interest, revents: 0 };
    // SAFETY: one valid entry; the time is null or valid.
    unsafe { libc::ppoll(&mut entry, 1, ts, core::ptr::null()) > 0 }
}

/// The readiness of several descriptors, read by one system call. Reused for later calls, it allocates nothing.
#[derive(Debug, Default)]
pub struct Look(Vec<libc::pollfd>);

impl Look {
    /// Clears the descriptors.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a descriptor and the `events` to check for.
    pub fn ask(&mut self, fd: RawFd, events: u32) {
        self.0.push(asked(fd, events));
    }

    /// Checks all added descriptors.
    pub fn now(&mut self) {
        look(&mut self.0);
    }

    /// Returns what the `nth` descriptor added was ready for; nothing if it was not open.
    ///
    /// # Panics
    /// If fewer were added.
    pub fn ready(&self, nth: usize) -> u32 {
        answer(&self.0[nth])
    }
}

/// Returns which of `events` a descriptor is ready for now; none if it is not open.
pub fn ready_now(fd: RawFd, events: u32) -> u32 {
    let mut entry = asked(fd, events);
    look(core::slice::from_mut(&mut entry));
    answer(&entry)
}

/// Returns an entry for poll, whose bits are those of epoll (IN, OUT, PRI, ERR, HUP, RDHUP).
fn asked(fd: RawFd, events: u32) -> libc::pollfd {
    libc::pollfd { fd, events: events as i16, revents: 0 }
}

fn look(entries: &mut [libc::pollfd]) {
    // SAFETY: the entries are valid for the call, which does not wait.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, 0) };
}

fn answer(entry: &libc::pollfd) -> u32 {
    if entry.revents & libc::POLLNVAL != 0 { 0 } else { u32::from(entry.revents as u16) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_look_distinguishes_states_and_a_closed_descriptor_is_ready_for_nothing() {
        let (a, mut b) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut b, b"x").unwrap();
        let mut look = Look::default();
        look.ask(a.as_raw_fd(), READ);
        look.ask(b.as_raw_fd(), READ);
        look.ask(RawFd::MAX, READ);
        look.now();
        assert_eq!([0, 1, 2].map(|nth| look.ready(nth) & READ), [libc::EPOLLIN as u32, 0, 0]);
        assert_eq!(look.ready(2), 0);
        assert_eq!(ready_now(a.as_raw_fd(), READ | WRITE), (libc::EPOLLIN | libc::EPOLLOUT) as u32);
        assert_eq!(ready_now(RawFd::MAX, READ), 0);
    }

    #[test]
    fn reports_an_edge_once_and_the_bell_never() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::with_capacity(8));
        let (a, mut b) = UnixStream::pair().unwrap();
        epoll.add(a.as_fd(), 7).unwrap();
        epoll.wait(&mut events, Some(Ns::ZERO));
        assert!(events.iter().eq([(7, WRITE)]), "a fresh socket can be written to");
        std::io::Write::write_all(&mut b, b"x").unwrap();
        assert!(epoll.is_ready());
        epoll.wait(&mut events, None);
        assert!(events.iter().all(|(key, ready)| key == 7 && ready & READ != 0));
        epoll.ring();
        epoll.wait(&mut events, None);
        assert!(events.is_empty());
        epoll.remove(a.as_fd());
        std::io::Write::write_all(&mut b, b"x").unwrap();
        assert!(!epoll.is_ready());
    }
}
