//! Threads that cost 100 ns, scheduled by a policy of your choice.
//!
//! Write blocking code against an interface shaped like `std`'s; Heddle runs it on a few pinned kernel threads and
//! takes the CPU from long work when short work waits.
//!
//! ```no_run
//! # fn main() -> Result<(), heddle::ConfigError> {
//! let runtime = heddle::Runtime::builder().policy("two-queue:quantum=100us").build()?;
//! runtime.run(|| {
//!     let scan = heddle::spawn(|| (0..10_000_000u64).sum::<u64>());
//!     let get = heddle::spawn(|| 42);
//!     println!("{} before {}", get.join().unwrap(), scan.join().unwrap());
//! });
//! # Ok(())
//! # }
//! ```
//!
//! Without a [`Runtime`] of your own, [`spawn`] uses a process-wide one, configured by the environment (see
//! [`RuntimeBuilder`]).
//!
//! | std, tokio | here |
//! |---|---|
//! | `thread::{spawn, scope, Builder, yield_now}` | [`spawn`], [`scope`], [`Builder`], [`yield_now`] |
//! | `JoinHandle::{join, is_finished}`, `JoinSet` | [`JoinHandle`], with `join_timeout`; [`JoinSet`] |
//! | `sync::{Mutex, RwLock, Condvar, Barrier, Once}`, `Semaphore` | [`sync`], with time limits |
//! | `sync::{OnceLock, LazyLock}` | [`sync::OnceLock`], [`sync::LazyLock`] |
//! | `sync::{mpsc, mpmc, oneshot}` | [`sync::mpsc`], [`sync::mpmc`], [`sync::oneshot`] |
//! | `select!` (as crossbeam's) | [`select!`]: channels, times, cancellation |
//! | `CancellationToken` | [`sync::CancellationToken`]: ends waits, never a task |
//! | `tokio::spawn`, `block_on` | [`task::spawn`], [`block_on`], [`Runtime::block_on`]: async tasks |
//! | an awaited thread | `task::spawn(async { f() })`: its one poll is preempted, and may wait, as a thread |
//! | its `JoinSet`, `LocalSet`, `spawn_blocking` | the same in [`task`] |
//! | `thread_local!` | the same: each task has its own |
//! | `task_local!` | [`task_local!`]: a value for the length of a call |
//! | `thread::sleep` | [`time::sleep`], [`time::timeout`], [`time::interval`], [`time::after`] |
//! | `time::{sleep, Sleep, timeout}` of futures | [`time::sleep_async`], [`time::Sleep`], [`time::timeout_async`] |
//! | `Handle::block_on`, `pollster::block_on` | [`block_on`]: a future on the calling task or thread |
//! | `async` locks, channels | the same types: [`lock_async`](sync::MutexExt::lock_async), `recv_async`, `send_async` |
//! | `AsyncRead`, `AsyncWrite` | of [`net`] and [`io`], with the features `futures-io` and `tokio-io` |
//! | `net::{TcpListener, TcpStream, UdpSocket}` | [`net`], with owned halves as in tokio |
//! | `os::unix::net::{UnixListener, UnixStream, UnixDatagram}` | [`net::unix`] |
//! | `io::pipe`, `AsyncFd` | [`io::pipe`], [`io::Pollable`]: readiness of any descriptor |
//! | `fs` | [`fs`], in threads and in async tasks: a poll may wait |
//! | `process::{Command, Child}` | [`process`], with [`wait_timeout`](process::Child::wait_timeout), `wait_async` |
//! | `signal` | [`signal::Signals`], [`signal::ctrl_c`], and with `_async` behind the names |
//! | other calls that block in the kernel | [`blocking`] around them |
//! | | [`no_preempt`] around what must not be interrupted |
//! | | [`set_attrs`]: what the calling task tells its policy about its next work |
//! | | [`policy`]: a scheduling policy of your own |
//!
//! The locks, channels and `thread::park` of `std`, and parking_lot's, park the task that waits, as Heddle's own do:
//! they wait by futexes, which Heddle serves. A lock of a C library (`pthread_mutex_lock`) blocks the worker, which is
//! noticed after a millisecond.
//!
//! What is different from threads of the kernel: `pthread_exit` must not be called; after `fork` the child runs only
//! the forking task and should `exec`.

pub use heddle_core::{Class, Ns, TaskAttrs};
pub use heddle_rt::{
    AccessError, Builder, ConfigError, JoinHandle, JoinSet, LocalKey, Mechanism, Runtime,
    RuntimeBuilder, RuntimeDropped, STACK_CLASSES, Scope, ScopedJoinHandle, ScopedTask, Stats,
    TlsMode, attrs, block_on, blocking, in_task, no_preempt, panic_message, scope, select,
    set_attrs, spawn, stats, task_local, task_name, yield_now,
};
pub use heddle_rt::{alloc, netstack, sync};

