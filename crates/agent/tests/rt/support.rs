//! Enclaves and threads for the tests of the real-time backend.

use heddle_agent::model::{Group, Kind, Message, Outcome, Transaction};
use heddle_agent::rt::{Missing, Rt, RtError, probe};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_sys::clock::thread_cpu_time;
use heddle_sys::scheduling;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Longer than anything here takes; keeps a broken test from hanging.
pub const GUARD: Duration = heddle_test_support::PATIENCE;

/// An enclave with this process as its agent.
pub struct Testbed {
    pub rt: Rt,
    _alone: MutexGuard<'static, ()>,
}

/// Whether this process has the needed privileges; prints a note that the test is skipped if not.
pub fn may() -> bool {
    static PROBED: OnceLock<Result<(), Missing>> = OnceLock::new();
    let probed = PROBED.get_or_init(probe);
    if let Err(missing) = probed {
        eprintln!("skipped: {missing}");
        return false;
    }
    // A thread that spins above everything else because of a fault ends its test. The kernel resets a thread's use
    // when it wakes up real-time, which a managed thread never does: the limit is for all that it does here.
    scheduling::limit_realtime(10_000_000).unwrap();
    true
}

pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub fn a_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Makes an enclave of `cpus`. Other tests on this machine may have the CPUs for a while.
pub fn create(cpus: &[u32]) -> Rt {
    create_as(&EnclaveSpec::new(a_name(), cpus))
}

pub fn create_as(spec: &EnclaveSpec) -> Rt {
    let start = Instant::now();
    loop {
        match Rt::create(spec) {
            Err(RtError::Overlap { enclave, .. }) if !enclave.starts_with(&own_prefix()) => {
                assert!(start.elapsed() < GUARD * 2, "enclave {enclave} has the CPUs");
                sleep(Duration::from_millis(100));
            }
            result => return result.expect("an enclave"),
        }
    }
}

fn own_prefix() -> String {
    format!("test-{}-", std::process::id())
}

impl Testbed {
    pub fn on(cpus: &[u32]) -> Option<Testbed> {
        Testbed::with_patience(cpus, EnclaveSpec::new("", cpus).patience)
    }

    pub fn with_patience(cpus: &[u32], patience: Option<Ns>) -> Option<Testbed> {
        let alone = alone();
        if !may() || !has(cpus) {
            return None;
        }
        let rt = create_as(&EnclaveSpec { patience, ..EnclaveSpec::new(a_name(), cpus) });
        rt.attach().expect("no other agent is attached");
        Some(Testbed { rt, _alone: alone })
    }

    /// Returns the next message about `thread`. Others are dropped.
    pub fn next(&self, tid: u32) -> Message {
        self.expect(|message| message.tid == tid)
    }

    pub fn expect(&self, wanted: impl Fn(&Message) -> bool) -> Message {
        let (queue, start) = (self.rt.default_queue(), Instant::now());
        loop {
            match self.rt.next(queue) {
                Some(message) if wanted(&message) => return message,
                Some(_) => {}
                None => {
                    assert!(start.elapsed() < GUARD, "no such message");
                    self.rt.wait(queue, Some(self.rt.now() + Ns::from_ms(100)));
                }
            }
        }
    }

    pub fn drain(&self) -> Vec<Message> {
        std::iter::from_fn(|| self.rt.next(self.rt.default_queue())).collect()
    }

    /// Puts a sleeping worker into the enclave.
    pub fn with(&self, worker: &Worker) -> TaskId {
        worker.await_sleep();
        self.rt.join(worker.tid).expect("it can be managed");
        let message = self.next(worker.tid);
        assert_eq!((message.kind, message.info), (Kind::ThreadCreated, 0), "{message:?}");
        message.thread
    }

    pub fn commit(&self, thread: TaskId, cpu: u16) -> Outcome {
        let word = self.rt.thread(thread);
        let transaction = Transaction::new(thread, word.tid, CpuId(cpu), word.tseq);
        self.commit_one(transaction)
    }

