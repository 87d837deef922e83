//! The runtime's own network: packets in and out of AF_XDP sockets without the kernel's stack.
//!
//! A [`lane`] has the sockets and connections of one worker. It receives what the steering policy in XDP gives it, and
//! sends by what the kernel says of routes and neighbours ([`control`]). What is not claimed by a socket here goes to
//! the kernel, which stays in charge of addresses, routes, ARP and everything else.
//!
//! The design is in `docs/design/netstack.md`.

#![forbid(unsafe_code)]

pub use heddle_tcp::{
    ConnectionId, Counters as TcpCounters, Error as TcpError, Info as ConnectionInfo, Shutdown,
};

pub mod capture;
pub mod connect;
pub mod control;
pub mod diag;
pub mod icmp;
pub mod lane;
pub mod net;
pub mod options;
pub mod packet;
pub mod paths;
pub mod pcap;
mod retired;
pub mod steering;
pub mod tcp;
pub mod udp;
pub mod wire;
pub mod woken;