/// An echo server and a client, which stops the server through a Unix socket:
///
/// ```
/// use heddle::net::unix::UnixStream;
/// use heddle::net::{Shutdown, TcpListener, TcpStream};
/// use std::io::{Read as _, Write as _};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let (mut done, mut stop) = UnixStream::pair()?;
/// let server = heddle::spawn(move || {
///     let (stream, _) = listener.accept().unwrap();
///     let (mut reader, mut writer) = stream.into_split();
///     heddle::spawn(move || std::io::copy(&mut reader, &mut writer));
///     done.read_exact(&mut [0]).unwrap();
/// });
/// let mut client = TcpStream::connect(addr)?;
/// client.write_all(b"to and fro")?;
/// client.shutdown(Shutdown::Write)?;
/// let mut text = String::new();
/// client.read_to_string(&mut text)?;
/// assert_eq!(text, "to and fro");
/// stop.write_all(&[0])?;
/// server.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub use heddle_rt::net;

/// ```
/// use heddle::io::{Pollable, pipe};
/// use std::io::{Read as _, Write as _};
///
/// let (mut reader, mut writer) = pipe()?;
/// let task = heddle::spawn(move || writer.write_all(b"through a pipe"));
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "through a pipe");
/// task.join().unwrap()?;
///
/// // A descriptor that Heddle knows nothing about.
/// let (events, mut source) = std::os::unix::net::UnixStream::pair()?;
/// let events = Pollable::new(events)?;
/// let waits = heddle::spawn(move || events.wait_readable());
/// source.write_all(b"event")?;
/// waits.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub use heddle_rt::io;

/// ```
/// use heddle::fs::{self, File};
/// use std::io::{BufRead as _, BufReader, Write as _};
///
/// let path = std::env::temp_dir().join(format!("heddle-doc-lines-{}", std::process::id()));
/// File::create(&path)?.write_all(b"one\ntwo\n")?;
/// let lines: Result<Vec<_>, _> = BufReader::new(File::open(&path)?).lines().collect();
/// assert_eq!(lines?, ["one", "two"]);
/// fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub use heddle_rt::fs;

/// ```
/// use heddle::process::{Command, Stdio};
/// use std::time::Duration;
///
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
/// assert!(child.wait_timeout(Duration::from_millis(1))?.is_none()); // waits for its input
/// assert!(child.wait()?.success()); // and closes it first
/// # Ok::<(), std::io::Error>(())
/// ```
pub use heddle_rt::process;

/// Serves until SIGINT or SIGTERM comes:
///
/// ```no_run
/// use heddle::signal::{SIGINT, SIGTERM, Signals};
///
/// let signals = Signals::new([SIGINT, SIGTERM])?;
/// let server = heddle::sync::CancellationToken::new();
/// // ... tasks that end when the token is cancelled ...
/// signals.recv()?;
/// server.cancel();
/// # Ok::<(), std::io::Error>(())
/// ```
pub use heddle_rt::signal;

/// Async tasks: futures that a policy schedules like threads, and whose long polls are preempted like threads.
///
/// A task borrows a stack only while it is polled, so one that waits takes some two hundred bytes. A poll that outlives
/// its quantum keeps the stack and goes on later, and others run meanwhile. What the semantics are, and how they differ
/// from tokio's: `docs/design/async.md`.
///
/// ```
/// use heddle::task;
///
/// let runtime = heddle::Runtime::builder().policy("two-queue:quantum=100us").build()?;
/// let primes = runtime.block_on(async {
///     // Computes for long without an await: the policy takes the CPU from it when others wait.
///     let long = task::spawn(async { (2..20_000u32).filter(|n| (2..*n).all(|d| n % d != 0)).count() });
///     let short = task::spawn(async { 42 });
///     assert_eq!(short.await.unwrap(), 42);
///     long.await.unwrap()
/// });
/// assert_eq!(primes, 2262);
/// # Ok::<(), heddle::ConfigError>(())
/// ```
pub mod task {
    pub use heddle_rt::futures::{
        AbortHandle, Builder, JoinError, JoinHandle, JoinSet, LocalJoinHandle, LocalSet, YieldNow,
        spawn, spawn_blocking, spawn_local, yield_now,
    };
}

/// hyper on Heddle: executor, timer and streams (feature `hyper`).
#[cfg(feature = "hyper")]
pub use heddle_rt::hyper;

#[cfg(feature = "bypass")]
mod bypass;

#[cfg(feature = "tracing")]
pub mod tracing;

/// Sleeping, time limits and regular intervals.
pub mod time {
    pub use heddle_rt::{
        After, Elapsed, Interval, Sleep, after, interval, now, sleep, sleep_async, sleep_until,
        sleep_until_async, timeout, timeout_async,
    };
}

