//! An enclave for a test, threads to put into it, and the waiting for what must happen.

use heddle_agent::model::{Kind, Message};
use heddle_agent::scx::{Scx, probe};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::Ns;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long anything may take before a test counts as hung.
pub const HANG: Duration = Duration::from_secs(20);

/// Tests change the machine's CPUs and the one scheduler that it can have.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An enclave with this process as its agent.
pub struct Bench {
    pub scx: Scx,
    _undo: Undo,
    _alone: MutexGuard<'static, ()>,
}

/// Removes the enclave, also when a test panics.
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

impl Bench {
    /// An enclave of `cpus` without patience's end, attached.
    pub fn new(name: &str, cpus: &[u32]) -> Option<Bench> {
        if !works() {
            return None;
        }
        let alone = alone();
        let spec = EnclaveSpec {
            patience: None,
            grace: Ns(60_000_000_000),
            ..EnclaveSpec::new(name, cpus)
        };
        let scx = Scx::create(&spec).unwrap_or_else(|error| panic!("{error:?}"));
        let _undo = Undo(name.to_owned());
        scx.attach().unwrap();
        Some(Bench { scx, _undo, _alone: alone })
    }
}

/// The next message, which must be of `kind`.
pub fn expect(scx: &Scx, kind: Kind) -> Message {
    let message = next(scx);
    assert_eq!(message.kind, kind, "{message:?}");
    message
}

/// The next message of the default queue.
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

/// Waits until `so`.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !so() {
        assert!(Instant::now() < end, "{what}: not in {HANG:?}");
        sleep(Duration::from_millis(1));
    }
}

/// What a worker shares with its test.
#[derive(Default)]
struct Shared {
    turns: AtomicU64,
    stop: AtomicBool,
}

/// A thread of this process that does something until it is dropped.
pub struct Worker {
    pub tid: u32,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// One that counts as fast as it can.
    pub fn spinning() -> Worker {
        Worker::doing(|| ())
    }

    /// One that counts and does `each` after each count.
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

    /// Whether it does nothing for a while. It may be in the middle of being stopped.
    pub fn stands_still(&self) -> bool {
        let before = self.turns();
        sleep(Duration::from_millis(50));
        self.turns() == before
    }

    /// It runs.
    pub fn moves(&self) {
        let before = self.turns();
        until("the thread runs", || self.turns() > before);
    }

    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // It may be parked, and nobody commits it any more.
        let _ = heddle_sys::scheduling::set(self.tid, heddle_sys::scheduling::Scheduling::ORDINARY);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
