//! The kernel's side of lanes: which packets leave the kernel, and for which lane.
//!
//! The steering layer implements it with a program at XDP. This crate knows no layer: the crate that links both hands
//! the implementation over ([`DEPLOYERS`]).

use crate::options::{Mode, Options};
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// A program at XDP that gives claimed packets to lanes. It ends with this value, and with the process: from then on
/// all packets go to the kernel.
pub trait Steering: Send + Sync {
    /// Returns the number of receive queues of the interface.
    fn queues(&self) -> u32;

    /// Returns who runs the program: the driver, or the kernel after it.
    fn mode(&self) -> Mode;

    /// Makes `socket`, an AF_XDP socket on receive queue `queue`, the one that `lane` uses there.
    ///
    /// # Errors
    /// The kernel's.
    fn put_socket(&self, lane: u32, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Claims the packets to `address` (unspecified: to any address of the interface, of its family), which the sockets
    /// in `proof` are bound to. The claim lasts as long as one of them has the address; without any, until it is
    /// released. Claiming again adds sockets.
    ///
    /// # Errors
    /// If another claim has the address; the kernel's.
    fn claim(
        &self,
        protocol: Protocol,
        address: SocketAddr,
        proof: &[BorrowedFd<'_>],
    ) -> io::Result<()>;

    /// Ends the claim of `address`.
    ///
    /// # Errors
    /// The kernel's.
    fn release(&self, protocol: Protocol, address: SocketAddr) -> io::Result<()>;

    /// Gives the segments of an outgoing connection to `lane`.
    ///
    /// # Errors
    /// If there are too many; the kernel's.
    fn add_outgoing(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()>;

    /// Undoes [`Steering::add_outgoing`].
    ///
    /// # Errors
    /// The kernel's.
    fn remove_outgoing(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()>;

    /// Makes the program remember that the segments of an accepted connection are those of `lane`.
    ///
    /// # Errors
    /// The kernel's.
    fn record_flow(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()>;

    /// Sets the addresses of the interface: claims for any address concern packets to these.
    ///
    /// # Errors
    /// The kernel's.
    fn set_local(&self, addresses: &[IpAddr]) -> io::Result<()>;

    /// Returns what the program has counted, by name.
    ///
    /// # Errors
    /// The kernel's.
    fn counts(&self) -> io::Result<Vec<(&'static str, u64)>>;
}

/// Deploys a program for a number of lanes on the interface that the options name.
pub type Deployer = fn(&Options, u32) -> Result<Box<dyn Steering>, Box<dyn Error + Send + Sync>>;

/// The implementations that are linked into the program: one, or none.
#[linkme::distributed_slice]
pub static DEPLOYERS: [Deployer];
