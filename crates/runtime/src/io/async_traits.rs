//! Reading and writing by futures: the functions of each type, and the traits of futures-io and tokio.
//!
//! The traits ask for `poll` functions, of which one task at a time may wait in each direction. The `async` functions
//! queue up, so any number may.

#[cfg(feature = "tokio-io")]
use super::{Polled, ReadUninit};
#[cfg(feature = "tokio-io")]
use crate::poller::Interest;
#[cfg(feature = "tokio-io")]
use std::{
    io,
    task::{Context, Poll, ready},
};

/// Reads into the part of `buf` that is not filled, which need not be initialised.
#[cfg(feature = "tokio-io")]
pub(crate) fn poll_read_buf<S: ReadUninit>(
    polled: &Polled<S>,
    cx: &Context<'_>,
    buf: &mut tokio::io::ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    // SAFETY: only bytes that the system has written are marked as initialised, and none is made uninitialised.
    let unfilled = unsafe { buf.unfilled_mut() };
    let read = ready!(polled.poll_io(Interest::Read, cx, |io| { io.read_uninit(unfilled) }))?;
    // SAFETY: the system has written so many bytes.
    unsafe { buf.assume_init(read) };
    buf.advance(read);
    Poll::Ready(Ok(()))
}

/// Functions and traits that read, of a type whose field 0 is a [`crate::io::Polled`].
macro_rules! impl_async_read {
    ($($type:ty),*) => {$(
        impl $type {
            /// Reads; if there is nothing to read, the waker of `cx` is called once there may be. The waker of the
            /// latest call counts: one task at a time polls in a direction.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn poll_read(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read(cx, buf)
            }

            /// Reads into several buffers; see [`Self::poll_read`].
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn poll_read_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read_vectored(cx, bufs)
            }

            /// Reads; a future that waits for something to read. Returns how many bytes it read, zero at the end. It is
            /// cancel-safe: bytes are read in the poll that returns them.
            ///
            /// # Errors
            /// Returns the system's error.
            pub async fn read_async(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read_async(buf).await
            }
        }

        $crate::io::impl_futures_read!($type);
        $crate::io::impl_futures_read!(&$type);

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                $crate::io::poll_read_buf(&self.0, cx, buf)
            }
        }
    )*};
}

/// Functions and traits that write, of a type whose field 0 is a [`crate::io::Polled`]. `$close` ends the
/// direction.
macro_rules! impl_async_write {
    ($($type:ty: $close:expr),*) => {$(
        impl $type {
            /// Writes; if there is no room, the waker of `cx` is called once there may be. The waker of the latest call
            /// counts: one task at a time polls in a direction.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn poll_write(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write(cx, buf)
            }

            /// Writes the contents of several buffers; see [`Self::poll_write`].
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn poll_write_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write_vectored(cx, bufs)
            }

            /// Writes; a future that waits for room. Returns how many bytes it wrote. It is cancel-safe: bytes are
            /// written in the poll that returns their number.
            ///
            /// # Errors
            /// Returns the system's error.
            pub async fn write_async(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.0.write_async(buf).await
            }

            /// Writes the contents of several buffers; see [`Self::write_async`].
            ///
            /// # Errors
            /// Returns the system's error.
            pub async fn write_vectored_async(
                &self,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.write_vectored_async(bufs).await
            }
        }

        $crate::io::impl_futures_write!($type: $close);
        $crate::io::impl_futures_write!(&$type: $close);

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready($close(&*self))
            }
        }
    )*};
}

/// Implements futures-io's `AsyncRead` by a type's own `poll` functions.
macro_rules! impl_futures_read {
    ($type:ty) => {
        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read_vectored(cx, bufs)
            }
        }
    };
}

/// Implements futures-io's `AsyncWrite` by a type's own `poll` functions.
macro_rules! impl_futures_write {
    ($type:ty: $close:expr) => {
        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write_vectored(cx, bufs)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready($close(&*self))
            }
        }
    };
}

pub(crate) use {impl_async_read, impl_async_write, impl_futures_read, impl_futures_write};
