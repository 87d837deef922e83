//! A descriptor registered with a runtime's poller: what sockets, pipes and child processes are made of.

use crate::ambient;
use crate::engine::WeakRuntime;
use crate::poller::{Interest, Registration, Source};
use crate::time::{now, within};
use heddle_core::Ns;
use heddle_netstack::lane::Token;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A non-blocking descriptor, its registration and the settings of this handle.
pub(crate) struct Polled<S> {
    // Dropped first: the registration ends while the descriptor is still open.
    watch: Watch,
    io: S,
    /// Nanoseconds; zero means no limit.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    /// Operations fail with `WouldBlock` instead of waiting.
    nonblocking: AtomicBool,
}

/// A registration, which ends when this is dropped.
struct Watch {
    /// The descriptor that is polled, if the kernel has one.
    fd: Option<RawFd>,
    registration: Registration,
    runtime: WeakRuntime,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(fd) = self.fd {
            self.runtime.remove_source(fd);
        }
    }
}

/// Something that becomes ready: a descriptor, or what only lanes report.
pub(crate) trait Readiness {
    /// Returns the descriptor to poll, if the kernel has one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

impl<S: AsFd> Readiness for S {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Reading into memory that need not be initialised.
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) trait ReadUninit: Readiness {
    /// Reads into the beginning of `buf`. Returns how many bytes it has written there.
    fn read_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize>;
}

#[cfg(any(feature = "hyper", feature = "tokio-io"))]
impl<S: AsFd> ReadUninit for S {
    fn read_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let (bytes, _) = rustix::io::read(self, buf)?;
        Ok(bytes.len())
    }
}

impl<S: AsFd> Polled<S> {
    /// Puts `io` into non-blocking mode and registers it.
    pub(crate) fn adopt(io: S) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Polled::new(io)
    }

    /// Ends the registration and puts the descriptor back into blocking mode.
    pub(crate) fn release(self) -> io::Result<S> {
        let io = self.into_inner();
        rustix::io::ioctl_fionbio(&io, false)?;
        Ok(io)
    }
}

impl<S: Readiness> Polled<S> {
    /// Registers `io` without changing its mode. Operations of a descriptor that is not non-blocking block the
    /// kernel thread.
    pub(crate) fn new(io: S) -> io::Result<Self> {
        let fd = io.descriptor();
        let (registration, runtime) = ambient::register(fd)?;
        Ok(Polled {
            watch: Watch { fd: fd.map(|fd| fd.as_raw_fd()), registration, runtime },
            io,
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            nonblocking: AtomicBool::new(false),
        })
    }

    /// Ends the registration and leaves the mode of the descriptor alone.
    pub(crate) fn into_inner(self) -> S {
        let Polled { watch, io, .. } = self;
        drop(watch);
        io
    }

    pub(crate) fn io(&self) -> &S {
        &self.io
    }

    pub(crate) fn io_mut(&mut self) -> &mut S {
        &mut self.io
    }

    /// Returns the number by which lanes report its readiness.
    pub(crate) fn token(&self) -> Token {
        self.watch.registration.token()
    }

    /// Returns its slot in the poller.
    pub(crate) fn source(&self) -> &'static Source {
        self.watch.registration.source()
    }

    /// Registers a duplicate of the descriptor, with the settings of this handle.
    pub(crate) fn with_settings_of(self, other: &Polled<S>) -> Self {
        Polled {
            read_timeout: other.read_timeout.load(Ordering::Relaxed).into(),
            write_timeout: other.write_timeout.load(Ordering::Relaxed).into(),
            nonblocking: other.nonblocking.load(Ordering::Relaxed).into(),
            ..self
        }
    }

    /// Runs `op` and waits for readiness whenever it reports `WouldBlock`, within the limits of handle and task.
    pub(crate) fn run<R>(
        &self,
        interest: Interest,
        op: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let timeout = Ns(self.timeout_word(interest).load(Ordering::Relaxed));
        let own = (timeout != Ns::ZERO).then(|| now() + timeout);
        self.run_until(interest, own, io::ErrorKind::WouldBlock, op)
    }

    /// Like [`Polled::run`], with a deadline in place of the handle's limit and the error for when that has passed.
    pub(crate) fn run_until<R>(
        &self,
        interest: Interest,
        deadline: Option<Ns>,
        late: io::ErrorKind,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        if self.nonblocking.load(Ordering::Relaxed) {
            return uninterrupted(|| op(&self.io));
        }
        within(deadline, late, |deadline| {
            self.watch.registration.run(interest, deadline, || op(&self.io))
        })
    }

    /// Runs `op`; the future waits for readiness whenever it reports `WouldBlock`. The limits and the mode of the
    /// handle do not apply.
    pub(crate) async fn run_async<R>(
        &self,
        interest: Interest,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        self.watch.registration.run_async(interest, || op(&self.io)).await
    }

    /// Runs `op`; if it reports `WouldBlock`, the waker of `cx`, if it is the latest, is called once it is worth
    /// another try.
    pub(crate) fn poll_io<R>(
        &self,
        interest: Interest,
        cx: &Context<'_>,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.watch.registration.poll_io(interest, cx, || op(&self.io))
    }

    fn timeout_word(&self, interest: Interest) -> &AtomicU64 {
        match interest {
            Interest::Read => &self.read_timeout,
            Interest::Write => &self.write_timeout,
        }
    }

    pub(crate) fn set_timeout(
        &self,
        interest: Interest,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let timeout = timeout.map_or(Ok(Ns::ZERO), nonzero)?;
        self.timeout_word(interest).store(timeout.0, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self, interest: Interest) -> Option<Duration> {
        let timeout = Ns(self.timeout_word(interest).load(Ordering::Relaxed));
        (timeout != Ns::ZERO).then(|| timeout.into())
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }
}

