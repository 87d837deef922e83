//! The socket: bound to one queue, receiving and sending in batches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpOptionsFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send};

use super::frames::{Account, Full};
use super::memory::Mapping;
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
    /// How many frames can wait to be received, and as many to be sent: a power of two.
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
pub enum Then {
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
    // The rings before the descriptor and the memory: nothing of this process may touch what is gone.
    fill: Ring<u64>,
    receive: Ring<XdpDesc>,
    transmit: Ring<XdpDesc>,
    completion: Ring<u64>,
    account: Account,
    fd: OwnedFd,
    memory: Mapping,
    own: Counters,
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
        let (half, size) = (options.frames, options.frame_size);
        if !half.is_power_of_two() || half > 1 << 20 || !matches!(size, 2048 | 4096) {
            let text = format!("{half} frames of {size} bytes: a power of two of 2048 or 4096");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let fd = rustix::net::socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let memory = Mapping::anonymous(half as usize * 2 * size as usize)?;
        register(&fd, &memory, size)?;
        sockopt::set_xdp_umem_fill_ring_size(&fd, half)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, half)?;
        sockopt::set_xdp_rx_ring_size(&fd, half)?;
        sockopt::set_xdp_tx_ring_size(&fd, half)?;
        let at = sockopt::xdp_mmap_offsets(&fd)?;
        let mut socket = Self {
            fill: ring(&fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, half)?,
            receive: ring(&fd, &at.rx, XDP_PGOFF_RX_RING, half)?,
            transmit: ring(&fd, &at.tx, XDP_PGOFF_TX_RING, half)?,
            completion: ring(&fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, half)?,
            account: Account::new(size, half),
            fd,
            memory,
            own: Counters::default(),
        };
        socket.refill();
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
            | match options.copying {
                Copying::Auto => SocketAddrXdpFlags::empty(),
                Copying::Always => SocketAddrXdpFlags::XDP_COPY,
                Copying::Never => SocketAddrXdpFlags::XDP_ZEROCOPY,
            };
        bind(&socket.fd, &SocketAddrXdp::new(flags, interface, queue))?;
        Ok(socket)
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
        mut each: impl FnMut(&mut Frame<'_>) -> Then,
    ) -> io::Result<usize> {
        self.reap();
        let mut count = 0;
        while count < most {
            let Some(full) = self.receive.pop() else { break };
            count += 1;
            self.account.filled();
            let Some(start) = self.account.frame_of(full.addr, full.len) else {
                // Its frame is lost to this socket: there is no telling which it was.
                self.own.invalid += 1;
                continue;
            };
            let mut frame = lend(&mut self.memory, self.account.end_of(start), full);
            let then = each(&mut frame);
            let length = u32::try_from(frame.length).unwrap_or(0);
            self.finish(start, XdpDesc { len: length, ..full }, then);
        }
        self.receive.release();
        self.refill();
        if self.account.sending() > 0 {
            self.flush()?;
        }
        if self.fill.needs_wakeup() {
            self.wake_receiver()?;
        }
        Ok(count)
    }

    fn finish(&mut self, start: u64, frame: XdpDesc, then: Then) {
        let plain = XdpDesc { options: XdpDescOptions::empty(), ..frame };
        if then == Then::Send && self.account.may_send() && self.transmit.push(plain) {
            self.account.send_on();
            return;
        }
        self.own.send_full += u64::from(then == Then::Send);
        self.account.recycle(start);
    }

    /// Gives a packet, from the Ethernet header on, to be sent; [`Self::flush`] sends it.
    ///
    /// # Errors
    /// [`Full`] if too many are on their way, or it is longer than a frame.
    pub fn send(&mut self, packet: &[u8]) -> Result<(), Full> {
        self.reap();
        let length = u32::try_from(packet.len()).map_err(|_| Full)?;
        if self.account.frame_of(0, length).is_none() {
            return Err(Full);
        }
        let start = self.account.to_send().inspect_err(|_| self.own.send_full += 1)?;
        let desc = XdpDesc { addr: start, len: length, options: XdpDescOptions::empty() };
        let frame = lend(&mut self.memory, self.account.end_of(start), desc);
        frame.room[..packet.len()].copy_from_slice(packet);
        let pushed = self.transmit.push(desc);
        debug_assert!(pushed, "I2: as many entries as frames that may be sent");
        Ok(())
    }

    /// Has the kernel send what was given to it. What it cannot take now, it is asked again at the next call.
    ///
    /// # Errors
    /// The kernel's: `ENETDOWN`, `ENXIO` when the interface is down or gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        for _ in 0..KICKS {
            self.reap();
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
        self.reap();
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
            send_full: self.own.send_full,
            invalid: self.own.invalid + kernel.rx_invalid_descs + kernel.tx_invalid_descs,
        })
    }

    /// Takes back the frames that were sent.
    fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            match self.account.frame_of(address, 0) {
                Some(start) => self.account.sent(start),
                None => self.own.invalid += 1,
            }
        }
        self.completion.release();
    }

    /// Gives the kernel empty frames.
    fn refill(&mut self) {
        while let Some(frame) = self.account.to_fill() {
            let pushed = self.fill.push(frame);
            debug_assert!(pushed, "I2: as many entries as frames that may be filled");
        }
        self.fill.publish();
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

fn register(fd: &OwnedFd, memory: &Mapping, size: u32) -> io::Result<()> {
    let area = XdpUmemReg {
        addr: memory.base().as_ptr().expose_provenance() as u64,
        len: memory.length() as u64,
        chunk_size: size,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    // The memory is dropped after the descriptor, and no other process has the descriptor's rings.
    Ok(sockopt::set_xdp_umem_reg(fd, area)?)
}

fn ring<T: Copy>(
    fd: &OwnedFd,
    offsets: &XdpRingOffset,
    place: u64,
    size: u32,
) -> io::Result<Ring<T>> {
    let memory = Mapping::of_socket(fd.as_fd(), place, Ring::<T>::bytes(offsets, size))?;
    Ring::new(memory, offsets, size)
}

/// The bytes from `desc` on to `end`, which [`Account::frame_of`] has found to be inside of one frame.
fn lend(memory: &mut Mapping, end: u64, desc: XdpDesc) -> Frame<'_> {
    let (from, to) = (desc.addr as usize, end as usize);
    assert!(from <= to && to <= memory.length(), "I4");
    // SAFETY: the range is inside of the mapping, which the frame borrows mutably; by I1 the kernel has given the frame
    // that the range is in to this process and gets it back after the borrow has ended.
    let room =
        unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr().add(from), to - from) };
    Frame { length: (desc.len as usize).min(room.len()), room }
}
