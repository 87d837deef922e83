//! The vocabulary that every layer of Heddle shares.
//!
//! Scheduling is matching *inputs* to *executors* (Syrup, section 3). This crate names the parties and
//! the contract between them, and does nothing else: no operating system, no allocation, no `unsafe`.
//!
//! - [`Policy`]: decides the match. Pure: an event, the time and a view in, a decision out.
//! - [`Cx`]: all that a policy may look at (time, randomness, topology, tasks, other queues).
//! - [`TaskSlot`], [`TaskList`], [`TaskTree`]: per-task state and run queues without allocation.
//! - [`Params`]: `name:key=value,...`, the way a policy is chosen on a command line.
//! - [`driver`]: how every hook calls a policy, checks its answers and records its steps.
//! - [`SteeringPolicy`]: where a request goes when it arrives, for those who do not know who decides that.
//! - [`line`](mod@line): what an executor works on, as programs, steering policies and agents tell each other.
//! - [`Step`]: a step of a schedule, as hooks record it.
//!
//! # Invariants
//!
//! - **I1** A task is an index ([`TaskId`]), never a pointer. A stale index is an error that the hook
//!   detects, never undefined behaviour: every field of a [`TaskSlot`] is a relaxed atomic.
//! - **I2** A task stands in at most one [`TaskList`] or [`TaskTree`] at a time.
//! - **I3** Time and randomness reach a policy through [`Cx`] only, so that a run can be repeated.
//! - **I4** Nothing here allocates, locks or calls the system.

#![no_std]
#![forbid(unsafe_code)]

mod cpu;
pub mod driver;
pub mod line;
mod list;
mod params;
mod policy;
mod steer;
mod step;
mod task;
mod time;
mod tree;

pub use cpu::{CpuId, CpuInfo, CpuSet, Topology};
pub use list::TaskList;
pub use params::{Known, ParamError, Params};
pub use policy::{
    Balance, BestEffort, Cx, Dispatch, Enqueue, FairTerms, Host, Model, Policy, Resched, Rng,
};
pub use steer::{Arrival, Choice, Executors, SteeringPolicy};
pub use step::{Step, StepKind};
pub use task::{Class, TaskAttrs, TaskId, TaskSlot, Var};
pub use time::{Ns, ParseNsError};
pub use tree::{TaskTree, TreeNode, TreeTask};
