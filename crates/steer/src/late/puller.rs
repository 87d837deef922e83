//! One worker's side of late binding.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, recvfrom};

use super::{BELL, ClassSockets};

/// Pulls requests for one worker. What it pulled is in its hands until it pulls again, says [`Puller::done`] or goes away.
#[derive(Debug)]
pub struct Puller<'a> {
    sockets: &'a ClassSockets,
    /// The class of the request in hand.
    held: Option<usize>,
    /// A class that is being tried and is not `held`.
    tried: Option<usize>,
    /// The class whose alarm has rung here and that nobody else will be woken for.
    rung: Option<usize>,
}

/// A datagram that was pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// From which class.
    pub class: usize,
    /// How many bytes of the buffer it takes.
    pub length: usize,
    /// Whether it was longer than the buffer, and cut.
    pub truncated: bool,
    /// Who sent it; `None` if the kernel does not say, as on a local socket without a name.
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

    /// The next datagram, from the most urgent class that has one; sleeps while there is none. `None` once stopped.
    ///
    /// # Errors
    /// The system's on a socket: the next call goes on.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let pulled = self.pull(|socket| receive_from(socket, buffer))?;
        let datagram = |(class, datagram)| Datagram { class, ..datagram };
        Ok(pulled.map(datagram))
    }

    /// The next connection, likewise.
    ///
    /// # Errors
    /// The system's, such as `EMFILE`: the connection still waits then.
    pub fn accept(&mut self) -> io::Result<Option<Connection>> {
        let pulled = self.pull(accept_from)?;
        let connection = |(class, (socket, peer))| Connection { class, socket, peer };
        Ok(pulled.map(connection))
    }

    /// The next of whatever `take` takes from a socket without blocking, and its class. `take` says
    /// [`io::ErrorKind::WouldBlock`] where nothing waits.
    ///
    /// # Errors
    /// What `take` says otherwise, or the system's on waiting.
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

    /// The request in hand is done, and the worker does something else before it pulls again.
    pub fn done(&mut self) {
        self.leave(self.held);
        self.held = None;
    }

    /// Tries all classes. The class in hand is kept until another is taken or none is: so its place goes to nobody
    /// who would be woken for it in vain.
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

    /// What `take` says of a class; `None` if the class is at its limit.
    fn try_class<T>(
        &mut self,
        class: usize,
        take: &mut impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let has = self.held == Some(class);
        if !has && !self.sockets.classes[class].gate.enter() {
            return None;
        }
        // Noted for `drop`, if `take` panics.
        self.tried = (!has).then_some(class);
        let taken = take(self.sockets.socket(class));
        self.tried = None;
        if !has {
            let left = if taken.is_ok() { self.held.replace(class) } else { Some(class) };
            self.leave(left);
        }
        Some(taken)
    }

    /// Leaves a class, and sets its alarm if that is owed.
    fn leave(&self, class: Option<usize>) {
        if let Some(class) = class.filter(|class| self.sockets.classes[*class].gate.leave()) {
            self.sockets.arm(class);
        }
    }

    /// Sets the alarm that rang here again, or leaves that to whoever leaves the class.
    fn settle(&mut self) {
        let rung = self.rung.take();
        if let Some(class) = rung.filter(|class| self.sockets.classes[*class].gate.settle()) {
            self.sockets.arm(class);
        }
    }

    /// Sleeps until an alarm rings, the bell does, or a signal comes. Takes one report at a time: a second one would be
    /// lost to those who sleep.
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

/// A worker that ends, also by a panic, keeps no place and no alarm.
impl Drop for Puller<'_> {
    fn drop(&mut self) {
        self.leave(self.held);
        self.leave(self.tried);
        self.settle();
    }
}

/// Tries again what a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            // A connection that was reset before anybody took it.
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
