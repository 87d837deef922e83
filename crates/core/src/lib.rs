//! The vocabulary shared by every layer of Heddle.
//!
//! Scheduling matches *inputs* to *executors* (Syrup, section 3). This crate defines the parties and the contract
//! between them, and nothing else: no operating system, no allocation, no `unsafe`.
//!
//! - [`Policy`]: decides the match. Pure: an event, the time and a view in, a decision out.
//! - [`Cx`]: everything that a policy may read (time, randomness, topology, tasks, other queues).
//! - [`TaskSlot`], [`TaskList`], [`TaskTree`]: per-task state and run queues without allocation.
//! - [`Params`]: `name:key=value,...`, the syntax for choosing a policy on a command line.
//! - [`driver`]: how every hook calls a policy, checks its answers and records its steps.
//! - [`SteeringPolicy`]: where an arriving request goes, for code that does not know what decides it.
//! - [`line`](mod@line): what an executor is working on, as shared by programs, steering policies and agents.
//! - [`Event`]: an event of any layer, as hooks record it; [`Histogram`]: durations in buckets.
//!
//! # Invariants
//!
//! - **I1** A task is an index ([`TaskId`]), never a pointer. A stale index is an error that the hook
//!   detects, never undefined behaviour: every field of a [`TaskSlot`] is a relaxed atomic.
//! - **I2** A task is in at most one [`TaskList`] or [`TaskTree`] at a time.
//! - **I3** Time and randomness reach a policy only through [`Cx`], so a run can be repeated.
//! - **I4** Nothing here allocates, locks or calls the system.

#![no_std]
#![forbid(unsafe_code)]

mod cpu;
pub mod driver;
mod event;
pub mod glob;
mod histogram;
pub mod line;
mod list;
mod params;
mod policy;
mod steer;
mod task;
mod time;
mod tree;

pub use cpu::{CpuId, CpuInfo, CpuSet, Topology};
pub use event::{Event, EventKind, Layer, MarkPhase, UnknownEvent};
pub use histogram::{AtomicHistogram, Histogram};
pub use list::TaskList;
pub use params::{ParamError, ParamNames, Params};
pub use policy::{
    Balance, BestEffort, Cx, Dispatch, Enqueue, FairTerms, Host, Model, Policy, Resched, Rng,
};
pub use steer::{Arrival, Choice, Executors, SteeringPolicy};
pub use task::{Class, TaskAttrs, TaskId, TaskSlot, Var, nice_weight};
pub use time::{Ns, ParseNsError};
pub use tree::{TaskTree, TreeNode, TreeTask};
