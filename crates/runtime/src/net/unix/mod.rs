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

pub use datagram::UnixDatagram;
pub use std::os::unix::net::SocketAddr;
pub use stream::{Incoming, UnixListener, UnixStream};

/// The half of a [`UnixStream`] that reads; see [`UnixStream::into_split`].
pub type OwnedReadHalf = super::OwnedReadHalf<UnixStream>;

/// The half of a [`UnixStream`] that writes; see [`UnixStream::into_split`].
pub type OwnedWriteHalf = super::OwnedWriteHalf<UnixStream>;
