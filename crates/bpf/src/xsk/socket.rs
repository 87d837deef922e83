//! The socket: bound to one queue, receiving and sending in batches.

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
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send};

use super::frames::{Full, Layout};
use super::memory::Mapping;
use super::pool::{Shared, ring};
use super::ring::Ring;

/// Whether frames are copied between the driver's memory and the socket's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Not if the driver can do without.
    #[default]
    Auto,
    /// Always. Works on every interface.
    Always,
    /// Never: binding fails where the driver cannot.
    Never,
}

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many frames can wait to be received by a socket, and as many to be sent: a power of two.
    pub frames: u32,
    /// Bytes of a frame, of which the kernel takes 256 in front: 2048 or 4096.
    pub frame_size: u32,
    /// Whether frames are copied.
    pub copying: Copying,
}

impl Default for Options {
    fn default() -> Self {
        Self { frames: 1024, frame_size: 2048, copying: Copying::Auto }
    }
}

/// What happens to a frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAction {
    /// It is empty again.
    Recycle,
    /// It is sent as it is now. If too many are on their way it is dropped and counted.
    Send,
}

/// A frame that was received, for as long as the function that looks at it runs.
#[derive(Debug)]
pub struct Frame<'a> {
    /// From where the packet begins to the end of the frame's memory.
    room: &'a mut [u8],
    length: usize,
}

impl Frame<'_> {
    /// The packet, from the Ethernet header on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[..self.length]
    }

    /// Makes the packet `length` bytes long. False if it would not fit.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.room.len();
        if fits {
            self.length = length;
        }
        fits
    }
}

/// What became of frames, since the socket was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Dropped by the kernel: they did not fit a frame, or for want of memory.
    pub dropped: u64,
    /// Dropped by the kernel because the program did not take them in time.
    pub receive_full: u64,
    /// How often the kernel found no empty frame.
    pub no_empty_frame: u64,
    /// Not sent because too many were on their way.
    pub send_full: u64,
    /// What the kernel said that made no sense (I4), or that it said of this program's frames.
    pub invalid: u64,
}

/// An AF_XDP socket on one queue of an interface. It receives what a program at XDP redirects to it.
#[derive(Debug)]
pub struct XdpSocket {
    receive: Ring<XdpDesc>,
    transmit: Ring<XdpDesc>,
    fd: OwnedFd,
    shared: Arc<Shared>,
    /// Of the batch that is being received: what goes back, and what goes on.
    back: Vec<u64>,
    on: Vec<XdpDesc>,
    invalid: u64,
    send_full: u64,
}

/// How often the kernel is asked to send before the caller gets the processor back: it sends 32 frames a time.
const KICKS: u32 = 64;

impl XdpSocket {
    /// A socket on receive queue `queue` of the interface with index `interface`, in the calling thread's network
    /// namespace. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// `EBUSY` if the queue has a socket already, `EINVAL` if there is no such queue, `ENODEV` if no such interface,
    /// `EOPNOTSUPP` if copying is `Never` and the driver cannot; `InvalidInput` for options that make no sense.
    pub fn bind(interface: u32, queue: u32, options: &Options) -> io::Result<Self> {
        let mut one = Self::bind_many(interface, queue, 1, options)?;
        one.pop().ok_or_else(|| io::Error::other("no socket"))
    }

    /// `count` sockets on one queue, for a policy to choose among, with one memory. Each may be given to a thread of
    /// its own.
    ///
    /// # Errors
    /// As [`Self::bind`]; also `InvalidInput` for no sockets or more than 64.
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

    /// The rings of a socket, before it is bound.
    fn over(fd: OwnedFd, shared: &Arc<Shared>, entries: u32) -> io::Result<Self> {
        sockopt::set_xdp_rx_ring_size(&fd, entries)?;
        sockopt::set_xdp_tx_ring_size(&fd, entries)?;
        let at = sockopt::xdp_mmap_offsets(&fd)?;
        Ok(Self {
            receive: ring(&fd, &at.rx, XDP_PGOFF_RX_RING, entries)?,
            transmit: ring(&fd, &at.tx, XDP_PGOFF_TX_RING, entries)?,
            fd,
            shared: Arc::clone(shared),
            back: Vec::new(),
            on: Vec::new(),
            invalid: 0,
            send_full: 0,
        })
    }

