//! What is believed of each descriptor: its kind, and whether the program has made it non-blocking.
//!
//! One byte a number. It is learnt at the first call, and forgotten when the program closes the number by a call that
//! is ours. It may be stale otherwise; who uses it finds out by the error that the wrong call returns, or only loses
//! time.

use super::{EAGAIN, ready};
use crate::sys::syscall;
use libc::socklen_t;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// Numbers from here on are never remembered.
pub(super) const FDS: usize = 1 << 18;

static KINDS: [AtomicU8; FDS] = [const { AtomicU8::new(0) }; FDS];

/// What is known of a descriptor; 0 is nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(u8);

impl Kind {
    pub(super) const UNKNOWN: Kind = Kind(0);
    pub(super) const SOCKET: Kind = Kind(1);
    pub(super) const PIPE: Kind = Kind(2);
    /// A regular file or a block device.
    pub(super) const FILE: Kind = Kind(3);
    /// A terminal or another character device.
    pub(super) const DEVICE: Kind = Kind(4);
    /// A counter, a timer and others, which never wait for room to write in practice.
    pub(super) const OTHER: Kind = Kind(5);
    const KINDS: u8 = 7;
    /// A socket that has nothing to receive below an amount of more than a byte (SO_RCVLOWAT).
    const LOW_WATER: u8 = 0x20;
    /// The program's calls return EAGAIN by themselves.
    const NONBLOCK: u8 = 0x40;
    /// A file whose file system does not know RWF_NOWAIT.
    const PLAIN: u8 = 0x80;

    /// Returns the kind alone.
    #[inline]
    pub(super) fn is(self, kind: Kind) -> bool {
        self.0 & Kind::KINDS == kind.0
    }

    #[inline]
    pub(super) fn is_nonblocking(self) -> bool {
        self.0 & Kind::NONBLOCK != 0
    }

    /// Returns whether a receive waits for more than a byte, which only the kernel can.
    #[inline]
    pub(super) fn has_low_water(self) -> bool {
        self.0 & Kind::LOW_WATER != 0
    }

    #[inline]
    pub(super) fn is_plain(self) -> bool {
        self.0 & Kind::PLAIN != 0
    }
}

fn slot(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(usize::try_from(fd).ok()?)
}

/// Returns what is known of `fd`.
#[inline]
pub(super) fn known(fd: c_int) -> Kind {
    slot(fd).map_or(Kind::UNKNOWN, |slot| Kind(slot.load(Ordering::Relaxed)))
}

/// Returns what `fd` is believed to be, after asking the kernel if nothing is known.
#[inline]
pub(super) fn of(fd: c_int) -> Kind {
    match known(fd) {
        kind if kind.0 & Kind::KINDS != 0 => kind,
        _ => learn(fd),
    }
}

/// Asks the kernel what `fd` is, and remembers that.
#[cold]
pub(super) fn learn(fd: c_int) -> Kind {
    let kind = match mode(fd).map(|mode| mode & libc::S_IFMT) {
        None => return Kind::OTHER,
        Some(libc::S_IFSOCK) => match option(fd, libc::SO_RCVLOWAT) {
            Some(2..) => Kind(Kind::SOCKET.0 | Kind::LOW_WATER),
            _ => Kind::SOCKET,
        },
        Some(libc::S_IFIFO) => Kind::PIPE,
        Some(libc::S_IFREG | libc::S_IFBLK) => Kind::FILE,
        Some(libc::S_IFCHR) => Kind::DEVICE,
        Some(_) => Kind::OTHER,
    };
    set(fd, kind);
    kind
}

fn mode(fd: c_int) -> Option<libc::mode_t> {
    // SAFETY: all zeros is a value of the structure, which is valid for the call.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (syscall!(libc::SYS_fstat, fd, &raw mut stat) == 0).then_some(stat.st_mode)
    }
}

/// Returns an option of `fd`, if it is a socket.
pub(super) fn option(fd: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut size = size_of::<c_int>() as socklen_t;
    let (at, size) = (&raw mut value, &raw mut size);
    // SAFETY: room for the answer.
    let result = unsafe { syscall!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, size) };
    (result == 0).then_some(value)
}

/// Returns whether `fd` is a file now.
pub(super) fn is_file(fd: c_int) -> bool {
    mode(fd).is_some_and(|mode| matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK))
}

/// Notes that `fd` is a new descriptor of this kind.
#[inline]
pub(super) fn set(fd: c_int, kind: Kind) {
    if let Some(slot) = slot(fd) {
        slot.store(kind.0, Ordering::Relaxed);
    }
}

/// Forgets what was known of `fd`.
#[inline]
pub(super) fn forget(fd: c_int) {
    set(fd, Kind::UNKNOWN);
}

/// Notes that the file system of `fd` does not know RWF_NOWAIT.
pub(super) fn set_plain(fd: c_int) {
    add(fd, Kind::PLAIN);
}

fn add(fd: c_int, bit: u8) {
    if let Some(slot) = slot(fd) {
        slot.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Asks the kernel whether the program has made `fd` non-blocking, and remembers it if so.
pub(super) fn ask_nonblocking(fd: c_int) -> bool {
    // SAFETY: no memory.
    let flags = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    let is = flags >= 0 && flags & libc::O_NONBLOCK as isize != 0;
    if is {
        add(fd, Kind::NONBLOCK);
    }
    is
}

/// Runs `call` if `fd` is ready for `events` now, or has an error that `call` will return; else returns EAGAIN.
pub(super) fn if_ready(fd: c_int, events: u32, call: impl FnOnce() -> isize) -> isize {
    if ready::is(fd, events) { call() } else { EAGAIN }
}
