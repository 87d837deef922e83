//! Why a server does not start or ends early.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_store::StoreError;

/// An error that ends the server; errors of clients do not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program listens there.
    #[error(
        "{protocol} port {} of {} is in use; stop the program that has it (`ss -lnp` shows it), or choose another port, 0 for any",
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
        "cannot listen on {protocol} {addr}: {source}; check the address and, below port 1024, your rights"
    )]
    Bind {
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// The address that was asked for.
        addr: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// Neither TCP nor UDP was asked for.
    #[error("nothing to listen on; give a TCP address, a UDP address, or both")]
    NoAddress,
    /// The store cannot be opened, filled or synced.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy, the mechanism or the workers are not what Heddle's runtime can do.
    #[error(transparent)]
    Runtime(#[from] heddle::ConfigError),
    /// The event queue's policy is none that it could have.
    #[error(transparent)]
    Events(#[from] heddle::events::EventError),
    /// The protocol is one that the system does not speak.
    #[error("{protocol} is spoken by the systems events and epoll only, not by {system}")]
    Protocol {
        /// What was to be spoken.
        protocol: &'static str,
        /// On what.
        system: &'static str,
    },
    /// The files to be served cannot be reached.
    #[error("cannot serve the files in {}: {source}", root.display())]
    Root {
        /// The directory that was given.
        root: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A number that makes no sense.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// The system refuses threads or signals.
    #[error("cannot start {what}: {source}; check the limits of this user (`ulimit -a`)")]
    Start {
        /// What was to be started.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// A bug: the thread that serves has panicked.
    #[error("the server has panicked; the message is above, please report it")]
    Panicked,
}