/// Scheduling policies: the trait to write one of your own, and the registry of those that are shipped.
///
/// A policy is pure: an event, the time and a view in, a decision out. [`RuntimeBuilder::build_with`] runs it;
/// `examples/own_policy.rs` of this crate is one with two queues, a quantum and per-task state.
///
/// ```
/// use heddle::RuntimeBuilder;
/// use heddle::policy::{Cx, Enqueue, Model, ParamError, Params, Policy, TaskId, TaskList};
///
/// /// The task that came last runs first.
/// struct Stack;
///
/// impl Policy for Stack {
///     type Task = ();
///     type Queue = TaskList;
///     const NAME: &'static str = "stack";
///     const MODEL: Model = Model::Central;
///     const WORK_CONSERVING: bool = true;
///
///     fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
///         Ok(Stack)
///     }
///     fn queue(&self) -> TaskList {
///         TaskList::default()
///     }
///     fn len(&self, queue: &TaskList) -> usize {
///         queue.len()
///     }
///     fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
///         queue.push_front(cx.tasks, task);
///     }
///     fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList) -> Option<TaskId> {
///         queue.pop_front(cx.tasks)
///     }
/// }
///
/// let runtime = RuntimeBuilder::new().workers(1).build_with(Stack)?;
/// assert_eq!(runtime.run(|| heddle::spawn(|| 42).join().unwrap()), 42);
/// # Ok::<(), heddle::ConfigError>(())
/// ```
pub mod policy {
    pub use heddle_core::{
        Balance, BestEffort, Class, CpuId, CpuInfo, CpuSet, Cx, Dispatch, Enqueue, FairTerms,
        Model, Ns, ParamError, Params, Policy, Resched, Rng, TaskAttrs, TaskId, TaskList, TaskSlot,
        TaskTree, Topology, TreeNode, TreeTask, Var,
    };
    pub use heddle_policies::{
        Info, ParamInfo, PolicyError, Visitor, build, find, list, names, with_policy,
    };

    /// The policies that are shipped, as types: to wrap one, or to run one without its name.
    pub mod shipped {
        pub use heddle_policies::{
            BestOfTwo, Cfs, CoreEdf, CpuAffinity, Darc, Edf, Eevdf, Fifo, Hybrid, Jbsq, Locality,
            Mlfq, Priority, QueueAffinity, RoundRobin, Shinjuku, ShinjukuShenango, Sjf, Srpt,
            TwoQueue, WorkStealing,
        };
    }
}

/// Steering: datagrams, connections and packets to sockets, CPUs and queues (feature `steer`).
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use heddle::steer::{client::{Deployment, Steering, policy_of}, hook::Hook};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sockets: Vec<std::net::UdpSocket> = Vec::new();
/// // Sockets with SO_REUSEPORT, bound to one port, and a thread for each.
/// let mut deployment = Deployment::new(policy_of("scan-avoid")?, Hook::SocketSelect);
/// for socket in &sockets {
///     deployment = deployment.executor("a worker", socket.as_fd().try_clone_to_owned()?);
/// }
/// let steering = Steering::open(false)?;
/// let attachment = steering.attach(deployment)?;
///
/// // In the thread of the first: stores into memory that the policy reads.
/// let executor = steering.executor(attachment.id, 0)?;
/// executor.busy(3);
/// executor.idle();
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "steer")]
pub use heddle_steer as steer;

/// Agents: threads of the kernel to CPUs, by a policy in user space (feature `agent`).
///
/// `heddle agent` on the command line does this for programs that are not changed; a program may also be an agent
/// itself, of threads of
/// *other* processes (an agent that schedules threads of its own would wait for locks that a thread it has parked
/// holds).
///
/// ```no_run
/// use heddle::agent::agent::{Control, Options, serve};
/// use heddle::agent::{EnclaveSpec, rt::Rt};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let enclave = Rt::create(&EnclaveSpec::new("mine", &[2, 3]))?;
/// enclave.join_process(4711)?;
/// let control = Control::default();
/// let until = control.clone();
/// std::thread::spawn(move || {
///     std::thread::sleep(std::time::Duration::from_secs(60));
///     until.stop();
/// });
/// let ended = serve(Arc::new(enclave), Options::new("shinjuku:quantum=1ms"), &control)?;
/// println!("{ended:?}");
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "agent")]
pub use heddle_agent as agent;

/// Events: ready descriptors, timers and the like to threads. All threads of a program wait on one queue, and a
/// policy decides which of them handles what; no event is handled by two at once, and nothing is armed anew (SKQ, on
/// stock Linux).
///
/// For ordinary threads. How to choose a policy and to port a loop: `docs/events/README.md`.
///
/// ```
/// use heddle::events::{EventOptions, EventQueue, Interest};
/// use std::io::{Read as _, Write as _};
/// use std::os::unix::net::UnixStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (mut client, server) = UnixStream::pair()?;
/// client.write_all(b"hello")?;
///
/// let queue = EventQueue::builder().policy("hybrid").build()?;
/// queue.register(&server, Interest::READ, 7, EventOptions::default())?;
/// // As many threads as there are may do this.
/// let mut worker = queue.worker()?;
/// for event in worker.wait(None)? {
///     let mut request = [0; 64];
///     let bytes = (&server).read(&mut request)?;
///     assert_eq!((event.token(), &request[..bytes]), (7, &b"hello"[..]));
/// }
/// # Ok(())
/// # }
/// ```
pub use heddle_events as events;
