//! Sockets and epolls that stay locked, to test what other threads can still do: the owner of the lock waits for a page
//! that never arrives.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Keeps an IPv4 socket, or an epoll, locked for as long as it lives.
#[derive(Debug)]
pub struct Locked {
    faults: Option<OwnedFd>,
    owner: Option<JoinHandle<()>>,
}

impl Locked {
    /// Locks `socket`.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` without `userfaultfd` for faults in the kernel, which needs root.
    ///
    /// # Panics
    /// If the lock is not taken within a minute.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Self::by(move |page| {
            let options = page as *const libc::c_void;
            let (level, option) = (libc::IPPROTO_IP, libc::IP_OPTIONS);
            // SAFETY: the kernel reads eight bytes of the page, or gets a fault.
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, options, 8) };
        })
    }

    /// Locks an epoll that watches `file`, which is ready for reading or writing: the last close of `file` then blocks.
    ///
    /// # Errors
    /// As for [`Self::new`]; also fails if `file` cannot be watched.
    ///
    /// # Panics
    /// As for [`Self::new`].
    pub fn epoll_of(file: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: makes a descriptor of our own.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is ours; the event is read only.
        let (epoll, added) = unsafe {
            let events = (libc::EPOLLIN | libc::EPOLLOUT).cast_unsigned();
            let mut event = libc::epoll_event { events, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            let added = libc::epoll_ctl(epoll, add, file.as_raw_fd(), &raw mut event);
            (OwnedFd::from_raw_fd(epoll), added)
        };
        if added < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::by(move |page| {
            let events = page as *mut libc::epoll_event;
            // SAFETY: the kernel writes one event into the page, which is ours, or gets a fault.
            unsafe { libc::epoll_wait(epoll.as_raw_fd(), events, 1, -1) };
        })
    }

    /// Runs `call` with the address of the page, which it accesses while it holds the lock.
    fn by(call: impl FnOnce(usize) + Send + 'static) -> io::Result<Self> {
        let (faults, page) = absent_page()?;
        let (sender, number) = mpsc::channel();
        let owner = thread::spawn(move || {
            let _ = sender.send(crate::thread::id());
            call(page);
        });
        let locked = Self { faults: Some(faults), owner: Some(owner) };
        let number = number.recv().map_err(io::Error::other)?;
        let asleep = format!("/proc/self/task/{number}/wchan");
        let begin = Instant::now();
        while !fs::read_to_string(&asleep).is_ok_and(|at| at == "handle_userfault") {
            assert!(begin.elapsed() < Duration::from_secs(60), "the lock was not taken");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(locked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Wakes the thread that waits for the page; it finds a page of zeros.
        drop(self.faults.take());
        let _ = self.owner.take().map(JoinHandle::join);
    }
}

/// Returns the address of a page that arrives when the descriptor is closed.
fn absent_page() -> io::Result<(OwnedFd, usize)> {
    /// `UFFDIO_API` and `UFFDIO_REGISTER` of linux/userfaultfd.h.
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const VERSION: u64 = 0xaa;
    const MISSING: u64 = 1;
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: makes a descriptor and a page of our own; the structures have the sizes encoded in the request numbers.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = OwnedFd::from_raw_fd(fd.ok_or_else(io::Error::last_os_error)?);
        let page = libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut api = [VERSION, 0, 0];
        let mut range = [page as u64, PAGE as u64, MISSING, 0];
        let ready = libc::ioctl(fd.as_raw_fd(), API, api.as_mut_ptr()) == 0
            && libc::ioctl(fd.as_raw_fd(), REGISTER, range.as_mut_ptr()) == 0;
        if ready { Ok((fd, page as usize)) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::addresses;
    use std::os::fd::AsFd as _;

    #[test]
    fn the_last_close_of_a_file_in_a_locked_epoll_blocks() {
        let (file, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let Ok(locked) = Locked::epoll_of(file.as_fd()) else {
            eprintln!("SKIPPED: needs userfaultfd, which needs root");
            return;
        };
        drop(file.try_clone().unwrap());
        let (sender, number) = mpsc::channel();
        let closing = thread::spawn(move || {
            sender.send(crate::thread::id()).unwrap();
            drop(file);
        });
        let stat = format!("/proc/self/task/{}/stat", number.recv().unwrap());
        while !fs::read_to_string(&stat).unwrap().contains(") D ") {
            thread::sleep(Duration::from_millis(5));
        }
        drop(locked);
        closing.join().unwrap();
    }

    #[test]
    fn a_locked_socket_reports_nothing_and_its_neighbour_does() {
        let sockets = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let [first, second] = sockets.each_ref().map(|socket| Some(socket.local_addr().unwrap()));
        let fds = sockets.each_ref().map(|socket| socket.as_fd());
        assert_eq!(addresses(9, &fds).unwrap(), [first, second]);
        let Ok(locked) = Locked::new(sockets[0].try_clone().unwrap().into()) else {
            eprintln!("SKIPPED: needs userfaultfd, which needs root");
            return;
        };
        assert_eq!(addresses(9, &fds).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(addresses(9, &fds[1..]).unwrap(), [second]);
        drop(locked);
        assert_eq!(addresses(9, &fds).unwrap(), [first, second]);
    }
}
