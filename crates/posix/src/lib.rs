//! POSIX threads as tasks: what `heddle run` puts in front of the C library.
//!
//! The library defines the C library's names for threads and for what threads wait in. In a program that it is
//! preloaded into (or linked with, as an archive), each thread that the program creates is a task of Heddle's runtime,
//! scheduled and preempted under a policy. The design, with its measurements, is in `docs/design/posix.md`.
//!
//! # Invariants
//!
//! - **I1** Each name here has three ways out, by [`heddle_rt::raw::Caller`]: a task waits as a task; a kernel thread,
//!   or a task that holds preemption off, waits in the kernel in the same queues; the runtime itself gets the C
//!   library's own function.
//! - **I2** What is locked, counted or signalled lies in the program's objects, in glibc's own format: static
//!   initialisers, debuggers and the hand-over to the real functions work. All waiters are in [`wait`], by address.
//! - **I3** Nothing runs before the first `pthread_create` but the resolution of names: no thread, no runtime.
//! - **I4** Memory of the library's own comes from [`alloc`], never from the program's allocator.
//! - **I5** Functions that a cancelled thread may leave by unwinding are `extern "C-unwind"` and own nothing then.

mod alloc;
mod barrier;
mod base;
mod c11;
mod cancel;
mod classes;
mod clock;
mod cond;
mod cpu_clock;
mod debug;
mod errno;
mod futex;
pub mod futures;
mod image;
mod io;
mod keys;
mod mutex;
mod once;
mod process;
mod real;
mod report;
mod rwlock;
mod sched;
mod semaphore;
mod signals;
mod sleep;
mod start;
mod sys;
mod thread;
mod wait;

#[global_allocator]
static ALLOCATOR: alloc::Slabs = alloc::Slabs::new();
