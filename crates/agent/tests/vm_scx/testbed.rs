//! An enclave for a test, threads to put into it, and waiting for conditions.

use heddle_agent::model::{Group, Kind, Message, Outcome, State, Transaction};
use heddle_agent::scx::{Scx, probe};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_sys::scheduling::{self, Scheduling};
use std::process::{Child, Command};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long anything may take before a test counts as hung.
pub const HANG: Duration = Duration::from_secs(20);

/// Tests change the machine's CPUs and its only sched_ext scheduler.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An enclave with this process as its agent.
pub struct Testbed {
    pub scx: Scx,
    _undo: Undo,
    _alone: MutexGuard<'static, ()>,
}

/// Removes the enclave, even if a test panics.
struct Undo(String);

impl Drop for Undo {
    fn drop(&mut self) {
        if let Ok(scx) = Scx::open(&self.0) {
            let _ = scx.remove();
        }
    }
}

/// Whether the backend works here. In the virtual machine it must.
pub fn works() -> bool {
    match probe() {
        Ok(()) => true,
        Err(why) if std::env::var_os("HEDDLE_VM").is_some() => {
            panic!("in the virtual machine: {why}")
        }
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Testbed {
    /// Makes an enclave of `cpus` with unlimited patience, and attaches.
    pub fn new(name: &str, cpus: &[u32]) -> Option<Testbed> {
        Testbed::with_patience(name, cpus, None)
    }

    pub fn with_patience(name: &str, cpus: &[u32], patience: Option<Ns>) -> Option<Testbed> {
        if !works() {
            return None;
        }
        let alone = alone();
        let grace = Ns(60_000_000_000);
        let spec = EnclaveSpec { patience, grace, ..EnclaveSpec::new(name, cpus) };
        let scx = Scx::create(&spec).unwrap_or_else(|error| panic!("{error:?}"));
        let testbed = Testbed::of(scx, name, alone);
        testbed.scx.attach().unwrap();
        Some(testbed)
    }
}

impl Testbed {
    pub fn of(scx: Scx, name: &str, alone: MutexGuard<'static, ()>) -> Testbed {
        Testbed { scx, _undo: Undo(name.to_owned()), _alone: alone }
    }

    /// Puts a worker in and reads its message.
    pub fn join(&self, worker: &Worker) -> TaskId {
        self.scx.join(worker.tid).unwrap();
        let message = expect(&self.scx, Kind::ThreadCreated);
        assert_eq!(message.tid, worker.tid);
        message.thread
    }

    /// Returns a transaction that rests on the present state.
    pub fn txn(&self, task: TaskId, cpu: u16) -> Transaction {
        let word = self.scx.thread(task);
        Transaction::new(task, word.tid, CpuId(cpu), word.tseq)
    }

    /// Returns the outcome of one transaction.
    pub fn try_one(&self, transaction: Transaction) -> Outcome {
        let mut one = [transaction];
        let done = self.scx.commit(&mut one, Group::Each);
        assert_eq!(done == 1, one[0].outcome.is_committed());
        one[0].outcome
    }

    /// Commits `task`, which must succeed.
    pub fn commit(&self, task: TaskId, cpu: u16) {
        assert_eq!(self.try_one(self.txn(task, cpu)), Outcome::Committed);
    }

    pub fn state(&self, task: TaskId) -> State {
        self.scx.thread(task).state
    }

    pub fn is_silent(&self) {
        let message = std::iter::from_fn(|| self.scx.next(self.scx.default_queue()))
            .find(|message| !is_interruption(message));
        assert_eq!(message, None, "nothing has happened");
    }

    /// Commits `task` until it is seen to run: the kernel's own threads may have the CPU at any moment. Reads the
    /// messages of that.
    #[track_caller]
    pub fn run(&self, task: TaskId, cpu: u16, worker: &Worker) {
        let before = worker.turns();
        until("the thread runs", || {
            if self.state(task) == State::Parked {
                let outcome = self.try_one(self.txn(task, cpu));
                // It may just have been interrupted once more.
                let retry = matches!(outcome, Outcome::Stale | Outcome::Again);
                assert!(retry || outcome == Outcome::Committed, "{outcome:?}");
            }
            worker.turns() > before && self.state(task) == State::OnCpu
        });
        self.is_silent();
    }
}

/// How long a managed thread has run: by its own count, and by the kernel's account, as it may be interrupted
/// before it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    turns: u64,
    runtime: Ns,
}

impl Ran {
    pub fn of(scx: &Scx, task: TaskId, worker: &Worker) -> Ran {
        Ran { turns: worker.turns(), runtime: scx.thread(task).runtime }
    }
}

impl Testbed {
    pub fn ran(&self, task: TaskId, worker: &Worker) -> Ran {
        Ran::of(&self.scx, task, worker)
    }

    /// Whether it has run since `before`. It may have been interrupted since.
    #[track_caller]
    pub fn runs_since(&self, task: TaskId, worker: &Worker, before: Ran) {
        until("the thread runs", || self.ran(task, worker) != before);
    }

    /// Takes the CPU from `task`.
    pub fn park(&self, task: TaskId, cpu: u16) {
        until("the thread is parked", || {
            self.scx.preempt(CpuId(cpu));
            self.state(task) == State::Parked
        });
    }
}

/// Whether a managed thread lost its CPU to an ordinary one, which may happen to any of them.
fn is_interruption(message: &Message) -> bool {
    message.kind == Kind::ThreadPreempted && message.info == 0
}

/// Returns the next message that is not an interruption; it must be of `kind`.
pub fn expect(scx: &Scx, kind: Kind) -> Message {
    loop {
        let message = next(scx);
        if message.kind == kind {
            return message;
        }
        assert!(is_interruption(&message), "{kind:?} expected, not {message:?}");
    }
}

/// Returns the next message of the default queue.
pub fn next(scx: &Scx) -> Message {
    let end = Instant::now() + HANG;
    loop {
        if let Some(message) = scx.next(scx.default_queue()) {
            return message;
        }
        assert!(Instant::now() < end, "no message came");
        scx.wait(scx.default_queue(), Some(scx.now() + Ns(100_000_000)));
    }
}

pub use heddle_test_support::until;

/// A process above managed threads that has a CPU until this is dropped.
pub struct Holder(Child);

impl Holder {
    pub fn ordinary(cpu: u32) -> Holder {
        Holder::of(cpu, Scheduling::ORDINARY)
    }

    pub fn realtime(cpu: u32) -> Holder {
        Holder::of(cpu, Scheduling::fifo(1))
    }

    fn of(cpu: u32, how: Scheduling) -> Holder {
        // Otherwise the kernel lets managed threads run for 50 ms of each second.
        let server = format!("/sys/kernel/debug/sched/ext_server/cpu{cpu}/runtime");
        if let Err(error) = std::fs::write(&server, "0") {
            eprintln!("note: {server}: {error}");
        }
        let mut shell = Command::new("/bin/sh");
        let holder = Holder(shell.args(["-c", "while :; do :; done"]).spawn().unwrap());
        scheduling::set_mask(holder.0.id(), &mask_of(cpu)).unwrap();
        scheduling::set(holder.0.id(), how).unwrap();
        holder.moves();
        holder
    }

    /// Returns how long it has run, by the kernel's account.
    fn ran(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.0.id())).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// Checks that it runs.
    pub fn moves(&self) {
        let before = self.ran();
        until("the holder runs", || self.ran() > before + 1_000_000);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mask_of(cpu: u32) -> scheduling::Mask {
    let mut mask = [0; 16];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    mask
}

/// What a worker shares with its test.
#[derive(Default)]
struct Shared {
    turns: AtomicU64,
    stop: AtomicBool,
}

/// A thread of this process that works until this is dropped.
pub struct Worker {
    pub tid: u32,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker that counts as fast as it can.
    pub fn spinning() -> Worker {
        Worker::doing(|| ())
    }

    /// Starts a worker that counts and calls `each` after each count.
    pub fn doing(each: impl Fn() + Send + 'static) -> Worker {
        let shared = Arc::new(Shared::default());
        let (send, tid) = mpsc::channel();
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            send.send(heddle_sys::thread::id()).unwrap();
            while !its.stop.load(Relaxed) {
                its.turns.fetch_add(1, Relaxed);
                each();
            }
        });
        Worker { tid: tid.recv().unwrap(), shared, thread: Some(thread) }
    }

    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Relaxed)
    }

    /// Whether it stands still for a while. It may be just being stopped.
    pub fn stands_still(&self) -> bool {
        let before = self.turns();
        sleep(Duration::from_millis(50));
        self.turns() == before
    }

    /// Checks that it runs without an agent.
    #[track_caller]
    pub fn moves(&self) {
        let before = self.turns();
        until("the thread runs", || self.turns() > before);
    }

    /// Confines it to one CPU.
    pub fn pin(&self, cpu: u32) {
        scheduling::set_mask(self.tid, &mask_of(cpu)).unwrap();
    }

    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // It may be parked without an agent that would commit it.
        let _ = scheduling::set(self.tid, Scheduling::ORDINARY);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