    /// Whether frames are not copied.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let options = sockopt::xdp_options(&self.fd)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Hands up to `most` frames that have come to `each`; how many. Does not wait ([`Self::wait`]). Frames that `each`
    /// sends are on their way when this returns.
    ///
    /// # Errors
    /// The kernel's, on waking it.
    pub fn receive(
        &mut self,
        most: usize,
        mut each: impl FnMut(&mut Frame<'_>) -> FrameAction,
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < most {
            let Some(full) = self.receive.pop() else { break };
            count += 1;
            let Some(start) = self.shared.layout.frame_of(full.addr, full.len) else {
                // Its frame is lost to this queue: there is no telling which it was.
                self.invalid += 1;
                continue;
            };
            let end = self.shared.layout.end_of(start);
            // SAFETY: the kernel has given this frame to this socket, which gives it away only below (I1).
            let mut frame = unsafe { lend(&self.shared.memory, end, full) };
            let then = each(&mut frame);
            let length = u32::try_from(frame.length).unwrap_or(0);
            match then {
                FrameAction::Recycle => self.back.push(start),
                FrameAction::Send => {
                    self.on.push(XdpDesc { len: length, options: XdpDescOptions::empty(), ..full })
                }
            }
        }
        self.receive.release();
        self.settle(count)?;
        Ok(count)
    }

    /// What becomes of a batch of `count` frames.
    fn settle(&mut self, count: usize) -> io::Result<()> {
        let layout = self.shared.layout;
        let mut pool = self.shared.pool();
        pool.reap(layout);
        pool.account.filled(u32::try_from(count).unwrap_or(u32::MAX));
        for frame in self.back.drain(..) {
            pool.account.recycle(frame);
        }
        let sends = !self.on.is_empty();
        for frame in self.on.drain(..) {
            if pool.account.may_send() && self.transmit.push(frame) {
                pool.account.send_on();
            } else {
                self.send_full += 1;
                pool.account.recycle(layout.frame_of(frame.addr, 0).unwrap_or(0));
            }
        }
        pool.refill();
        let (wake, sending) = (pool.needs_wakeup(), pool.account.sending() > 0);
        drop(pool);
        if sends || (sending && !self.transmit.is_drained()) {
            self.flush()?;
        }
        if wake { self.wake_receiver() } else { Ok(()) }
    }

    /// Gives a packet, from the Ethernet header on, to be sent; [`Self::flush`] sends it.
    ///
    /// # Errors
    /// [`Full`] if too many are on their way, or it is longer than a frame.
    pub fn send(&mut self, packet: &[u8]) -> Result<(), Full> {
        let layout = self.shared.layout;
        let length = u32::try_from(packet.len()).map_err(|_| Full)?;
        if layout.frame_of(0, length).is_none() {
            return Err(Full);
        }
        let start = self.frame_to_send().inspect_err(|_| self.send_full += 1)?;
        let desc = XdpDesc { addr: start, len: length, options: XdpDescOptions::empty() };
        // SAFETY: the account has just given this frame to this call, and the kernel gets it only below (I1).
        let frame = unsafe { lend(&self.shared.memory, layout.end_of(start), desc) };
        frame.room[..packet.len()].copy_from_slice(packet);
        let pushed = self.transmit.push(desc);
        debug_assert!(pushed, "there was room");
        Ok(())
    }

    fn frame_to_send(&mut self) -> Result<u64, Full> {
        if self.transmit.room(1) == 0 {
            return Err(Full);
        }
        let mut pool = self.shared.pool();
        pool.reap(self.shared.layout);
        pool.account.next_to_send()
    }

    /// Has the kernel send what was given to it. What it cannot take now, it is asked again at the next call.
    ///
    /// # Errors
    /// The kernel's: `ENETDOWN`, `ENXIO` when the interface is down or gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        for _ in 0..KICKS {
            if self.transmit.is_drained() || !self.transmit.needs_wakeup() {
                break;
            }
            match send(&self.fd, &[], SendFlags::DONTWAIT) {
                // It has sent its share, there is more.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(Errno::BUSY | Errno::NOBUFS | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.shared.pool().reap(self.shared.layout);
        Ok(())
    }

    /// Waits until frames have come or `limit` has passed; whether they have.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        if self.receive.waiting() > 0 {
            return Ok(true);
        }
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut of = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut of, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.receive.waiting() > 0),
            Err(error) => Err(error.into()),
        }
    }

    /// What became of frames.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Counters> {
        let kernel = sockopt::xdp_statistics(&self.fd)?;
        Ok(Counters {
            dropped: kernel.rx_dropped,
            receive_full: kernel.rx_ring_full.unwrap_or(0),
            no_empty_frame: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            send_full: self.send_full,
            invalid: self.invalid
                + self.shared.pool().invalid()
                + kernel.rx_invalid_descs
                + kernel.tx_invalid_descs,
        })
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

/// The most sockets of a queue: as many as a policy can have executors.
const MOST: u32 = 64;

fn layout(sockets: u32, options: &Options) -> io::Result<Layout> {
    let (frames, size) = (options.frames, options.frame_size);
    let sound = frames.is_power_of_two() && frames <= 1 << 16 && matches!(size, 2048 | 4096);
    if sound && (1..=MOST).contains(&sockets) {
        return Ok(Layout { size, half: frames * sockets });
    }
    let text = format!(
        "{sockets} sockets with {frames} frames of {size} bytes: \
         1 to {MOST} sockets, a power of two of frames, 2048 or 4096 bytes"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The bytes from `desc` on to `end`, which [`Layout::frame_of`] has found to be inside of one frame.
///
/// # Safety
/// The frame has no other user for as long as the result lives.
unsafe fn lend(memory: &Mapping, end: u64, desc: XdpDesc) -> Frame<'_> {
    let (from, to) = (desc.addr as usize, end as usize);
    assert!(from <= to && to <= memory.length(), "I4");
    // SAFETY: the range is inside of the mapping, which outlives the frame, and has no other user.
    let room =
        unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr().add(from), to - from) };
    Frame { length: (desc.len as usize).min(room.len()), room }
}
