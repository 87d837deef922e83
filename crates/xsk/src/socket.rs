//! The socket: bound to one queue, receives and sends in batches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv};

use super::frame::{Frame, lend};
use super::frames::{FrameCounts, Full, Layout};
use super::offload::Offload;
use super::pool::{Shared, ring};
use super::ring::{Pending, Ring};
use super::sender::{Kicked, Sender, kick};

/// Whether frames are copied between the driver's memory and the socket's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Only if the driver does not support zero copy.
    #[default]
    Auto,
    /// Always. Works on every interface.
    Always,
    /// Never: binding fails if the driver does not support zero copy.
    Never,
}

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of frames that wait in a socket to be received, and of those that wait to be sent: a power of
    /// two.
    pub frames: u32,
    /// Bytes per frame, of which the kernel uses the first 256: 2048 or 4096.
    pub frame_size: u32,
    /// Whether frames are copied between the driver and the socket.
    pub copying: Copying,
}

impl Default for Options {
    fn default() -> Self {
        Self { frames: 1024, frame_size: 2048, copying: Copying::Auto }
    }
}

/// What to do with a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAction {
    /// Return it to the empty frames.
    Recycle,
    /// Send it as it is now. If too many wait to be sent, it is dropped and counted.
    Send,
}

/// Counts of frames since the socket was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Dropped by the kernel: too large for a frame, or out of memory.
    pub dropped: u64,
    /// Dropped by the kernel because the receive ring was full.
    pub receive_full: u64,
    /// How often the kernel found no empty frame.
    pub no_empty_frame: u64,
    /// Not sent because too many waited to be sent.
    pub send_full: u64,
    /// Invalid descriptors: from the kernel (I4), or rejected by it.
    pub invalid: u64,
}

/// An AF_XDP socket on one queue of an interface. It receives what an XDP program redirects to it.
#[derive(Debug)]
pub struct XdpSocket {
    receive: Ring<XdpDesc>,
    sender: Sender,
    fd: OwnedFd,
    /// Frames of the current batch to recycle.
    to_recycle: Vec<u64>,
    /// Frames of the current batch to send.
    to_send: Vec<XdpDesc>,
    invalid: u64,
}

/// Maximum number of send calls per flush; the kernel sends 32 frames per call.
const MAX_SEND_CALLS: u32 = 64;

impl XdpSocket {
    /// Binds a socket to receive queue `queue` of the interface with index `interface`, in the calling thread's network
    /// namespace. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// `EBUSY` if the queue already has a socket, `EINVAL` if there is no such queue, `ENODEV` if there is no such
    /// interface, `EOPNOTSUPP` if copying is `Never` and the driver does not support that; `InvalidInput` for invalid
    /// options.
    pub fn bind(interface: u32, queue: u32, options: &Options) -> io::Result<Self> {
        let mut one = Self::bind_many(interface, queue, 1, options)?;
        one.pop().ok_or_else(|| io::Error::other("no socket"))
    }

