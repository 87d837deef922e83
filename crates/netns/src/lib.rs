//! Networks of one's own: namespaces with a veth pair between them, in which tests and benches may do what they like.
//!
//! - **I1** Nothing outside of the namespaces is touched, and they go away with their owner, also when it panics; those
//!   of a process that was killed go when the next one makes some.
//! - **I2** There is no `unsafe` in this crate.
//!
//! ```no_run
//! let net = heddle_netns::Pair::new(2)?;
//! let server = net.near.run(|| std::net::UdpSocket::bind((heddle_netns::NEAR4, 8000)))?;
//! let client = net.far.run(|| std::net::UdpSocket::bind((heddle_netns::FAR4, 0)))?;
//! client.send_to(b"hello", server.local_addr()?)?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod namespace;
mod pair;

pub use namespace::{Namespace, missing};
pub use pair::{FAR, FAR_MAC, FAR4, FAR6, NEAR, NEAR_MAC, NEAR4, NEAR6, Pair};
