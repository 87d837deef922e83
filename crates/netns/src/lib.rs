//! Isolated networks for tests and benches: network namespaces connected by a veth pair.
//!
//! - **I1** Nothing outside the namespaces is changed. They are removed with their owner, even if it panics; those of a
//!   killed process are removed when the next process creates one.
//! - **I2** A fault depends on a seed and on the number of the packet, never on time.
//! - **I3** There is no `unsafe` in this crate.
//!
//! ```no_run
//! let net = heddle_netns::Pair::new(2)?;
//! let server = net.near.run(|| std::net::UdpSocket::bind((heddle_netns::NEAR4, 8000)))?;
//! let client = net.far.run(|| std::net::UdpSocket::bind((heddle_netns::FAR4, 0)))?;
//! client.send_to(b"hello", server.local_addr()?)?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod faults;
mod namespace;
mod pair;

pub use namespace::{Namespace, missing_privilege};
pub use pair::{FAR, FAR_MAC, FAR4, FAR6, NEAR, NEAR_MAC, NEAR4, NEAR6, Pair};
