//! TCP without an operating system: segments, calls and the time in; segments and events out.
//!
//! A [`Stack`] holds the connections of one worker. It opens no socket, reads no clock, spawns no thread and takes no
//! lock: its owner hands it segments and the time, gives it an [`Output`] to send by, and asks for events. The same
//! bytes at the same times have the same results, so tests run it in virtual time.
//!
//! The work for a segment does not depend on how many connections there are. Data lies in pooled blocks that exist only
//! while they hold data; half-open connections and those in TIME_WAIT are small records.
//!
//! Not supported: urgent data (the pointer is ignored), fast open, multipath, ECN.
//!
//! # Invariants
//!
//! - **I1** A byte of a stream is in one place: in order, or beyond a gap, or with the application.
//! - **I2** `snd_una <= snd_nxt`, and nothing is sent beyond the window that the other end offered, probes excepted.
//! - **I3** The scoreboard covers exactly `snd_una..snd_nxt`, and its sums agree with its segments.
//! - **I4** A connection is in at most one slot of the timing wheel, and no later than its first deadline.
//! - **I5** Every queue is bounded by [`Config`], and every overflow is counted in [`Counters`].
//! - **I6** A connection is in the list of events, and of refused output, at most once.
//! - **I7** No bytes from the network cause a panic.
//!
//! # Example
//!
//! ```
//! use heddle_core::Ns;
//! use heddle_tcp::{Config, Event, Flow, Output, Secret, Stack};
//!
//! /// Keeps segments until the other end takes them.
//! #[derive(Default)]
//! struct Queue(Vec<(Flow, Vec<u8>)>);
//!
//! impl Output for Queue {
//!     fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
//!         let mut segment = vec![0; length];
//!         write(&mut segment);
//!         self.0.push((flow, segment));
//!         true
//!     }
//! }
//!
//! fn deliver(from: &mut Queue, to: &mut Stack, out: &mut Queue) {
//!     for (flow, segment) in from.0.drain(..) {
//!         to.receive(Ns::ZERO, flow.local.ip(), flow.remote.ip(), &segment, 1500, out);
//!     }
//! }
//!
//! let mut server = Stack::new(Config::default(), Secret::new([1; 64]));
//! let mut client = Stack::new(Config::default(), Secret::new([2; 64]));
//! let (mut to_server, mut to_client) = (Queue::default(), Queue::default());
//! let address = "192.0.2.1:80".parse().unwrap();
//! let listener = server.listen(address, 16).unwrap();
//! let id = client.connect(Ns::ZERO, "192.0.2.2:40000".parse().unwrap(), address, 1500, &mut to_server).unwrap();
//! for _ in 0..2 {
//!     deliver(&mut to_server, &mut server, &mut to_client);
//!     deliver(&mut to_client, &mut client, &mut to_server);
//! }
//! assert!(client.is_connected(id).unwrap());
//! client.write(Ns::ZERO, id, b"hello", &mut to_server).unwrap();
//! deliver(&mut to_server, &mut server, &mut to_client);
//!
//! assert_eq!(server.poll_event(), Some(Event::Accept(listener)));
//! let accepted = server.accept(listener, Ns::ZERO).unwrap();
//! let mut bytes = [0; 16];
//! assert_eq!(server.read(Ns::ZERO, accepted, &mut bytes, &mut to_client), Ok(5));
//! assert_eq!(&bytes[..5], b"hello");
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod buffer;
pub mod checksum;
mod config;
mod congestion;
mod connection;
mod cookie;
mod counters;
mod error;
mod event;
mod flows;
mod half_open;
mod id;
mod info;
mod output;
mod reassembly;
mod rtt;
mod scoreboard;
mod secret;
mod seq;
mod slab;
mod stack;
mod state;
mod time_wait;
mod wheel;
pub mod wire;

pub use config::{Config, Congestion, KeepAlive};
pub use counters::Counters;
pub use error::{ConnectError, Error, ListenError};
pub use event::{Event, Ready};
pub use id::{ConnectionId, ListenerId};
pub use info::{Info, ListenerInfo};
pub use output::{Cut, Flow, Output};
pub use secret::Secret;
pub use seq::Seq;
pub use stack::{IcmpError, Progress, Shutdown, Stack};
pub use state::State;
