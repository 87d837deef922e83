//! What calls can answer instead of a result.

use core::fmt;

/// Why a connection's call failed, and how a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing to read, or no room to write, now. An event follows when that changes.
    WouldBlock,
    /// The id is of a connection that was closed.
    Stale,
    /// The handshake is not over.
    NotConnected,
    /// Written after the write side was shut down.
    WriteShutdown,
    /// The other end reset the connection.
    Reset,
    /// The other end refused the connection.
    Refused,
    /// The other end did not answer in time.
    TimedOut,
    /// The network reported that the other end cannot be reached (ICMP).
    Unreachable,
    /// The connection was aborted at this end.
    Aborted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::WouldBlock => "the call would block",
            Error::Stale => "the connection was closed",
            Error::NotConnected => "the connection is not established",
            Error::WriteShutdown => "the connection's write side was shut down",
            Error::Reset => "the connection was reset by the other end",
            Error::Refused => "the other end refused the connection",
            Error::TimedOut => "the other end did not answer in time",
            Error::Unreachable => "the other end cannot be reached",
            Error::Aborted => "the connection was aborted",
        })
    }
}

impl core::error::Error for Error {}

/// Why a stack cannot listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// A listener has the address already.
    AddressInUse,
    /// The port is 0.
    NoPort,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListenError::AddressInUse => "another listener has this address and port",
            ListenError::NoPort => "a listener needs a port other than 0",
        })
    }
}

impl core::error::Error for ListenError {}

/// Why a stack cannot connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A connection between these ends exists, or did until a short while ago (TIME_WAIT): choose another port.
    AddressInUse,
    /// A port is 0, an address unspecified or multicast, or the two are of different families.
    InvalidAddress,
    /// The stack has as many connections as [`Config::max_connections`](crate::Config::max_connections) allows.
    TooManyConnections,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectError::AddressInUse => "a connection between these addresses and ports exists",
            ConnectError::InvalidAddress => "the addresses and ports cannot be connected",
            ConnectError::TooManyConnections => "the limit of connections is reached",
        })
    }
}

impl core::error::Error for ConnectError {}
