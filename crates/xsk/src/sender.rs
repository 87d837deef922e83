//! The half of a socket that sends.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{SendFlags, send};

use super::frame::lend;
use super::frames::{FrameCounts, Full};
use super::offload::Offload;
use super::pool::Shared;
use super::ring::Ring;

/// Maximum number of free frames that a socket keeps in reserve.
const RESERVE: usize = 16;

/// The part of an [`XdpSocket`](crate::XdpSocket) that sends.
#[derive(Debug)]
pub struct Sender {
    pub(super) transmit: Ring<XdpDesc>,
    pub(super) shared: Arc<Shared>,
    /// Free frames, so that the pool is locked once for several.
    reserve: Vec<u64>,
    pub(super) send_full: u64,
    /// Where large frames go; `None` if they cannot be sent.
    pub offload: Option<Offload>,
}

impl Sender {
    pub(super) fn new(transmit: Ring<XdpDesc>, shared: &Arc<Shared>) -> Self {
        let reserve = Vec::with_capacity(RESERVE);
        Self { transmit, shared: Arc::clone(shared), reserve, send_full: 0, offload: None }
    }

    /// Queues a packet of `length` bytes that `write` builds in its frame, from the Ethernet header on;
    /// [`crate::XdpSocket::flush`] sends it. The bytes are those of an earlier packet before that.
    ///
    /// # Errors
    /// [`Full`] if too many wait to be sent, or if the packet is longer than a frame.
    pub fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let layout = self.shared.layout;
        let len = u32::try_from(length).map_err(|_| Full)?;
        if layout.frame_of(0, len).is_none() {
            return Err(Full);
        }
        let addr = self.frame_to_send().inspect_err(|_| self.send_full += 1)?;
        let desc = XdpDesc { addr, len, options: XdpDescOptions::empty() };
        // SAFETY: the account has given this frame to this socket, and the kernel gets it only below (I1).
        let mut frame = unsafe { lend(&self.shared.memory, layout.end_of(addr), desc) };
        write(frame.bytes_mut());
        let pushed = self.transmit.push(desc);
        debug_assert!(pushed, "there was room");
        Ok(())
    }

    pub(super) fn frames(&self) -> FrameCounts {
        let mut pool = self.shared.pool();
        pool.reap(self.shared.layout);
        pool.account.counts(self.reserve.len() as u32)
    }

    /// Takes a frame from the reserve, which it fills from the pool.
    fn frame_to_send(&mut self) -> Result<u64, Full> {
        if self.transmit.room(1) == 0 {
            return Err(Full);
        }
        if self.reserve.is_empty() {
            let mut pool = self.shared.pool();
            pool.reap(self.shared.layout);
            let frames = std::iter::from_fn(|| pool.account.next_to_send().ok());
            self.reserve.extend(frames.take(RESERVE));
        }
        self.reserve.pop().ok_or(Full)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The queue's other sockets can use the frames that this one has not.
        let Self { shared, reserve, .. } = self;
        let mut pool = shared.pool();
        reserve.drain(..).for_each(|frame| pool.account.sent(frame));
    }
}

/// What a [`kick`] has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kicked {
    /// Nothing.
    All,
    /// Packets that the next kick sends.
    More,
    /// Packets for which the kernel has no memory, or the interface no room, now.
    Later,
}

/// Makes the kernel send packets that an AF_XDP socket has published: up to 32, or a driver's batch. It may run beside
/// any other use of the socket.
///
/// # Errors
/// The kernel's: `ENETDOWN` or `ENXIO` if the interface is down or gone.
pub fn kick(socket: BorrowedFd<'_>) -> io::Result<Kicked> {
    match send(socket, &[], SendFlags::DONTWAIT) {
        Ok(_) => Ok(Kicked::All),
        Err(Errno::AGAIN) => Ok(Kicked::More),
        Err(Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(Kicked::Later),
        Err(error) => Err(error.into()),
    }
}
