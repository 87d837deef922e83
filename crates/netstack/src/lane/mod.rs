//! A lane: the frames, sockets, connections and timers of one worker.
//!
//! # Invariants
//!
//! - **I1** One thread at a time uses a lane's inside, under a spin lock that is taken with preemption off. It is held
//!   for at most [`BATCH`] frames: some 5 us. What transmits frames in copy mode is done after it is released.
//! - **I2** Nothing is woken under the lock: what became ready is collected in [`Woken`] and reported afterwards. So
//!   the lock of a run queue may be taken while no lane is locked, and never the other way round.
//! - **I3** Any thread may ask [`Lane::is_ready`]: some loads per receive queue, no lock and no system call.
//! - **I4** Every queue is bounded and every overflow counted ([`Counters`], `heddle_tcp::Counters`).
//! - **I5** [`Lane::deadline`] is never later than the earliest timer. It may be earlier: a timer that is set and
//!   cancelled for each request would otherwise be news for a worker that sleeps.

mod connections;
mod counters;
mod host;
mod inner;
#[cfg(test)]
mod tests;
mod unsent;
mod view;

pub use counters::{Counters, Snapshot};

use crate::capture::{Capture, Tap};
use crate::paths::Routes;
use crate::tcp::TcpListener;
use crate::udp::UdpSocket;
use crate::wire::{FrameCounts, Handle, Wire};
pub use crate::woken::{Ready, Token, Woken};
use heddle_core::Ns;
use heddle_sync::{SpinCell, SpinGuard};
use heddle_tcp::{ConnectError, ConnectionId, Error, ListenError, ListenerId, Shutdown, Stack};
use inner::Inner;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use unsent::{Published, Unsent};

/// Maximum number of frames for which the lock is held.
pub const BATCH: usize = 16;

/// When a lane looks again at segments for which there was no room.
const FLUSH_PERIOD: Ns = Ns::from_us(50);

/// See the module. The caller holds preemption off in each call that takes the lock.
pub struct Lane<W: Wire> {
    inner: SpinCell<Inner<W>>,
    /// One for each receive queue.
    handles: Box<[W::Handle]>,
    /// No later than the earliest timer (I5), in nanoseconds; `u64::MAX` if none is set.
    deadline: AtomicU64,
    /// A call has made something ready that a poll will report.
    has_events: AtomicBool,
    /// Segments wait that another lane may want.
    has_strays: AtomicBool,
    unsent: Unsent,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Sent,
    /// Too many frames wait to be sent.
    Full,
    /// The kernel must send it: it does not fit a frame, the neighbour is not known yet, or it does not leave by the
    /// lane's interface.
    ByKernel,
}

/// A connection that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its id in the lane.
    pub id: ConnectionId,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

impl<W: Wire> Lane<W> {
    /// Returns the lane with the number `number` over `wires`, one for each receive queue.
    #[must_use]
    pub fn new(number: usize, wires: Vec<W>, routes: Arc<dyn Routes>, stack: Stack) -> Lane<W> {
        let handles = wires.iter().map(Wire::handle).collect();
        let inner = SpinCell::new(Inner::new(number, wires.into(), routes, stack));
        let (deadline, has_events) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Lane {
            inner,
            handles,
            deadline,
            has_events,
            has_strays: AtomicBool::new(false),
            unsent: Unsent::new(),
        }
    }

