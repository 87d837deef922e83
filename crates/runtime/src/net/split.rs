//! The two directions of a stream, owned separately.

use super::{TcpStream, unix::UnixStream};
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A stream that can be split into owned halves: [`TcpStream`] and [`UnixStream`].
pub trait Split: sealed::Stream {}

mod sealed {
    use std::io::{IoSlice, IoSliceMut, Result};
    use std::task::{Context, Poll};

    /// What the halves do with their stream; private to this crate.
    pub trait Stream {
        fn close_write(&self) -> Result<()>;
        fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>>;
        fn poll_read_vectored(
            &self,
            cx: &mut Context<'_>,
            bufs: &mut [IoSliceMut<'_>],
        ) -> Poll<Result<usize>>;
        #[cfg(feature = "tokio-io")]
        fn poll_read_buf(
            &self,
            cx: &mut Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<Result<()>>;
        fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>>;
        fn poll_write_vectored(
            &self,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<Result<usize>>;
    }
}

macro_rules! splits {
    ($($stream:ty),*) => {$(
        impl Split for $stream {}

        impl sealed::Stream for $stream {
            fn close_write(&self) -> io::Result<()> {
                <$stream>::close_write(self)
            }

            fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                self.0.poll_read(cx, buf)
            }

            fn poll_read_vectored(
                &self,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read_vectored(cx, bufs)
            }

            #[cfg(feature = "tokio-io")]
            fn poll_read_buf(
                &self,
                cx: &mut Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                crate::io::poll_read_buf(&self.0, cx, buf)
            }

            fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.0.poll_write(cx, buf)
            }

            fn poll_write_vectored(
                &self,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write_vectored(cx, bufs)
            }
        }

        impl $stream {
            /// Splits the stream into a half that reads and one that writes, for two tasks. (Tasks that only borrow the
            /// stream need no halves: `&stream` reads and writes.)
            ///
            /// Both share one registration. The direction of writing is shut down when its half is dropped, and the
            /// socket closed when both are.
            pub fn into_split(self) -> (OwnedReadHalf<$stream>, OwnedWriteHalf<$stream>) {
                let stream = Arc::new(self);
                let write = OwnedWriteHalf { stream: stream.clone(), shuts_down: true };
                (OwnedReadHalf { stream }, write)
            }
        }
    )*};
}

splits!(TcpStream, UnixStream);

/// The half of a stream that reads.
///
/// ```
/// use heddle_rt::net::unix::UnixStream;
/// use std::io::{Read as _, Write as _};
///
/// let (stream, echo) = UnixStream::pair()?;
/// heddle_rt::spawn(move || std::io::copy(&mut &echo, &mut &echo));
///
/// let (mut reader, mut writer) = stream.into_split();
/// let sender = heddle_rt::spawn(move || {
///     writer.write_all(b"to and fro").unwrap();
///     writer
/// });
/// let mut text = [0; 10];
/// reader.read_exact(&mut text)?;
/// assert_eq!(&text, b"to and fro");
/// let stream = reader.reunite(sender.join().unwrap()).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OwnedReadHalf<S: Split> {
    stream: Arc<S>,
}

/// The half of a stream that writes. Dropping it shuts down the direction: the peer reads the end.
pub struct OwnedWriteHalf<S: Split> {
    stream: Arc<S>,
    shuts_down: bool,
}

/// The halves belong to different streams; both are given back.
pub struct ReuniteError<S: Split>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Split> OwnedReadHalf<S> {
    /// Puts the two halves of a stream together again.
    ///
    /// # Errors
    /// Fails if they belong to different streams.
    pub fn reunite(self, mut write: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.stream, &write.stream) {
            return Err(ReuniteError(self, write));
        }
        write.shuts_down = false;
        drop(write);
        // Only the halves share the stream, and neither can be cloned.
        Ok(Arc::into_inner(self.stream).expect("the other half is gone"))
    }
}

impl<S: Split> OwnedWriteHalf<S> {
    /// Puts the two halves of a stream together again.
    ///
    /// # Errors
    /// Fails if they belong to different streams.
    pub fn reunite(self, read: OwnedReadHalf<S>) -> Result<S, ReuniteError<S>> {
        read.reunite(self)
    }

    /// Drops the half without shutting down the direction.
    pub fn forget(mut self) {
        self.shuts_down = false;
    }
}

impl<S: Split> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.shuts_down {
            // Fails if the peer is gone already.
            let _ = self.stream.close_write();
        }
    }
}

impl<S: Split> AsRef<S> for OwnedReadHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Split> AsRef<S> for OwnedWriteHalf<S> {
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Split> Read for OwnedReadHalf<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self.stream).read_vectored(bufs)
    }
}

impl<S: Split> Write for OwnedWriteHalf<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.stream).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.stream).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "futures-io")]
impl<S: Split> futures_io::AsyncRead for OwnedReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_read(cx, buf)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_read_vectored(cx, bufs)
    }
}

#[cfg(feature = "futures-io")]
impl<S: Split> futures_io::AsyncWrite for OwnedWriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.close_write())
    }
}

#[cfg(feature = "tokio-io")]
impl<S: Split> tokio::io::AsyncRead for OwnedReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_read_buf(cx, buf)
    }
}

#[cfg(feature = "tokio-io")]
impl<S: Split> tokio::io::AsyncWrite for OwnedWriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.close_write())
    }
}

impl<S: Split + fmt::Debug> fmt::Debug for OwnedReadHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedReadHalf").field(&self.stream).finish()
    }
}

impl<S: Split + fmt::Debug> fmt::Debug for OwnedWriteHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedWriteHalf").field(&self.stream).finish()
    }
}

impl<S: Split> fmt::Debug for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReuniteError(..)")
    }
}

impl<S: Split> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot reunite halves of different streams")
    }
}

impl<S: Split> Error for ReuniteError<S> {}
