//! The vocabulary that every layer of Heddle shares.
//!
//! Scheduling is matching *inputs* to *executors* (Syrup, section 3). This crate names the parties and
//! the contract between them, and does nothing else: no operating system, no allocation, no `unsafe`.
//!
//! - [`Policy`]: decides the match. Pure: an event, the time and a view in, a decision out.
//! - [`Cx`]: all that a policy may look at (time, randomness, topology, tasks, other queues).
//! - [`TaskSlot`], [`TaskList`]: per-task state and run queues without allocation.
//! - [`Params`]: `name:key=value,...`, the way a policy is chosen on a command line.
//!
//! # Invariants
//!
//! - **I1** A task is an index ([`TaskId`]), never a pointer. A stale index is an error that the hook
//!   detects, never undefined behaviour: every field of a [`TaskSlot`] is a relaxed atomic.
//! - **I2** A task stands in at most one [`TaskList`] at a time.
//! - **I3** Time and randomness reach a policy through [`Cx`] only, so that a run can be repeated.
//! - **I4** Nothing here allocates, locks or calls the system.

#![no_std]
#![forbid(unsafe_code)]

mod cpu;
mod list;
mod params;
mod policy;
mod task;
mod time;

pub use cpu::{CpuId, CpuInfo, CpuSet, Topology};
pub use list::TaskList;
pub use params::{Known, ParamError, Params};
pub use policy::{Cx, Dispatch, Enqueue, Host, Model, Place, Policy, Resched, Rng};
pub use task::{Class, TaskAttrs, TaskId, TaskSlot, Var};
pub use time::{Ns, ParseNsError};