    /// Binds `count` sockets to one queue, among which a policy chooses. They share one memory; each may be used by a
    /// different thread.
    ///
    /// # Errors
    /// As for [`Self::bind`]; also `InvalidInput` if `count` is 0 or above 64.
    pub fn bind_many(
        interface: u32,
        queue: u32,
        count: u32,
        options: &Options,
    ) -> io::Result<Vec<Self>> {
        let layout = layout(count, options)?;
        let first = open()?;
        let shared = Arc::new(Shared::register(&first, layout)?);
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
            | match options.copying {
                Copying::Auto => SocketAddrXdpFlags::empty(),
                Copying::Always => SocketAddrXdpFlags::XDP_COPY,
                Copying::Never => SocketAddrXdpFlags::XDP_ZEROCOPY,
            };
        let mut sockets = vec![Self::over(first, &shared, options.frames)?];
        bind(&sockets[0].fd, &SocketAddrXdp::new(flags, interface, queue))?;
        for _ in 1..count {
            let next = Self::over(open()?, &shared, options.frames)?;
            let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
            let shared_umem_fd = sockets[0].fd.as_fd();
            bind(&next.fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
            sockets.push(next);
        }
        Ok(sockets)
    }

    /// Creates the rings of a socket that is not bound yet.
    fn over(fd: OwnedFd, shared: &Arc<Shared>, entries: u32) -> io::Result<Self> {
        sockopt::set_xdp_rx_ring_size(&fd, entries)?;
        sockopt::set_xdp_tx_ring_size(&fd, entries)?;
        let at = sockopt::xdp_mmap_offsets(&fd)?;
        Ok(Self {
            receive: ring(&fd, &at.rx, XDP_PGOFF_RX_RING, entries)?,
            sender: Sender::new(ring(&fd, &at.tx, XDP_PGOFF_TX_RING, entries)?, shared),
            fd,
            to_recycle: Vec::new(),
            to_send: Vec::new(),
            invalid: 0,
        })
    }

    /// Returns whether frames are not copied.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.fd)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Passes up to `max` received frames to `each` and returns their number. Does not wait ([`Self::wait`]). Frames
    /// that `each` sends are on their way when this returns.
    ///
    /// # Errors
    /// The kernel's, from waking it.
    pub fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(&mut Frame<'_>) -> FrameAction,
    ) -> io::Result<usize> {
        let count = self.take(max, |frame, _| each(frame));
        let wake = self.finish_batch(count);
        self.flush()?;
        if wake { self.wake_receiver() } else { Ok(()) }.map(|()| count)
    }

    /// Passes up to `max` received frames to `each`, with the sender for answers, and returns their number. Answers
    /// are sent by [`Self::publish`] and [`kick`], or by [`Self::flush`].
    ///
    /// # Errors
    /// The kernel's, from waking it.
    pub fn exchange(
        &mut self,
        max: usize,
        mut each: impl FnMut(&[u8], &mut Sender),
    ) -> io::Result<usize> {
        let count = self.take(max, |frame, sender| {
            each(frame.bytes(), sender);
            FrameAction::Recycle
        });
        if count > 0 && self.finish_batch(count) {
            self.wake_receiver()?;
        }
        Ok(count)
    }

    /// Takes up to `max` received frames; [`Self::finish_batch`] recycles or sends them.
    fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(&mut Frame<'_>, &mut Sender) -> FrameAction,
    ) -> usize {
        let shared = Arc::clone(&self.sender.shared);
        let mut count = 0;
        while count < max {
            let Some(full) = self.receive.pop() else { break };
            count += 1;
            let Some(start) = shared.layout.frame_of(full.addr, full.len) else {
                // The frame is lost to this queue: it cannot be identified.
                self.invalid += 1;
                continue;
            };
            // SAFETY: the kernel has given this frame to this socket, which passes it on only below (I1).
            let mut frame = unsafe { lend(&shared.memory, shared.layout.end_of(start), full) };
            let then = each(&mut frame, &mut self.sender);
            let length = u32::try_from(frame.len()).unwrap_or(0);
            match then {
                FrameAction::Recycle => self.to_recycle.push(start),
                FrameAction::Send => self.to_send.push(XdpDesc {
                    len: length,
                    options: XdpDescOptions::empty(),
                    ..full
                }),
            }
        }
        self.receive.release();
        count
    }

    /// Recycles and queues the `count` frames of a batch. Returns whether the kernel must be told of empty frames.
    fn finish_batch(&mut self, count: usize) -> bool {
        let Sender { shared, transmit, send_full, .. } = &mut self.sender;
        let layout = shared.layout;
        let mut pool = shared.pool();
        pool.reap(layout);
        pool.account.filled(u32::try_from(count).unwrap_or(u32::MAX));
        for frame in self.to_recycle.drain(..) {
            pool.account.recycle(frame);
        }
        for frame in self.to_send.drain(..) {
            if pool.account.may_send() && transmit.push(frame) {
                pool.account.send_on();
            } else {
                *send_full += 1;
                pool.account.recycle(layout.frame_of(frame.addr, 0).unwrap_or(0));
            }
        }
        pool.refill();
        pool.needs_wakeup()
    }

    /// Returns where large frames go, if they can be sent.
    #[must_use]
    pub fn offload(&self) -> Option<&Offload> {
        self.sender.offload.as_ref()
    }

    /// Returns the part that sends.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Queues a packet that starts with the Ethernet header; [`Self::flush`] sends it.
    ///
    /// # Errors
    /// As for [`Sender::send_with`].
    pub fn send(&mut self, packet: &[u8]) -> Result<(), Full> {
        self.sender.send_with(packet.len(), |frame| frame.copy_from_slice(packet))
    }

    /// Returns a view that tells any thread whether frames wait to be received.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.receive.pending()
    }

    /// Makes the kernel send the queued packets. The next call retries those that it cannot accept now.
    ///
    /// # Errors
    /// The kernel's: `ENETDOWN` or `ENXIO` if the interface is down or gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.publish();
        let transmit = &self.sender.transmit;
        if transmit.is_drained() {
            return Ok(());
        }
        for _ in 0..MAX_SEND_CALLS {
            if !transmit.needs_wakeup() || kick(self.fd.as_fd())? != Kicked::More {
                break;
            }
        }
        self.sender.shared.pool().reap(self.sender.shared.layout);
        Ok(())
    }

    /// Shows the queued packets to the kernel. Returns of how many it must be told ([`kick`]) to send them.
    pub fn publish(&mut self) -> u32 {
        let transmit = &self.sender.transmit;
        let count = transmit.publish();
        if transmit.needs_wakeup() { count } else { 0 }
    }

    /// Waits until frames have arrived or `limit` has passed. Returns whether any have arrived.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        if self.receive.waiting() > 0 {
            return Ok(true);
        }
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.receive.waiting() > 0),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the counts of frames.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Counters> {
        let kernel = sockopt::xdp_statistics(&self.fd)?;
        Ok(Counters {
            dropped: kernel.rx_dropped,
            receive_full: kernel.rx_ring_full.unwrap_or(0),
            no_empty_frame: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            send_full: self.sender.send_full,
            invalid: self.invalid
                + self.sender.shared.pool().invalid()
                + kernel.rx_invalid_descs
                + kernel.tx_invalid_descs,
        })
    }

    /// Returns where the frames of its queue are, after those that the kernel has sent are freed.
    #[must_use]
    pub fn frames(&self) -> FrameCounts {
        self.sender.frames()
    }

    fn wake_receiver(&self) -> io::Result<()> {
        let mut nothing = [0_u8; 0];
        match recv(&self.fd, &mut nothing, RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::NETDOWN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?)
}

/// Maximum number of sockets on a queue: the maximum number of executors of a policy.
const MAX_SOCKETS: u32 = 64;

fn layout(sockets: u32, options: &Options) -> io::Result<Layout> {
    let (frames, size) = (options.frames, options.frame_size);
    let is_valid = frames.is_power_of_two() && frames <= 1 << 16 && matches!(size, 2048 | 4096);
    if is_valid && (1..=MAX_SOCKETS).contains(&sockets) {
        return Ok(Layout { size, half: frames * sockets });
    }
    let text = format!(
        "invalid options: {sockets} sockets with {frames} frames of {size} bytes; allowed are 1 to \
         {MAX_SOCKETS} sockets, a power of two of frames (65536 at most), and 2048 or 4096 bytes"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
