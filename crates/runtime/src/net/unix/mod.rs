//! Unix sockets. The interface is that of `std::os::unix::net`.
//!
//! ```
//! use heddle_rt::net::unix::{UnixListener, UnixStream};
//! use std::io::{Read as _, Write as _};
//!
//! let path = std::env::temp_dir().join(format!("heddle-doc-{}.socket", std::process::id()));
//! let listener = UnixListener::bind(&path)?;
//! let server = heddle_rt::spawn(move || listener.accept()?.0.write_all(b"hello"));
//! let mut text = String::new();
//! UnixStream::connect(&path)?.read_to_string(&mut text)?;
//! assert_eq!(text, "hello");
//! server.join().unwrap()?;
//! std::fs::remove_file(path)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod datagram;
mod stream;

use rustix::net::RecvFlags;
use std::io;
use std::os::fd::AsFd;

pub use datagram::UnixDatagram;
pub use std::os::unix::net::SocketAddr;
pub use stream::{Incoming, UnixListener, UnixStream};

/// The process at the other end of a [`UnixStream`], as it was when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its id; `None` if this process's namespace does not contain it.
    pub pid: Option<u32>,
}

/// The half of a [`UnixStream`] that reads; see [`UnixStream::into_split`].
pub type OwnedReadHalf = super::OwnedReadHalf<UnixStream>;

/// The half of a [`UnixStream`] that writes; see [`UnixStream::into_split`].
pub type OwnedWriteHalf = super::OwnedWriteHalf<UnixStream>;

/// Copies what a socket would receive. `std` has this for Unix sockets in nightly Rust only.
fn peek(socket: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    let (len, _) = rustix::net::recv(socket, buf, RecvFlags::PEEK)?;
    Ok(len)
}
