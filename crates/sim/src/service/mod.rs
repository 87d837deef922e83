//! A service on a host, replayed: requests wait in queues, workers hold them, and CPUs run the workers beside other
//! threads.
//!
//! ```text
//!  requests -> steering -> queues (sockets) -> workers (threads) -> run queues (the thread policy) -> CPUs
//!                                                   other threads --^
//! ```
//!
//! There are two resources. A *worker* takes a request and holds it until the answer, while it computes and while it
//! sleeps; a *CPU* runs the bursts in between, as the thread policy decides. The requests are those of a recording, so
//! nothing is drawn but what the seed stands for: the hash of connections, the delays, the phase of other threads.
//!
//! ```
//! use heddle_core::Ns;
//! use heddle_sim::service::{Phase, Request, Service, Worker, replay};
//! let mut service = Service::new(1, "eevdf:slice=3ms,tick=4ms", 1);
//! service.workers = vec![Worker::sync(0, 1)];
//! let request = |ms| Request {
//!     arrival: Ns::from_ms(ms),
//!     phases: vec![Phase::Run(Ns::from_ms(1)), Phase::Wait(Ns::from_ms(5))],
//!     ..Request::default()
//! };
//! service.requests = vec![request(0), request(2)];
//! let outcome = replay(&mut service).unwrap();
//! // The worker is busy until 6 ms, though its CPU is idle from 1 ms on.
//! assert_eq!(outcome.responses, [Ns::from_ms(6), Ns::from_ms(10)]);
//! assert_eq!(outcome.worker_ran, [Ns::from_ms(2)]);
//! ```
//!
//! What is not modelled: sockets that overflow, requests of one connection that wait for each other, locks between
//! workers, hand-over of a request from one worker to another, and what [the simulator](crate) does not model at all.

pub use crate::replay::{
    Background, Delays, Phase, Replay, Request, Service, ServiceError, Steer, Thread, Worker,
    WorkerKind,
};
pub use crate::run::{replay, replay_watched};

#[cfg(test)]
mod tests;
