//! Preemption probes for compiled programs.
//!
//! An LLVM pass inserts the probes. This crate carries the pass's source and knows how to use it:
//!
//! - [`toolchain`] finds the user's clang and rustc, and the headers of their LLVM.
//! - [`plugin`] builds the pass for that LLVM, once, in the user's [`cache`].
//! - [`options`] are the pass's own options, which begin with `--heddle-`.
//! - [`cc`] prepares clang with the pass, [`cargo`] cargo, and [`rustc`] each rustc that cargo starts.
//! - [`tokio`] is the release of tokio that a program uses, with Heddle as the scheduler of its tasks.
//! - [`shims`] are the names under which build systems call these.
//! - [`check`] lists which of the installed compilers work, [`report`] reads what the pass wrote.
//!
//! Nothing here starts a program that the user asked for: the functions return a `Command`, and the caller becomes it.

#![forbid(unsafe_code)]

pub mod cache;
pub mod cargo;
pub mod cc;
pub mod check;
mod clang_arguments;
mod error;
mod hash;
pub mod options;
pub mod plugin;
pub mod report;
mod response;
pub mod rustc;
mod search;
pub mod shims;
pub mod tokio;
pub mod toolchain;

pub use error::Error;
