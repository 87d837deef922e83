//! The descriptors that C programs name.

use heddle_sys::epoll;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// A descriptor number given by a C program, open or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(RawFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Which file it is: two files behind the same number differ in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Socket,
    Pipe,
    File,
    Device,
    /// An eventfd, a timerfd: not part of a file system.
    Other,
}

/// The file system of anonymous pipes.
const PIPES: i64 = 0x5049_5045;

/// An open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub fd: Fd,
    pub identity: Identity,
    pub kind: FileKind,
}

impl Fd {
    /// Converts `ident` to a descriptor number.
    pub fn of(ident: usize) -> Result<Fd, Errno> {
        let number = RawFd::try_from(ident).map_err(|_| Errno::BADF)?;
        Ok(Fd(number))
    }

    /// Returns a path to the open file, whatever its name is by now.
    pub fn path(self) -> String {
        format!("/proc/self/fd/{}", self.0)
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: never -1, see `of`; used for single system calls that fail with EBADF if it is not open.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Examines the file that is behind it now.
    pub fn inspect(self) -> Result<Open, Errno> {
        use rustix::fs::FileType;
        let stat = rustix::fs::fstat(self.borrow())?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => FileKind::Socket,
            FileType::Fifo => FileKind::Pipe,
            FileType::RegularFile | FileType::Directory => FileKind::File,
            FileType::CharacterDevice | FileType::BlockDevice => FileKind::Device,
            _ => FileKind::Other,
        };
        Ok(Open { fd: self, identity: Identity(stat.st_dev, stat.st_ino), kind })
    }

    /// Returns which of `events` it is ready for, and whether it is broken.
    pub fn ready(self, events: u32) -> u32 {
        epoll::ready_now(self.0, events)
    }

    /// Returns the number of bytes to read. None if the system does not count them, for example for a
    /// listening socket.
    pub fn unread(self) -> Option<u64> {
        rustix::io::ioctl_fionread(self.borrow()).ok()
    }

    /// Returns the number of connections to accept, at least one. None if the system does not count them,
    /// which it does for TCP.
    fn waiting(self) -> Option<u64> {
        let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the call writes at most `size` bytes there, or fails; zeroes are a valid tcp_info.
        let (result, info) = unsafe {
            let at = info.as_mut_ptr().cast();
            let result =
                libc::getsockopt(self.0, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut size);
            (result, info.assume_init())
        };
        // For a listening socket, this is the length of its queue.
        (result == 0).then(|| u64::from(info.tcpi_unacked).max(1))
    }

    fn unsent(self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call writes one int there, or fails.
        let result = unsafe { libc::ioctl(self.0, libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// Takes the socket's pending error, which clears it.
    pub fn take_error(self) -> u32 {
        let error = rustix::net::sockopt::socket_error(self.borrow()).ok();
        error.and_then(Result::err).map_or(0, |error| error.raw_os_error().unsigned_abs())
    }

    /// Whether it is a connected socket.
    pub fn has_peer(self) -> bool {
        rustix::net::getpeername(self.borrow()).is_ok()
    }
}

impl Open {
    /// Whether it is in a file system, where EVFILT_VNODE applies: not a socket, and not an anonymous pipe.
    pub fn has_inode(self) -> bool {
        match self.kind {
            FileKind::File | FileKind::Device => true,
            FileKind::Pipe => {
                rustix::fs::fstatfs(self.fd.borrow()).is_ok_and(|fs| fs.f_type != PIPES)
            }
            FileKind::Socket | FileKind::Other => false,
        }
    }

    /// Returns the number of bytes to read; for a file, those after its offset. At least one if connections
    /// wait, or if nothing is counted.
    pub fn to_read(self) -> u64 {
        match self.kind {
            FileKind::File => self.after_offset(),
            FileKind::Socket => self.fd.unread().or_else(|| self.fd.waiting()).unwrap_or(1),
            FileKind::Pipe | FileKind::Device | FileKind::Other => self.fd.unread().unwrap_or(1),
        }
    }

    fn after_offset(self) -> u64 {
        let size =
            rustix::fs::fstat(self.fd.borrow()).map_or(0, |stat| stat.st_size.unsigned_abs());
        let offset = rustix::fs::seek(self.fd.borrow(), rustix::fs::SeekFrom::Current(0));
        size.saturating_sub(offset.unwrap_or(0))
    }

    /// Returns the room to write: at least one byte, because it is writable. A file has no buffer to count.
    pub fn to_write(self) -> u64 {
        let room = match self.kind {
            FileKind::Socket => self.room_of_socket(),
            FileKind::Pipe => self.room_of_pipe(),
            FileKind::File => return 0,
            FileKind::Device | FileKind::Other => None,
        };
        room.unwrap_or(1).max(1)
    }

    fn room_of_socket(self) -> Option<u64> {
        let buffer = rustix::net::sockopt::socket_send_buffer_size(self.fd.borrow()).ok()? as u64;
        Some(buffer.saturating_sub(self.fd.unsent()))
    }

    fn room_of_pipe(self) -> Option<u64> {
        let size = rustix::pipe::fcntl_getpipe_size(self.fd.borrow()).ok()? as u64;
        Some(size.saturating_sub(self.fd.unread()?))
    }
}

/// Whether `fd` is still the file of `identity`.
pub fn is_same(fd: RawFd, identity: Identity) -> bool {
    Fd(fd).inspect().is_ok_and(|open| open.identity == identity)
}
