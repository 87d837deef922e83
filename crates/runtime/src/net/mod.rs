//! TCP, UDP and Unix sockets whose waits leave the worker to other tasks. The interface is `std::net`'s; in an
//! ordinary thread the thread waits.
//!
//! ```
//! use heddle_rt::net::{TcpListener, TcpStream};
//! use std::io::{Read as _, Write as _};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let addr = listener.local_addr()?;
//! let server = heddle_rt::spawn(move || listener.accept()?.0.write_all(b"hello"));
//! let mut text = String::new();
//! TcpStream::connect(addr)?.read_to_string(&mut text)?;
//! assert_eq!(text, "hello");
//! server.join().unwrap()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Time limits
//! An operation that takes longer than [`TcpStream::set_read_timeout`] and its like allow fails with
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock), as in `std::net` on Linux. One that [`crate::timeout`] or
//! [`TcpStream::connect_timeout`] cuts off fails with [`TimedOut`](std::io::ErrorKind::TimedOut). Either way, an
//! operation that can complete at once does so, however late it is.
//!
//! [`CancellationToken::run_until_cancelled`](crate::sync::CancellationToken::run_until_cancelled) ends waits, too.
//!
//! # Futures
//! The functions whose names end in `_async` do the same as futures, for any executor; see [`crate::io`].
//!
//! ```
//! use heddle_rt::net::{TcpListener, TcpStream};
//!
//! heddle_rt::block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let client = TcpStream::connect_async(listener.local_addr()?).await?;
//!     let (server, _) = listener.accept_async().await?;
//!     client.write_async(b"hello").await?;
//!     let mut text = [0; 5];
//!     assert_eq!(server.read_async(&mut text).await?, 5);
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Modes and other libraries
//! Descriptors are non-blocking underneath. `from_std` and `try_from` take over a socket of the standard library
//! (or an [`OwnedFd`](std::os::fd::OwnedFd)); `into_std` gives it back in blocking mode.
//! [`TcpStream::set_nonblocking`] and its like are a setting of the handle: its operations do not wait.
//!
//! # Runtimes
//! The runtime in which a socket is made (in an ordinary thread, the process-wide one) watches it. Any task or thread
//! may use it, also of another runtime, for as long as the first exists; after that waits do not end.

mod addr;
mod connect;
mod listener_io;
mod options;
mod resolve;
mod retry;
mod split;
mod stream_io;
pub mod tcp;
mod udp;
mod udp_io;
pub mod unix;

pub use addr::ToSocketAddrs;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError, Split};
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
};
#[cfg(feature = "hyper")]
pub(crate) use stream_io::StreamIo;
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