    pub fn commit_one(&self, transaction: Transaction) -> Outcome {
        let mut group = [transaction];
        let count = self.rt.commit(&mut group, Group::Each);
        assert_eq!(count, usize::from(group[0].outcome.is_committed()));
        group[0].outcome
    }
}

fn has(cpus: &[u32]) -> bool {
    let there =
        |cpu: &u32| std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let all = cpus.iter().all(there);
    if !all {
        eprintln!("skipped: this machine has no CPUs {cpus:?}");
    }
    all
}

pub use heddle_test_support::until;

/// As [`until`], checking from `cpu`: from the CPU under test it looks as if only the checking thread were there.
pub fn until_from(cpu: u32, what: &str, is_so: impl Fn() -> bool) {
    let before = scheduling::mask(0).expect("this thread's CPUs");
    scheduling::set_mask(0, &mask(&[cpu])).expect("confined");
    until(what, is_so);
    scheduling::set_mask(0, &before).expect("as before");
}

/// A thread that sleeps until it gets an order.
pub struct Worker {
    pub tid: u32,
    orders: UnixStream,
    /// Whether it spins.
    pub spins: &'static AtomicBool,
    /// Whether it is to rest. Set and cleared by the one who gives orders: the worker may obey much later.
    rests: &'static AtomicBool,
    thread: Option<JoinHandle<()>>,
}

/// A child thread of the worker, until it is ended.
pub static CHILD: AtomicU32 = AtomicU32::new(0);

impl Worker {
    pub fn start() -> Worker {
        let (orders, theirs) = UnixStream::pair().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let [spins, rests] = [(); 2].map(|()| &*Box::leak(Box::<AtomicBool>::default()));
        let thread = std::thread::spawn(move || {
            sender.send(heddle_sys::thread::id()).unwrap();
            obey(theirs, spins, rests);
        });
        Worker { tid: receiver.recv().unwrap(), orders, spins, rests, thread: Some(thread) }
    }

    pub fn order(&self, order: u8) {
        (&self.orders).write_all(&[order]).unwrap();
    }

    /// Wakes it up to spin until [`Worker::rest`].
    pub fn spin(&self) {
        self.rests.store(false, Relaxed);
        self.order(b's');
    }

    pub fn rest(&self) {
        self.rests.store(true, Relaxed);
    }

    pub fn await_sleep(&self) {
        until("the worker sleeps", || heddle_sys::thread::is_asleep(self.tid));
    }

    pub fn end(&mut self) {
        self.rest();
        let _ = (&self.orders).write_all(b"q");
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

fn obey(mut orders: UnixStream, spins: &AtomicBool, rests: &AtomicBool) {
    let mut order = [0];
    while orders.read_exact(&mut order).is_ok() {
        match order[0] {
            b's' => spin(spins, rests),
            b'n' => {}
            b'y' => std::thread::yield_now(),
            b'i' => scheduling::set(0, scheduling::Scheduling::ORDINARY).unwrap(),
            b'm' => scheduling::set_mask(0, &mask(&[1])).unwrap(),
            b'p' => scheduling::set_nice(0, 10).unwrap(),
            b'c' => {
                std::thread::spawn(|| {
                    CHILD.store(heddle_sys::thread::id(), Relaxed);
                    until("the child may end", || CHILD.load(Relaxed) == 0);
                });
            }
            _ => return,
        }
    }
}

/// For at most two seconds of its own time; on a busy machine that may take long.
fn spin(spins: &AtomicBool, rests: &AtomicBool) {
    let start = thread_cpu_time();
    spins.store(true, Relaxed);
    while !rests.load(Relaxed) && thread_cpu_time() - start < Ns::from_secs(2) {
        std::hint::spin_loop();
    }
    spins.store(false, Relaxed);
}

pub fn mask(cpus: &[u32]) -> scheduling::Mask {
    let mut mask = [0; 16];
    for cpu in cpus {
        mask[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    mask
}