    /// Returns whether frames wait, or something to report (I3).
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.handles.iter().any(Handle::is_ready) || self.has_events.load(Ordering::Relaxed)
    }

    /// Returns a time no later than that of its earliest timer (I5); [`Ns::MAX`] if none is set.
    #[inline]
    pub fn deadline(&self) -> Ns {
        Ns(self.deadline.load(Ordering::Relaxed))
    }

    /// Returns the descriptors that become readable when frames arrive.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.handles.iter().filter_map(Handle::descriptor)
    }

    /// Takes frames that have arrived and lets timers expire, for up to [`BATCH`] frames, unless another thread is at
    /// it. What became ready is in `woken`, for the caller to report. Returns the number of frames.
    pub fn poll(&self, now: Ns, woken: &mut Woken) -> usize {
        let Some(mut inner) = self.inner.try_lock() else { return 0 };
        let frames = inner.poll(now, woken);
        let next = inner.deadline(now);
        self.deadline.store(next.0, Ordering::Relaxed);
        self.leave(inner, false, || now);
        frames
    }

    /// Has the frames sent that wait for others. For threads that have nothing better to do; `now` is the time.
    #[inline]
    pub fn send_waiting(&self, now: impl FnOnce() -> Ns) {
        if !self.unsent.is_empty() {
            self.kick(self.unsent.take(now()));
        }
    }

    /// Records its frames from now on.
    pub fn set_capture(&self, capture: Capture) {
        self.inner.lock().set_capture(capture);
    }

    /// Makes the lane keep segments of connections that it does not know, for [`Lane::take_strays`]: the policy may
    /// place connections elsewhere than their hash does.
    pub fn keep_strays(&self) {
        self.inner.lock().keep_strays();
    }

    /// Returns whether segments wait that another lane may want.
    #[inline]
    pub fn has_strays(&self) -> bool {
        self.has_strays.load(Ordering::Relaxed)
    }

    /// Returns the frames of such segments.
    pub fn take_strays(&self) -> Vec<Box<[u8]>> {
        self.has_strays.store(false, Ordering::Relaxed);
        self.inner.lock().take_strays()
    }

    /// Takes a segment that came to another lane if its connection is here, or if it is nowhere (`anyway`). Returns the
    /// ends of the connection if it did.
    pub fn take_stray(
        &self,
        now: Ns,
        frame: &[u8],
        anyway: bool,
    ) -> Option<(SocketAddr, SocketAddr)> {
        self.call(now, |inner| inner.take_stray(now, frame, anyway)).0
    }

    /// Runs `f` under the lock. Returns its result, and whether the lane's deadline is earlier than before.
    fn call<R>(&self, now: Ns, f: impl FnOnce(&mut Inner<W>) -> R) -> (R, bool) {
        self.call_of(now, false, f)
    }

    /// As [`Lane::call`]; `more` calls follow soon or not.
    fn call_of<R>(&self, now: Ns, more: bool, f: impl FnOnce(&mut Inner<W>) -> R) -> (R, bool) {
        let mut inner = self.inner.lock();
        let result = f(&mut inner);
        let next = inner.deadline(now);
        let is_earlier = next < self.deadline();
        if is_earlier {
            self.deadline.store(next.0, Ordering::Relaxed);
        }
        self.leave(inner, more, || now);
        (result, is_earlier)
    }

    /// Releases the lock, then has published frames sent (I1), unless `more` calls follow soon.
    fn leave(&self, mut inner: SpinGuard<'_, Inner<W>>, more: bool, now: impl FnOnce() -> Ns) {
        let queues = self.unsent.add(inner.publish(), more, now);
        self.has_events.store(inner.has_events(), Ordering::Relaxed);
        if inner.has_strays() {
            self.has_strays.store(true, Ordering::Relaxed);
        }
        drop(inner);
        self.kick(queues);
    }

    /// Has the frames of `queues` sent, which are bits.
    #[inline]
    fn kick(&self, queues: u128) {
        if queues == 0 {
            return;
        }
        for (queue, handle) in self.handles.iter().enumerate() {
            if queues >> queue & 1 == 1 && handle.kick() {
                self.unsent.put_back(Published { queues: 1 << queue, frames: 1 });
            }
        }
    }

    /// Returns where the frames are of the queues that it uses, which other lanes use as well.
    pub fn frames(&self) -> FrameCounts {
        self.inner.lock().frames()
    }

    /// Returns what it has counted.
    pub fn counters(&self) -> Snapshot {
        self.inner.lock().counters()
    }
}

/// Datagrams.
impl<W: Wire> Lane<W> {
    /// Makes the lane deliver to `socket`.
    pub fn add_udp(&self, socket: &Arc<UdpSocket>) {
        self.inner.lock().add_udp(socket);
    }

    /// Undoes [`Lane::add_udp`].
    pub fn remove_udp(&self, socket: &Arc<UdpSocket>) {
        self.inner.lock().remove_udp(socket);
    }

    /// Sends `payload` from `socket` to `to`. If `more` calls follow soon, it may wait for them; `now` is the time.
    pub fn send_udp(
        &self,
        now: impl FnOnce() -> Ns,
        socket: &UdpSocket,
        payload: &[u8],
        to: SocketAddr,
        more: bool,
    ) -> Sent {
        let mut inner = self.inner.lock();
        let sent = inner.send_udp(socket, payload, to);
        self.leave(inner, more, now);
        sent
    }
}

/// Connections. Times are the runtime's; each call may make the lane's deadline earlier, which [`Called`] says.
impl<W: Wire> Lane<W> {
    /// Accepts connections for `listener`, up to `backlog` of which may wait.
    ///
    /// # Errors
    /// As [`Stack::listen`].
    pub fn listen(
        &self,
        listener: &Arc<TcpListener>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        self.inner.lock().listen(listener, backlog)
    }

    /// Undoes [`Lane::listen`]. Connections that were not accepted are reset.
    pub fn close_listener(&self, now: Ns, id: ListenerId) {
        self.call(now, |inner| inner.close_listener(now, id));
    }

    /// Accepts a connection, if one waits.
    pub fn accept(&self, now: Ns, id: ListenerId) -> Option<Accepted> {
        self.call(now, |inner| inner.accept(now, id)).0
    }

    /// Begins to connect. [`Lane::is_connected`] tells the outcome.
    ///
    /// # Errors
    /// As [`Stack::connect`].
    pub fn connect(
        &self,
        now: Ns,
        local: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
    ) -> Called<Result<ConnectionId, ConnectError>> {
        self.tcp(now, |stack, out| stack.connect(now, local, remote, mtu, out))
    }

    /// Reports what happens to the connection with `token`; `None`: not at all.
    pub fn set_token(&self, id: ConnectionId, token: Option<Token>) {
        self.inner.lock().set_token(id, token);
    }

