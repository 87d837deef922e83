//! User-level threads on pinned workers, scheduled by a Heddle policy and preempted within microseconds.
//!
//! The design, with its measurements, is in `docs/design/runtime.md`. In one paragraph: a *worker* is a kernel thread
//! on a CPU; a *task* is a stack with its own thread-local storage. GS points to the worker, FS to the task. Tasks
//! switch directly to each other under the lock of the run queue, whose contents and order are the policy's business. A
//! future borrows a context while it is polled ([`futures`]). Each worker's *alarm* interrupts a task whose quantum is
//! over while others wait; the task itself then asks the policy whether it must yield. A *ticker* thread checks for
//! what no worker sees: workers blocked in the kernel, and sockets that no worker polls.
//!
//! # Invariants
//!
//! - **I1** A task runs on at most one worker, and never on a stack that another context still uses: a run queue's
//!   lock is held from before a task is put in until the worker has left its stack (`sched`).
//! - **I2** No task made runnable is lost: [wake words], inboxes and the idle set are model-checked
//!   (`heddle-sync`).
//! - **I3** A task's `thread_local!`s, errno and panics are its own (`tls`).
//! - **I4** The runtime's only thread-local state is the identity of the task, which is constant per FS base.
//! - **I5** Code that runs with preemption held off, and code in the C library or an allocator, is not preempted
//!   (`preempt`, `code`).
//! - **I6** An idle runtime uses no CPU.
//! - **I7** The memory of tasks is never unmapped, so a stale reference wakes a wrong task at worst, and waiters check.
//!
//! The runtime never allocates between one task and the next, nor anywhere else in its threads outside tasks
//! (`threads`). It never calls a policy without the lock of its queue (except `place` and `balance`, which see only
//! hints), and never blocks a worker in the kernel while it has work.
//!
//! # Layers
//!
//! Modules import from the rows above them, never from those below; `cargo xtask tidy` finds cycles.
//!
//! | layer | modules |
//! |---|---|
//! | independent parts | `alarm`, `code`, `deadline`, `draws`, `held_up`, `idle_hook`, `libc_fn`, `liveness`, |
//! | | `report`, `slots`, `stats`, `timers`, `watches` |
//! | a task, and its interface to its scheduler | `task`, `task_local`, `tls`, `pool`, `stack_cache`, `slab`, |
//! | | `carriers` |
//! | a worker: its own state (`Worker`), and the part that others may touch (`Remote`) | `worker`, `worker_list` |
//! | switching contexts | `switch`, `preempt`, `wake`, `trace`, `alloc`, `caller`, `interpose`, `kernel_thread`, |
//! | | `end`, `carrier` |
//! | how tasks, threads and futures wait | [`sync`], `futex`, `time`, `poller`, `join`, `block_on` |
//! | a runtime without its policy: shared state, its threads' interface | `core_state`, `engine`, `domain` |
//! | its threads | `threads`, `take_over`, `ticker` |
//! | its policy | `sched` |
//! | starting and stopping it | `blocking`, `runtime`, `config`, `ambient` |
//! | async tasks | [`futures`] |
//! | what programs use | `spawn`, `run`, `scope`, `join_set`, `cancel_join`, `sleep_future`, `virtual_time`, [`mark`] |
//! | what thread libraries use | `adopt`, `raw` |
//! | files, pipes, sockets, child processes, signals | [`io`], [`fs`], [`net`], [`process`], [`signal`], `hyper` |
//!
//! Two traits keep the arrows one way. A task knows its scheduler as a `task::Scheduler`, which mentions tasks only;
//! the runtime's threads know the same object as an `engine::Engine`, which also mentions workers and the shared state.
//!
//! [wake words]: heddle_sync::WakeWord

#[cfg(target_feature = "crt-static")]
compile_error!(
    "Heddle needs the dynamic C library: its tasks use the loader's thread-local storage, which a static program \
     lacks. Build without `-C target-feature=+crt-static`."
);

mod adopt;
mod alarm;
pub mod alloc;
mod ambient;
mod attrs;
mod block_on;
mod blocking;
mod caller;
mod cancel_join;
mod carrier;
mod carriers;
mod code;
mod config;
mod core_state;
mod cpu_list;
mod cpu_time;
mod deadline;
mod domain;
mod draws;
mod end;
mod engine;
mod fork;
pub mod fs;
mod futex;
pub mod futures;
mod held_up;
#[cfg(feature = "hyper")]
pub mod hyper;
mod idle_hook;
mod interpose;
pub mod io;
mod join;
mod join_set;
mod kernel_thread;
mod lanes;
mod libc_fn;
mod liveness;
pub mod mark;
pub mod net;
mod poller;
mod pool;
mod preempt;
mod preempted;
mod probe;
pub mod process;
#[doc(hidden)]
pub mod raw;
mod report;
mod run;
mod runtime;
mod sched;
mod scope;
mod share;
pub mod signal;
mod slab;
mod sleep_future;
mod slots;
mod spawn;
mod stack_cache;
mod stats;
mod switch;
pub mod sync;
mod take_over;
mod task;
mod task_local;
mod telemetry;
mod threads;
mod ticker;
mod time;
mod timers;
mod tls;
pub mod trace;
mod uintr;
#[cfg(virtual_time)]
pub mod virtual_time;
mod wake;
mod watches;
mod worker;
mod worker_list;

pub use ambient::stats;
pub use attrs::{attrs, set_attrs};
pub use block_on::block_on;
pub use blocking::blocking;
pub use config::{ConfigError, RuntimeBuilder};
pub use heddle_core::{Class, Ns, TaskAttrs};
/// The runtime's own network: options and counters of [`RuntimeBuilder::net`] and [`Runtime::network`].
pub use heddle_netstack as netstack;
pub use join_set::JoinSet;
pub use pool::STACK_CLASSES;
pub use preempt::{Mechanism, no_preempt};
pub use runtime::Runtime;
pub use scope::{Scope, ScopedJoinHandle, ScopedTask, scope};
pub use share::ShareError;
pub use sleep_future::{Sleep, sleep_async, sleep_until_async, timeout_async};
pub use spawn::{Builder, JoinHandle, RuntimeDropped, panic_message};
pub use stats::Stats;
pub use task_local::{AccessError, LocalKey, TaskLocalFuture};
pub use time::{After, Elapsed, Interval, after, interval, now, sleep, sleep_until, timeout};
pub use tls::TlsMode;

use crate::preempt::NoPreempt;
use crate::task::Task;

/// Creates a task; see [`Builder`] for its name, stack size and hints for the policy.
///
/// # Panics
/// If the system has no memory for a stack.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("cannot create a task")
}

/// Lets other tasks run. In an ordinary thread, lets other threads run.
#[inline]
pub fn yield_now() {
    match Task::current() {
        Some(task) => {
            let _guard = NoPreempt::new();
            switch::leave_for(task, task.sched().yield_now(task));
        }
        None => std::thread::yield_now(),
    }
}

/// Returns the name of the calling task, if it has one.
pub fn task_name() -> Option<String> {
    Task::current().and_then(Task::name).map(str::to_owned)
}

/// Returns whether the caller is a task.
pub fn in_task() -> bool {
    Task::current().is_some()
}