impl<S: AsFd> AsFd for Polled<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<S> Polled<S>
where
    S: Readiness,
    for<'a> &'a S: Read,
{
    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.run(Interest::Read, |mut io| io.read(buf))
    }

    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.run(Interest::Read, |mut io| io.read_vectored(bufs))
    }

    pub(crate) async fn read_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.run_async(Interest::Read, |mut io| io.read(buf)).await
    }

    pub(crate) fn poll_read(&self, cx: &Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_io(Interest::Read, cx, |mut io| io.read(buf))
    }

    pub(crate) fn poll_read_vectored(
        &self,
        cx: &Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(Interest::Read, cx, |mut io| io.read_vectored(bufs))
    }
}

impl<S> Polled<S>
where
    S: Readiness,
    for<'a> &'a S: Write,
{
    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.run(Interest::Write, |mut io| io.write(buf))
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.run(Interest::Write, |mut io| io.write_vectored(bufs))
    }

    pub(crate) async fn write_async(&self, buf: &[u8]) -> io::Result<usize> {
        self.run_async(Interest::Write, |mut io| io.write(buf)).await
    }

    pub(crate) async fn write_vectored_async(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.run_async(Interest::Write, |mut io| io.write_vectored(bufs)).await
    }

    pub(crate) fn poll_write(&self, cx: &Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(Interest::Write, cx, |mut io| io.write(buf))
    }

    pub(crate) fn poll_write_vectored(
        &self,
        cx: &Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(Interest::Write, cx, |mut io| io.write_vectored(bufs))
    }
}

/// Runs `op` again while a signal interrupts it.
pub(crate) fn uninterrupted<R>(mut op: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match op() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A time limit, which must not be zero, as in std.
pub(crate) fn nonzero(timeout: Duration) -> io::Result<Ns> {
    if timeout.is_zero() {
        let refused = "cannot set a timeout of zero; `None` means no timeout";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
    }
    Ok(timeout.into())
}

/// Implements `Read` (of a type and of references to it) by its field 0, a [`Polled`].
macro_rules! impl_read {
    ($($type:ty),*) => {$(
        impl std::io::Read for &$type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }

        impl std::io::Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }
    )*};
}

/// Implements `Write` (of a type and of references to it) by its field 0, a [`Polled`].
macro_rules! impl_write {
    ($($type:ty),*) => {$(
        impl std::io::Write for &$type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                self.0.write(buf)
            }

            fn write_vectored(
                &mut self,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Write for $type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                self.0.write(buf)
            }

            fn write_vectored(
                &mut self,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    )*};
}

/// Implements the conversions of descriptors for a type whose field 0 is a [`Polled`] of `$std`.
macro_rules! impl_descriptor {
    ($($type:ty: $std:ty),*) => {$(
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(&self.0)
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(self))
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.0.io(), f)
            }
        }

        /// Deregisters it and puts the descriptor back into blocking mode.
        impl From<$type> for std::os::fd::OwnedFd {
            fn from(this: $type) -> std::os::fd::OwnedFd {
                let io = this.0.into_inner();
                // Fails only for a descriptor that is not open.
                let _ = rustix::io::ioctl_fionbio(&io, false);
                io.into()
            }
        }

        /// Deregisters it and puts the descriptor back into blocking mode.
        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::IntoRawFd::into_raw_fd(std::os::fd::OwnedFd::from(self))
            }
        }

        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(io: $std) -> std::io::Result<$type> {
                <$type>::from_std(io)
            }
        }

        /// The descriptor must be of the right kind, which is not checked.
        impl TryFrom<std::os::fd::OwnedFd> for $type {
            type Error = std::io::Error;

            fn try_from(fd: std::os::fd::OwnedFd) -> std::io::Result<$type> {
                <$type>::from_std(fd.into())
            }
        }
    )*};
}

pub(crate) use {impl_descriptor, impl_read, impl_write};
