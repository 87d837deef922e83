//! The real-time backend against the real kernel. Needs root; otherwise the tests skip with a note.
//!
//! The threads are this test program's, on CPU 1. Committed ones spin for as long as a check takes; the kernel ends
//! a test whose thread spins for longer above everything else (`RLIMIT_RTTIME`).

mod changes;
mod commits;
mod enclaves;
mod life;
mod numbers;
mod patience;
mod processes;
mod queues;
mod resize;
mod support;
