//! Readiness of any descriptor.

use super::Polled;
use super::polled::uninterrupted;
use crate::poller::Interest;
use crate::time::now;
use heddle_sys::epoll;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// Any descriptor that epoll can watch (timers, event counters, inotify, terminals, sockets of other libraries,
/// ...), with waits for its readiness that leave the worker to other tasks: what tokio calls `AsyncFd`.
///
/// Waiting does not depend on the mode of the descriptor. [`Pollable::read_with`], [`Pollable::write_with`], `Read`
/// and `Write` need it non-blocking: see [`Pollable::set_nonblocking`]. In blocking mode an operation that finds
/// nothing blocks the kernel thread.
///
/// ```
/// use heddle_rt::io::Pollable;
/// use std::io::{Read as _, Write as _};
/// use std::os::unix::net::UnixStream;
/// use std::time::Duration;
///
/// let (ours, mut theirs) = UnixStream::pair()?; // a socket that Heddle does not know
/// let ours = Pollable::new(ours)?;
/// ours.set_nonblocking(true)?;
/// let none = ours.wait_readable_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(none.kind(), std::io::ErrorKind::TimedOut);
///
/// theirs.write_all(b"ready")?;
/// ours.wait_readable()?;
/// let mut text = [0; 5];
/// let read = ours.read_with(|mut socket| socket.read(&mut text))?;
/// assert_eq!(&text[..read], b"ready");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Pollable<T: AsFd>(Polled<T>);

impl<T: AsFd> Pollable<T> {
    /// Registers the descriptor of `io` with the calling task's runtime, or with the process-wide one in an
    /// ordinary thread. The descriptor must stay the same and open for as long as this lives.
    ///
    /// # Errors
    /// - [`Unsupported`](io::ErrorKind::Unsupported): epoll does not watch descriptors of this kind. Files and
    ///   directories are always ready: use [`crate::fs`] or [`blocking`](crate::blocking()) for them.
    /// - [`AlreadyExists`](io::ErrorKind::AlreadyExists): the runtime watches this descriptor already.
    /// - The system's other errors.
    pub fn new(io: T) -> io::Result<Pollable<T>> {
        Polled::new(io).map(Pollable)
    }

    /// Waits until a read would not block: there is data, the end or an error.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn wait_readable(&self) -> io::Result<()> {
        self.wait(Interest::Read, None)
    }

    /// Waits until a read would not block, for at most `timeout`.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if it was not ready in time.
    pub fn wait_readable_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wait(Interest::Read, Some(timeout))
    }

    /// Waits until a write would not block: there is room or an error.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn wait_writable(&self) -> io::Result<()> {
        self.wait(Interest::Write, None)
    }

    /// Waits until a write would not block, for at most `timeout`.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if it was not ready in time.
    pub fn wait_writable_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wait(Interest::Write, Some(timeout))
    }

    fn wait(&self, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.map(|timeout| now() + timeout.into());
        self.0.run_until(interest, deadline, io::ErrorKind::TimedOut, |io| is_ready(io, interest))
    }

    /// Waits until a read would not block: [`Pollable::wait_readable`] as a future. It is cancel-safe.
    ///
    /// # Errors
    /// Never fails so far.
    pub async fn readable_async(&self) -> io::Result<()> {
        self.0.run_async(Interest::Read, |io| is_ready(io, Interest::Read)).await
    }

    /// Waits until a write would not block: [`Pollable::wait_writable`] as a future. It is cancel-safe.
    ///
    /// # Errors
    /// Never fails so far.
    pub async fn writable_async(&self) -> io::Result<()> {
        self.0.run_async(Interest::Write, |io| is_ready(io, Interest::Write)).await
    }

    /// Runs `read`, and again after each wait for readability while it fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): [`Pollable::read_with`] as a future. It is cancel-safe: what `read`
    /// returns is returned in the same poll.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub async fn read_with_async<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.run_async(Interest::Read, read).await
    }

    /// Runs `write`, and again after each wait for writability while it fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): [`Pollable::write_with`] as a future. It is cancel-safe: what `write`
    /// returns is returned in the same poll.
    ///
    /// # Errors
    /// Returns the error of `write`.
    pub async fn write_with_async<R>(
        &self,
        write: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.run_async(Interest::Write, write).await
    }

    /// Runs `read`; if it fails with [`WouldBlock`](io::ErrorKind::WouldBlock), the waker of `cx` is called once the
    /// descriptor is readable. The waker of the latest call counts: one task at a time polls in a direction.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn poll_read_with<R>(
        &self,
        cx: &mut Context<'_>,
        read: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.0.poll_io(Interest::Read, cx, read)
    }

    /// Runs `write`; if it fails with [`WouldBlock`](io::ErrorKind::WouldBlock), the waker of `cx` is called once the
    /// descriptor is writable. The waker of the latest call counts: one task at a time polls in a direction.
    ///
    /// # Errors
    /// Returns the error of `write`.
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        write: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.0.poll_io(Interest::Write, cx, write)
    }

    /// Runs `read`, and again after each wait for readability while it fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock). It must not wait itself, nor block.
    ///
    /// # Errors
    /// Returns the error of `read`; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn read_with<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.run(Interest::Read, read)
    }

    /// Runs `write`, and again after each wait for writability while it fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock). It must not wait itself, nor block.
    ///
    /// # Errors
    /// Returns the error of `write`; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn write_with<R>(&self, write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.run(Interest::Write, write)
    }

    /// Runs `op` without waiting; again only if a signal interrupted it.
    ///
    /// # Errors
    /// Returns the error of `op`: [`WouldBlock`](io::ErrorKind::WouldBlock) if it found nothing.
    pub fn try_io<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        uninterrupted(|| op(self.0.io()))
    }

    /// Sets or clears `O_NONBLOCK`, which every duplicate of the descriptor shares, also in other processes: clear
    /// it again for a terminal.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self, nonblocking)?)
    }

    /// Returns what was registered.
    pub fn get_ref(&self) -> &T {
        self.0.io()
    }

    /// Ends the registration and returns what was registered, in the mode that it has.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// Asks the system whether an operation would not block; `WouldBlock` if it would.
fn is_ready(io: &impl AsFd, interest: Interest) -> io::Result<()> {
    let events = match interest {
        Interest::Read => epoll::READ,
        Interest::Write => epoll::WRITE,
    };
    match epoll::ready_now(io.as_fd().as_raw_fd(), events) {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

impl<T: AsFd> AsFd for Pollable<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Pollable<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Pollable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pollable").field(self.get_ref()).finish()
    }
}

impl<T: AsFd> Read for &Pollable<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }
}

impl<T: AsFd> Read for Pollable<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }
}

impl<T: AsFd> Write for &Pollable<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.io().flush()
    }
}

impl<T: AsFd> Write for Pollable<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.io().flush()
    }
}
