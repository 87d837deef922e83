//! The two directions of a stream, owned separately.

use super::{TcpStream, unix::UnixStream};
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

/// A stream that can be split into owned halves: [`TcpStream`] and [`UnixStream`].
pub trait Split: sealed::Shutdown {}

mod sealed {
    /// Ends the direction of writing; private to this crate.
    pub trait Shutdown {
        fn shutdown_write(&self) -> std::io::Result<()>;
    }
}

macro_rules! splits {
    ($($stream:ty),*) => {$(
        impl Split for $stream {}

        impl sealed::Shutdown for $stream {
            fn shutdown_write(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
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
            let _ = self.stream.shutdown_write();
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
