//! Anonymous pipes.

use super::{Polled, impl_async_read, impl_async_write, impl_descriptor, impl_read, impl_write};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

/// The end of a pipe that is read from; see [`pipe`].
pub struct PipeReader(Polled<io::PipeReader>);

/// The end of a pipe that is written to; see [`pipe`].
pub struct PipeWriter(Polled<io::PipeWriter>);

/// Creates an anonymous pipe, as `std::io::pipe` does. A reader gets all bytes in order and then, once every writer
/// is dropped, the end; a writer whose readers are gone gets [`BrokenPipe`](io::ErrorKind::BrokenPipe).
///
/// ```
/// use std::io::{Read as _, Write as _};
///
/// let (mut reader, mut writer) = heddle_rt::io::pipe()?;
/// let task = heddle_rt::spawn(move || writer.write_all(b"through the pipe"));
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// task.join().unwrap()?;
/// assert_eq!(text, "through the pipe");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Fails if the process has no descriptors left.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((PipeReader::from_std(reader)?, PipeWriter::from_std(writer)?))
}

macro_rules! ends {
    ($($end:ident),*) => {$(
        impl $end {
            /// Takes over an end of a pipe of the standard library and makes it non-blocking.
            ///
            /// # Errors
            /// Fails if the descriptor cannot be registered.
            pub fn from_std(end: io::$end) -> io::Result<$end> {
                Polled::adopt(end).map($end)
            }

            /// Returns the standard library's end, in blocking mode. The mode is shared with clones.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn into_std(self) -> io::Result<io::$end> {
                self.0.release()
            }

            /// Creates a second handle to the same end.
            ///
            /// # Errors
            /// Fails if the process has no descriptors left.
            pub fn try_clone(&self) -> io::Result<$end> {
                Polled::new(self.0.io().try_clone()?).map($end)
            }
        }

        /// For the standard streams of a child process; the pipe is put back into blocking mode.
        impl From<$end> for Stdio {
            fn from(end: $end) -> Stdio {
                OwnedFd::from(end).into()
            }
        }
    )*};
}

ends!(PipeReader, PipeWriter);
impl_read!(PipeReader);
impl_write!(PipeWriter);
impl_async_read!(PipeReader);
// A pipe ends when its writers are dropped.
impl_async_write!(PipeWriter: |_: &PipeWriter| Ok(()));
impl_descriptor!(PipeReader: io::PipeReader, PipeWriter: io::PipeWriter);