    /// Reports what happens to the connection with `token` as well.
    pub fn add_token(&self, id: ConnectionId, token: Token) {
        self.inner.lock().add_token(id, token);
    }

    /// As [`Stack::read`].
    ///
    /// # Errors
    /// See there.
    pub fn read(&self, now: Ns, id: ConnectionId, buf: &mut [u8]) -> Called<Result<usize, Error>> {
        self.tcp(now, |stack, out| stack.read(now, id, buf, out))
    }

    /// As [`Stack::peek`].
    ///
    /// # Errors
    /// See there.
    pub fn peek(&self, id: ConnectionId, buf: &mut [u8]) -> Result<usize, Error> {
        self.inner.lock().stack().peek(id, buf)
    }

    /// As [`Stack::write`], for several buffers, one after the other. Returns how many bytes were taken. If `more`
    /// calls follow soon, the segments may wait for them.
    ///
    /// # Errors
    /// See there.
    pub fn write<'a>(
        &self,
        now: Ns,
        id: ConnectionId,
        bufs: impl Iterator<Item = &'a [u8]>,
        more: bool,
    ) -> Called<Result<usize, Error>> {
        self.tcp_of(now, more, |stack, out| {
            let mut taken = 0;
            for buf in bufs.filter(|buf| !buf.is_empty()) {
                match stack.write(now, id, buf, out) {
                    Ok(count) if count == buf.len() => taken += count,
                    Ok(count) => return Ok(taken + count),
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(taken)
        })
    }

    /// As [`Stack::shutdown`].
    ///
    /// # Errors
    /// See there.
    pub fn shutdown(&self, now: Ns, id: ConnectionId, how: Shutdown) -> Called<Result<(), Error>> {
        self.tcp(now, |stack, out| stack.shutdown(now, id, how, out))
    }

    /// Gives a connection up, as [`Stack::close`] does, or with a reset (`abort`).
    pub fn close(&self, now: Ns, id: ConnectionId, abort: bool) -> Called<()> {
        self.set_token(id, None);
        self.tcp(now, |stack, out| match abort {
            false => stack.close(now, id, out),
            true => stack.abort(now, id, out),
        })
    }

    /// As [`Stack::set_nodelay`].
    ///
    /// # Errors
    /// See there.
    pub fn set_nodelay(
        &self,
        now: Ns,
        id: ConnectionId,
        nodelay: bool,
    ) -> Called<Result<(), Error>> {
        self.tcp(now, |stack, out| stack.set_nodelay(now, id, nodelay, out))
    }

    /// Makes closing the connection reset it, as [`Stack::set_close_reset`].
    ///
    /// # Errors
    /// See there.
    pub fn set_close_reset(&self, id: ConnectionId) -> Result<(), Error> {
        self.inner.lock().stack().set_close_reset(id, true)
    }

    /// As [`Stack::nodelay`].
    ///
    /// # Errors
    /// See there.
    pub fn nodelay(&self, id: ConnectionId) -> Result<bool, Error> {
        self.inner.lock().stack().nodelay(id)
    }

    /// Returns this end and the other: as [`Stack::local_addr`] and [`Stack::remote_addr`].
    ///
    /// # Errors
    /// See there.
    pub fn ends(&self, id: ConnectionId) -> Result<(SocketAddr, SocketAddr), Error> {
        let mut inner = self.inner.lock();
        Ok((inner.stack().local_addr(id)?, inner.stack().remote_addr(id)?))
    }

    /// As [`Stack::take_error`].
    pub fn take_error(&self, id: ConnectionId) -> Option<Error> {
        self.inner.lock().stack().take_error(id).ok().flatten()
    }

    /// Returns whether the handshake is over.
    ///
    /// # Errors
    /// Why it failed.
    pub fn is_connected(&self, id: ConnectionId) -> Result<bool, Error> {
        let mut inner = self.inner.lock();
        match inner.stack().take_error(id)? {
            Some(error) => Err(error),
            None => inner.stack().is_connected(id),
        }
    }

    /// As [`Stack::has_flow`].
    pub fn has_flow(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.inner.lock().stack().has_flow(local, remote)
    }

    fn tcp<R>(
        &self,
        now: Ns,
        f: impl FnOnce(&mut Stack, &mut connections::Segments<'_, Tap<'_, W::Transmit>>) -> R,
    ) -> Called<R> {
        self.tcp_of(now, false, f)
    }

    fn tcp_of<R>(
        &self,
        now: Ns,
        more: bool,
        f: impl FnOnce(&mut Stack, &mut connections::Segments<'_, Tap<'_, W::Transmit>>) -> R,
    ) -> Called<R> {
        let (result, is_earlier) = self.call_of(now, more, |inner| inner.with_stack(f));
        Called { result, is_earlier }
    }
}

/// The result of a call on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Called<R> {
    /// What it returned.
    pub result: R,
    /// The lane's deadline is earlier than before: a worker that sleeps until a time must know.
    pub is_earlier: bool,
}
