//! Errors of starting or running a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_store::StoreError;

/// An error that ends the server; errors of clients do not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program listens there.
    #[error(
        "{protocol} port {} of {} is in use; stop the program that uses it (`ss -lnp` shows it), or choose \
         another port (0: any)",
        addr.port(),
        addr.ip()
    )]
    PortInUse {
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// The address that was asked for.
        addr: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {protocol} {addr}: {source}; check the address and, below port 1024, your privileges"
    )]
    Bind {
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// The address that was asked for.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Neither TCP nor UDP was asked for.
    #[error("nothing to listen on; give a TCP address, a UDP address, or both")]
    NoAddress,
    /// The store cannot be opened, filled or synced.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Heddle's runtime does not support the policy, the mechanism or the number of workers.
    #[error(transparent)]
    Runtime(#[from] heddle::ConfigError),
    /// The event queue does not support the policy.
    #[error(transparent)]
    Events(#[from] heddle::events::EventError),
    /// The system does not speak the protocol.
    #[error("the system {system} does not speak {protocol}; only events and epoll do")]
    Protocol {
        /// The protocol.
        protocol: &'static str,
        /// The system.
        system: &'static str,
    },
    /// The files to be served cannot be reached.
    #[error("cannot serve the files in {}: {source}", root.display())]
    Root {
        /// The directory that was given.
        root: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An option is zero.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// The system refuses threads or signals.
    #[error("cannot start {what}: {source}; check the limits of this user (`ulimit -a`)")]
    Start {
        /// What failed to start.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A bug: the thread that serves has panicked.
    #[error("the server panicked; please report the message above")]
    Panicked,
}
