//! What is behind a descriptor that C names.

use heddle_sys::epoll;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// A descriptor's number, as a program in C gives it: open or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(RawFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Which file it is: another one behind the same number differs in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// What kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Socket,
    Pipe,
    File,
    Device,
    /// An eventfd, a timerfd: nothing of a file system.
    Other,
}

/// The file system of pipes without a name.
const PIPES: i64 = 0x5049_5045;

/// An open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub fd: Fd,
    pub identity: Identity,
    pub what: What,
}

impl Fd {
    /// The number that `ident` is, if it can be one.
    pub fn of(ident: usize) -> Result<Fd, Errno> {
        let number = RawFd::try_from(ident).map_err(|_| Errno::BADF)?;
        Ok(Fd(number))
    }

    /// A path to what is behind it, whatever its name is by now.
    pub fn path(self) -> String {
        format!("/proc/self/fd/{}", self.0)
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: never -1, see `of`; used for single system calls that fail with EBADF if nothing is behind it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// What is behind it now.
    pub fn look(self) -> Result<Open, Errno> {
        use rustix::fs::FileType;
        let stat = rustix::fs::fstat(self.borrow())?;
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => What::Socket,
            FileType::Fifo => What::Pipe,
            FileType::RegularFile | FileType::Directory => What::File,
            FileType::CharacterDevice | FileType::BlockDevice => What::Device,
            _ => What::Other,
        };
        Ok(Open { fd: self, identity: Identity(stat.st_dev, stat.st_ino), what })
    }

    /// What of `events` it is ready for, and what broke.
    pub fn ready(self, events: u32) -> u32 {
        epoll::ready_now(self.0, events)
    }

    /// Bytes to read. None where the system does not count them, for a socket that listens as an example.
    fn unread(self) -> Option<u64> {
        rustix::io::ioctl_fionread(self.borrow()).ok()
    }

    /// Connections that wait to be accepted, at least one. None where the system does not count them, which it does for TCP.
    fn waiting(self) -> Option<u64> {
        let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
        let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the call writes `size` bytes there at most, or fails; zeroes are a tcp_info.
        let (result, info) = unsafe {
            let at = info.as_mut_ptr().cast();
            let result =
                libc::getsockopt(self.0, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut size);
            (result, info.assume_init())
        };
        // Of a socket that listens this is the length of its queue.
        (result == 0).then(|| u64::from(info.tcpi_unacked).max(1))
    }

    fn unsent(self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call writes one int there, or fails.
        let result = unsafe { libc::ioctl(self.0, libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// The error that a socket has. It has none any more after this.
    pub fn take_error(self) -> u32 {
        let error = rustix::net::sockopt::socket_error(self.borrow()).ok();
        error.and_then(Result::err).map_or(0, |error| error.raw_os_error().unsigned_abs())
    }

    /// Whether it is a socket with a peer.
    pub fn has_peer(self) -> bool {
        rustix::net::getpeername(self.borrow()).is_ok()
    }
}

impl Open {
    /// Whether it is in a file system, where things happen to it (EVFILT_VNODE): no socket, and no pipe without a name.
    pub fn has_inode(self) -> bool {
        match self.what {
            What::File | What::Device => true,
            What::Pipe => rustix::fs::fstatfs(self.fd.borrow()).is_ok_and(|fs| fs.f_type != PIPES),
            What::Socket | What::Other => false,
        }
    }

    /// Bytes to read, of a file those after its offset. At least one where connections wait, or where nothing is counted.
    pub fn to_read(self) -> u64 {
        match self.what {
            What::File => self.after_offset(),
            What::Socket => self.fd.unread().or_else(|| self.fd.waiting()).unwrap_or(1),
            What::Pipe | What::Device | What::Other => self.fd.unread().unwrap_or(1),
        }
    }

    fn after_offset(self) -> u64 {
        let size =
            rustix::fs::fstat(self.fd.borrow()).map_or(0, |stat| stat.st_size.unsigned_abs());
        let offset = rustix::fs::seek(self.fd.borrow(), rustix::fs::SeekFrom::Current(0));
        size.saturating_sub(offset.unwrap_or(0))
    }

    /// Room to write: at least one byte, as it is writable. A file has no buffer to count.
    pub fn to_write(self) -> u64 {
        let room = match self.what {
            What::Socket => self.room_of_socket(),
            What::Pipe => self.room_of_pipe(),
            What::File => return 0,
            What::Device | What::Other => None,
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

/// The pipe whose ends stand for a queue: to the program, and to this library.
pub fn is_same(fd: RawFd, identity: Identity) -> bool {
    Fd(fd).look().is_ok_and(|open| open.identity == identity)
}
