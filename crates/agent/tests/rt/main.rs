//! The real-time backend against the real kernel. Needs root; says so where it is missing.
//!
//! Threads are those of this test program, on CPU 1; those that are committed spin for as long as a check takes, and the kernel
//! ends a test whose thread spins in front of everything for longer (`RLIMIT_RTTIME`).

mod changes;
mod commits;
mod enclaves;
mod life;
mod numbers;
mod patience;
mod processes;
mod queues;
mod support;
