//! A lane: the frames, sockets and timers of one worker.
//!
//! # Invariants
//!
//! - **I1** One thread at a time uses a lane's inside, under a spin lock that is taken with preemption off and held for
//!   at most [`BATCH`] frames: some 5 us. What transmits frames in copy mode is done after it is released.
//! - **I2** Nothing is woken under the lock: what became ready is collected in [`Woken`] and reported afterwards. So the
//!   lock of a run queue may be taken while no lane is locked, and never the other way round.
//! - **I3** Any thread may ask [`Lane::is_ready`]: some loads per receive queue, no lock and no system call.
//! - **I4** Every queue is bounded and every overflow counted ([`Counters`]).

mod counters;
mod inner;
#[cfg(test)]
mod tests;
mod woken;

pub use counters::{Counters, Snapshot};
pub use woken::{Ready, Token, Woken};

use crate::paths::Routes;
use crate::udp::UdpSocket;
use crate::wire::{Handle, Wire};
use heddle_core::Ns;
use heddle_sync::{SpinCell, SpinGuard};
use inner::Inner;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of frames for which the lock is held.
pub const BATCH: usize = 16;

/// See the module. The caller holds preemption off in each call that takes the lock.
pub struct Lane<W: Wire> {
    inner: SpinCell<Inner<W>>,
    /// One for each receive queue.
    handles: Box<[W::Handle]>,
    /// When the earliest timer is due, in nanoseconds; `u64::MAX` if none is set.
    deadline: AtomicU64,
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

impl<W: Wire> Lane<W> {
    /// Returns a lane over `wires`, one for each receive queue.
    #[must_use]
    pub fn new(wires: Vec<W>, routes: Arc<dyn Routes>) -> Lane<W> {
        let handles = wires.iter().map(Wire::handle).collect();
        let inner = SpinCell::new(Inner::new(wires.into(), routes));
        Lane { inner, handles, deadline: AtomicU64::new(u64::MAX) }
    }

    /// Returns whether frames wait (I3).
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.handles.iter().any(Handle::is_ready)
    }

    /// Returns when its earliest timer is due; [`Ns::MAX`] if none is set.
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
        self.leave(inner);
        frames
    }

    /// Makes the lane deliver to `socket`.
    pub fn add_udp(&self, socket: &Arc<UdpSocket>) {
        self.inner.lock().add_udp(socket);
    }

    /// Undoes [`Lane::add_udp`].
    pub fn remove_udp(&self, socket: &Arc<UdpSocket>) {
        self.inner.lock().remove_udp(socket);
    }

    /// Sends `payload` from `socket` to `to`.
    pub fn send_udp(&self, socket: &UdpSocket, payload: &[u8], to: SocketAddr) -> Sent {
        let mut inner = self.inner.lock();
        let sent = inner.send_udp(socket, payload, to);
        self.leave(inner);
        sent
    }

    /// Returns what it has counted.
    pub fn counters(&self) -> Snapshot {
        self.inner.lock().counters()
    }

    /// Releases the lock, then has published frames sent (I1).
    fn leave(&self, mut inner: SpinGuard<'_, Inner<W>>) {
        let kicks = inner.publish();
        self.deadline.store(inner.deadline().0, Ordering::Relaxed);
        drop(inner);
        let wanted = |queue: &usize| kicks >> queue & 1 == 1;
        (0..self.handles.len()).filter(wanted).for_each(|queue| self.handles[queue].kick());
    }
}
