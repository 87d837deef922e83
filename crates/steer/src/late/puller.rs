//! One worker's side of late binding.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, recvfrom};

use super::{BELL, ClassSockets};

/// Pulls requests for one worker, which holds the request until it pulls again, calls [`Puller::done`], or
/// drops this.
#[derive(Debug)]
pub struct Puller<'a> {
    sockets: &'a ClassSockets,
    /// The class of the request held.
    held: Option<usize>,
    /// A class that is being tried and is not `held`.
    tried: Option<usize>,
    /// The class whose report this worker received: no other worker is woken for it.
    rung: Option<usize>,
}

/// A datagram that was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// From which class.
    pub class: usize,
    /// How many bytes of the buffer it fills.
    pub length: usize,
    /// Whether it was longer than the buffer, and truncated.
    pub truncated: bool,
    /// The sender; `None` if the kernel does not report it, as on a local socket without a name.
    pub peer: Option<SocketAddr>,
}

/// A connection that was pulled.
#[derive(Debug)]
pub struct Connection {
    /// From which class.
    pub class: usize,
    /// Its socket, which blocks.
    pub socket: OwnedFd,
    /// Who connected.
    pub peer: Option<SocketAddr>,
}

impl<'a> Puller<'a> {
    pub(super) fn new(sockets: &'a ClassSockets) -> Self {
        Self { sockets, held: None, tried: None, rung: None }
    }

    /// Returns the next datagram, from the most urgent class that has one; sleeps while there is none. `None`
    /// once stopped.
    ///
    /// # Errors
    /// The system's on a socket: the next call continues.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let pulled = self.pull(|socket| receive_from(socket, buffer))?;
        let datagram = |(class, datagram)| Datagram { class, ..datagram };
        Ok(pulled.map(datagram))
    }

    /// Returns the next connection, likewise.
    ///
    /// # Errors
    /// The system's, such as `EMFILE`: the connection still waits then.
    pub fn accept(&mut self) -> io::Result<Option<Connection>> {
        let pulled = self.pull(accept_from)?;
        let connection = |(class, (socket, peer))| Connection { class, socket, peer };
        Ok(pulled.map(connection))
    }

    /// Returns whatever `take` takes next from a socket without blocking, and its class. `take` returns
    /// [`io::ErrorKind::WouldBlock`] if nothing waits.
    ///
    /// # Errors
    /// Other errors of `take`, or the system's while waiting.
    pub fn pull<T>(
        &mut self,
        mut take: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<Option<(usize, T)>> {
        loop {
            if self.sockets.is_stopped() {
                self.done();
                return Ok(None);
            }
            let found = self.look(&mut take);
            // Before anything is returned (L1).
            self.settle();
            if let Some(found) = found? {
                return Ok(Some(found));
            }
            self.wait()?;
        }
    }

    /// Marks the held request done, if the worker does something else before it pulls again.
    pub fn done(&mut self) {
        self.leave(self.held);
        self.held = None;
    }

    /// Tries all classes. The held class is kept until another is taken or none is, so that its slot does not
    /// wake a worker in vain.
    fn look<T>(
        &mut self,
        take: &mut impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<Option<(usize, T)>> {
        for class in 0..self.sockets.classes.len() {
            match self.try_class(class, take) {
                Some(Ok(taken)) => return Ok(Some((class, taken))),
                Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    self.done();
                    return Err(error);
                }
                _ => {}
            }
        }
        self.done();
        Ok(None)
    }

    /// Tries `take` on a class; `None` if the class is at its limit.
    fn try_class<T>(
        &mut self,
        class: usize,
        take: &mut impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let has = self.held == Some(class);
        if !has && !self.sockets.classes[class].gate.enter() {
            return None;
        }
        // Recorded for `drop`, if `take` panics.
        self.tried = (!has).then_some(class);
        let taken = take(self.sockets.socket(class));
        self.tried = None;
        if !has {
            let left = if taken.is_ok() { self.held.replace(class) } else { Some(class) };
            self.leave(left);
        }
        Some(taken)
    }

    /// Leaves a class, and arms it if the gate says so.
    fn leave(&self, class: Option<usize>) {
        if let Some(class) = class.filter(|class| self.sockets.classes[*class].gate.leave()) {
            self.sockets.arm(class);
        }
    }

    /// Rearms the class reported here, or leaves that to the worker that leaves the class.
    fn settle(&mut self) {
        let rung = self.rung.take();
        if let Some(class) = rung.filter(|class| self.sockets.classes[*class].gate.settle()) {
            self.sockets.arm(class);
        }
    }

    /// Sleeps until a class reports, the set is stopped, or a signal arrives. Takes one report at a time: a
    /// second one would be lost to sleeping workers.
    fn wait(&mut self) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); 1];
        let rung = match epoll::wait(&self.sockets.epoll, &mut room, None) {
            Ok((events, _)) => events.first().map(|event| event.data.u64()),
            Err(Errno::INTR) => None,
            Err(error) => return Err(error.into()),
        };
        self.rung = rung.filter(|key| *key != BELL).and_then(|key| usize::try_from(key).ok());
        Ok(())
    }
}

/// A worker that ends, even by a panic, keeps no slot and no report.
impl Drop for Puller<'_> {
    fn drop(&mut self) {
        self.leave(self.held);
        self.leave(self.tried);
        self.settle();
    }
}

/// Retries calls interrupted by a signal.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            // A connection that was reset before it was accepted.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            result => return result.map_err(Into::into),
        }
    }
}

fn receive_from(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Datagram> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let room = buffer.len();
    let (_, length, peer) = uninterrupted(|| recvfrom(socket, &mut *buffer, flags))?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok(Datagram { class: 0, length: length.min(room), truncated: length > room, peer })
}

fn accept_from(socket: BorrowedFd<'_>) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (connection, peer) = uninterrupted(|| acceptfrom_with(socket, SocketFlags::CLOEXEC))?;
    Ok((connection, peer.and_then(|peer| SocketAddr::try_from(peer).ok())))
}
