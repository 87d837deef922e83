//! The thread policies of Heddle, each in one file, and the registry that finds them by name.
//!
//! A policy is pure: an event, the time and a view in, a decision out ([`heddle_core::Policy`]). So the
//! same source schedules user-level threads, kernel threads, events and simulated jobs. A hook that is
//! generic over the policy gets it through [`with_policy`], which turns a text into a type:
//!
//! ```
//! use heddle_core::{Ns, Policy};
//! use heddle_policies::{with_policy, Visitor};
//!
//! struct Quantum;
//! impl Visitor for Quantum {
//!     type Out = Option<Ns>;
//!     fn visit<P: Policy>(self, policy: P) -> Option<Ns> {
//!         policy.quantum()
//!     }
//! }
//! assert_eq!(with_policy("two-queue:quantum=50us", Quantum), Ok(Some(Ns::from_us(50))));
//!
//! let error = with_policy("two_queue", Quantum).unwrap_err().to_string();
//! assert!(error.starts_with("no policy `two_queue`, did you mean `two-queue`?"));
//! ```
//!
//! # Invariants
//!
//! - **I1** Every enqueued task is eventually proposed, exactly once, under any sequence of events.
//! - **I2** `len` is the number of waiting tasks at any time.
//! - **I3** A policy that claims to be work conserving finds a waiting task for every CPU that asks.
//! - **I4** `tick` does not ask to preempt before [`heddle_core::Policy::quantum`], and its answers
//!   make progress: `Now`, `Never`, or, however often it is asked, a quantum later.
//! - **I5** The parameters in [`list`] are exactly those that the policy reads, with the defaults
//!   shown.
//!
//! The test kit (module `testkit`, feature of the same name) checks all five for every policy here and
//! for any external policy.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testkit"))]
extern crate std;

mod best_of_two;
mod cfs;
mod core_edf;
mod cpu_affinity;
mod darc;
mod edf;
mod eevdf;
mod error;
mod fair;
mod fifo;
mod hybrid;
mod jbsq;
mod locality;
mod mlfq;
mod nearest;
mod one_list;
mod options;
mod per_cpu;
mod priority;
mod queue_affinity;
mod registry;
mod round_robin;
mod shinjuku;
mod shinjuku_shenango;
mod sizes;
mod sjf;
mod srpt;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod two_queue;
mod work_stealing;

pub use best_of_two::BestOfTwo;
pub use cfs::Cfs;
pub use core_edf::CoreEdf;
pub use cpu_affinity::CpuAffinity;
pub use darc::Darc;
pub use edf::Edf;
pub use eevdf::Eevdf;
pub use error::PolicyError;
pub use fifo::Fifo;
pub use hybrid::Hybrid;
pub use jbsq::Jbsq;
pub use locality::Locality;
pub use mlfq::Mlfq;
pub use nearest::nearest;
pub use priority::Priority;
pub use queue_affinity::QueueAffinity;
pub use registry::{Info, ParamInfo, Visitor, build, find, list, names, with_policy};
pub use round_robin::RoundRobin;
pub use shinjuku::Shinjuku;
pub use shinjuku_shenango::ShinjukuShenango;
pub use sjf::Sjf;
pub use srpt::Srpt;
pub use two_queue::TwoQueue;
pub use work_stealing::WorkStealing;
