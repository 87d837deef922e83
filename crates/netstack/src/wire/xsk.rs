//! AF_XDP sockets.

use super::{FrameCounts, Handle, Losses, Segmentation, Transmit, Wire};
use heddle_xsk::{
    self as xsk, Kicked, Offload, OffloadHandle, Options, Pending, Sender, XdpSocket,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One lane's AF_XDP socket on one receive queue.
#[derive(Debug)]
pub struct XskWire {
    socket: XdpSocket,
    /// The socket's descriptor again, for handles.
    shared: Arc<OwnedFd>,
    /// It has published frames of AF_XDP since the last kick.
    has_frames: Arc<AtomicBool>,
}

/// The handle of an [`XskWire`].
#[derive(Debug)]
pub struct XskHandle {
    pending: Pending,
    socket: Arc<OwnedFd>,
    has_frames: Arc<AtomicBool>,
    offload: Option<OffloadHandle>,
}

/// Most calls that send one batch. A call sends 32 frames at least.
const MAX_KICKS: u32 = 64;

/// Bytes of large frames that may wait in the kernel, of each socket: what a few connections have in flight.
const WAITING: i32 = 4 << 20;

/// How often, and how far apart, a busy queue is tried again: its former owner's memory is released some milliseconds
/// after that has ended.
const RETRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Why a queue could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another program has an AF_XDP socket on the queue.
    #[error(
        "receive queue {0} of the interface has an AF_XDP socket of another program; end that program, or name another \
         interface"
    )]
    Busy(u32),
    /// The process may not lock that much memory.
    #[error(
        "the limit on locked memory is too low for the frames of receive queue {queue}: {bytes} bytes are needed for \
         each queue; raise it (`ulimit -l`, `LimitMEMLOCK=` in systemd), give the program CAP_IPC_LOCK, or set a \
         smaller `frames=`"
    )]
    LockedMemory {
        /// The queue.
        queue: u32,
        /// What it needs.
        bytes: u64,
    },
    /// The program lacks CAP_NET_RAW.
    #[error("AF_XDP sockets need CAP_NET_RAW: run as root, or give the program that capability")]
    NotPermitted,
    /// The kernel's own reason.
    #[error("cannot open an AF_XDP socket on receive queue {0}: {1}")]
    Kernel(u32, #[source] io::Error),
}

/// Opens a socket for each of `lanes` on receive queue `queue` of the interface with this index. They share the memory
/// of the queue. With `offload` those in copy mode send large frames, if the kernel lets them.
///
/// # Errors
/// See [`OpenError`].
pub fn open_queue(
    interface: u32,
    queue: u32,
    lanes: u32,
    options: &Options,
    offload: bool,
) -> Result<Vec<XskWire>, OpenError> {
    let sockets = bind(interface, queue, lanes, options)
        .map_err(|error| reason(error, queue, lanes, options))?;
    let wires = sockets.into_iter().map(|mut socket| {
        // Without copies frames cost the kernel little.
        if offload && !socket.is_zero_copy()? {
            let packets = heddle_sys::packet::sender(interface, WAITING);
            socket.sender().offload = packets.ok().map(Offload::new);
        }
        let shared = Arc::new(socket.as_fd().try_clone_to_owned()?);
        Ok(XskWire { socket, shared, has_frames: Arc::default() })
    });
    wires.collect::<io::Result<_>>().map_err(|error| OpenError::Kernel(queue, error))
}

fn bind(interface: u32, queue: u32, lanes: u32, options: &Options) -> io::Result<Vec<XdpSocket>> {
    let mut tries = 0;
    loop {
        match XdpSocket::bind_many(interface, queue, lanes, options) {
            Err(error) if is(&error, Errno::BUSY) && tries < RETRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

fn reason(error: io::Error, queue: u32, lanes: u32, options: &Options) -> OpenError {
    let bytes = 2 * u64::from(lanes) * u64::from(options.frames) * u64::from(options.frame_size);
    match () {
        () if is(&error, Errno::BUSY) => OpenError::Busy(queue),
        () if is(&error, Errno::NOBUFS) => OpenError::LockedMemory { queue, bytes },
        () if is(&error, Errno::PERM) => OpenError::NotPermitted,
        () => OpenError::Kernel(queue, error),
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

impl Transmit for Sender {
    #[inline]
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        Sender::send_with(self, length, write).is_ok()
    }

    fn has_large(&self) -> bool {
        self.offload.is_some()
    }

    fn largest(&mut self) -> usize {
        self.offload.as_mut().map_or(0, Offload::room)
    }

    fn send_large(
        &mut self,
        how: Segmentation,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.offload.as_mut().is_some_and(|offload| offload.push(length, Some(how), write))
    }

    #[inline]
    fn batch(&self) -> Option<u16> {
        self.offload.as_ref().and_then(Offload::batch)
    }

    fn send_behind(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.offload.as_mut().is_some_and(|offload| offload.push(length, None, write))
    }
}

impl Wire for XskWire {
    type Transmit = Sender;
    type Handle = XskHandle;

    fn exchange(&mut self, max: usize, each: impl FnMut(&[u8], &mut Sender)) -> usize {
        // The kernel refuses to be told of empty frames only if the interface is down or gone: then none come.
        self.socket.exchange(max, each).unwrap_or(0)
    }

    fn transmit(&mut self) -> &mut Sender {
        self.socket.sender()
    }

    fn publish(&mut self) -> u32 {
        let frames = self.socket.publish();
        if frames > 0 {
            self.has_frames.store(true, Ordering::Release);
        }
        let offload = self.socket.sender().offload.as_mut();
        frames + u32::from(offload.is_some_and(Offload::publish))
    }

    fn handle(&self) -> XskHandle {
        XskHandle {
            pending: self.socket.pending(),
            socket: Arc::clone(&self.shared),
            has_frames: Arc::clone(&self.has_frames),
            offload: self.socket.offload().map(Offload::handle),
        }
    }

    fn losses(&self) -> Losses {
        let counters = self.socket.counters().unwrap_or_default();
        let (full, refused) = self.socket.offload().map_or((0, 0), Offload::losses);
        Losses {
            dropped: counters.dropped,
            receive_full: counters.receive_full,
            no_empty_frame: counters.no_empty_frame,
            send_full: counters.send_full + full,
            refused,
            invalid: counters.invalid,
        }
    }

    fn frames(&self) -> FrameCounts {
        self.socket.frames()
    }
}

impl AsFd for XskWire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Handle for XskHandle {
    #[inline]
    fn is_ready(&self) -> bool {
        self.pending.is_ready()
    }

    /// Those of AF_XDP first: what comes after a large frame of its connection is queued behind that.
    fn kick(&self) -> bool {
        let most = if self.has_frames.swap(false, Ordering::AcqRel) { MAX_KICKS } else { 0 };
        // An interface that is down or gone sends nothing: the frames are lost, as on a cable that is pulled.
        let mut kicks = (0..most).map(|_| xsk::kick(self.socket.as_fd()).unwrap_or(Kicked::All));
        let is_left = most > 0 && kicks.find(|kicked| *kicked != Kicked::More) != Some(Kicked::All);
        if is_left {
            self.has_frames.store(true, Ordering::Release);
        }
        if let Some(offload) = &self.offload {
            offload.kick();
        }
        is_left
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
