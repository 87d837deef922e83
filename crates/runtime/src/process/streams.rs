//! The piped streams of a child process.

use crate::io::{
    Polled, impl_async_read, impl_async_write, impl_descriptor, impl_read, impl_write,
};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{self, Stdio};

/// The end of a pipe that a child reads as its standard input. Dropping it closes the input.
pub struct ChildStdin(Polled<io::PipeWriter>);

/// The end of a pipe to which a child writes its standard output.
pub struct ChildStdout(pub(super) Polled<io::PipeReader>);

/// The end of a pipe to which a child writes its standard error.
pub struct ChildStderr(pub(super) Polled<io::PipeReader>);

macro_rules! streams {
    ($($stream:ident),*) => {$(
        impl $stream {
            /// Takes over a stream of the standard library and makes it non-blocking.
            ///
            /// # Errors
            /// Fails if the descriptor cannot be registered.
            pub fn from_std(stream: process::$stream) -> io::Result<$stream> {
                Polled::adopt(OwnedFd::from(stream).into()).map($stream)
            }

            /// Returns the standard library's stream, in blocking mode.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn into_std(self) -> io::Result<process::$stream> {
                Ok(OwnedFd::from(self.0.release()?).into())
            }
        }

        /// For the streams of another child; the pipe is put back into blocking mode.
        impl From<$stream> for Stdio {
            fn from(stream: $stream) -> Stdio {
                OwnedFd::from(stream).into()
            }
        }
    )*};
}

streams!(ChildStdin, ChildStdout, ChildStderr);
impl_read!(ChildStdout, ChildStderr);
impl_write!(ChildStdin);
impl_async_read!(ChildStdout, ChildStderr);
// Dropping it closes the pipe.
impl_async_write!(ChildStdin: |_: &ChildStdin| Ok(()));
impl_descriptor!(
    ChildStdin: process::ChildStdin,
    ChildStdout: process::ChildStdout,
    ChildStderr: process::ChildStderr
);
