//! An open-loop load generator: Poisson arrivals, latencies from the intended send time.
//!
//! ```text
//! Mix -> Arrivals -> engine::run <-> Transport (Udp, Streams) <-> server
//!                        |
//!                      Tally -> rows, "may this run be quoted?"
//! ```
//!
//! # Invariants
//!
//! - **I1** Arrivals depend only on the seed, the rate and the mix, never on the server's answers.
//! - **I2** Latency counts from the intended send time.
//! - **I3** Every request that falls due after the warm-up is counted once: answered, failed, lost or unsent.
//! - **I4** A run ends by itself, at most the time limit after its last arrival.
//! - **I5** A run whose generator was late, that had too few connections, or that lost requests is marked invalid, with
//!   the reason.
//!
//! It sends load only to the loopback interface unless the caller allows a remote target ([`resolve`]), and
//! never blocks on an answer.

#![forbid(unsafe_code)]

mod arrivals;
mod clock;
mod closed;
mod engine;
mod epoll_clock;
mod http;
mod http_answer;
mod inflight;
mod memcached;
mod mix;
mod options;
mod probe;
mod request;
mod resp;
mod resp_reply;
mod rows;
mod stream;
mod tally;
mod target;
mod transport;
mod udp;
mod validity;

pub use arrivals::{Arrival, Arrivals};
pub use clock::{Pace, RealClock};
pub use closed::{Closed, closed_loop};
pub use engine::{Clock, Plan, run};
pub use epoll_clock::EpollClock;
pub use http::Http;
pub use memcached::{Memcached, memcached_answer};
pub use mix::{Mix, MixError, Op};
pub use options::{
    LoadError, LoadOptions, LoadRun, Moment, Wire, drive, measure, unloaded_service,
};
pub use probe::service_time;
pub use request::Shape;
pub use resp::Resp;
pub use rows::add_rows;
pub use stream::{Dialect, Streams};
pub use tally::{LATE, OpTally, Tally};
pub use target::{TargetError, resolve};
pub use transport::{Answer, Transport};
pub use udp::Udp;
pub use validity::{Counts, Invalid, MOST_LATE, MOST_LOST};

#[cfg(test)]
mod engine_tests;
