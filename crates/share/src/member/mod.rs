//! A member: the calling process as one application of a share.

mod broker;
mod own_cpu;
mod watch;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heddle_sys::memory::SharedMemory;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, thread};
use rustix::pipe::{PipeFlags, pipe_with};

use self::broker::{Admission, Rejoin, ask_to_join};
use self::own_cpu::{OwnCpu, add};
use crate::abi::{APPS, AppEntry, AppHeader, BrokerHeader, CpuSlot};
use crate::abi::{BROKER_SIZE, app_size};
use crate::abi::{active_priority, helper_priority, raised_priority};
use crate::handover::{self, State};
use crate::wire::{self, Message};

pub use self::broker::connect_to;
pub use self::watch::Watched;

/// What an application is to its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Latency-critical: it has a CPU as soon as it asks.
    Critical,
    /// Best-effort: it has what the others leave.
    BestEffort,
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        match text {
            "lc" => Ok(Kind::Critical),
            "be" => Ok(Kind::BestEffort),
            _ => Err(format!(
                "no class `{text}`; there are: lc (latency-critical), be (best-effort)"
            )),
        }
    }
}

/// Why a process could not join a share.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nothing listens there.
    #[error("no broker answers at {}: {source}; start one with `heddle share serve`", .at.display())]
    NoBroker {
        /// The broker's socket.
        at: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The broker's reason.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// The broker does not keep to the protocol.
    #[error("the broker at {} speaks another language: {why}", .at.display())]
    Protocol {
        /// The broker's socket.
        at: PathBuf,
        /// What was wrong.
        why: String,
    },
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// How many classes of waits [`Member::waits`] has.
pub const WAIT_CLASSES: usize = 32;

/// Returns the class of a wait of so many nanoseconds.
fn wait_class(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(WAIT_CLASSES - 1)
}

/// What only this process knows about one of its CPUs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Local {
    /// See [`Member::waits`].
    waits: [AtomicU64; WAIT_CLASSES],
    /// Its worker has the priority of one that sleeps.
    raised: AtomicBool,
    /// Its worker is an ordinary thread: it has no equals, and whom it is behind preempts it all the same.
    ordinary: AtomicBool,
    /// When its worker last slept or waited.
    slept_at: AtomicU64,
    /// When it was last asked again.
    asked_at: AtomicU64,
    reported_at: AtomicU64,
    /// When its worker was last made to look again, and that it has not yet.
    nudged_at: AtomicU64,
    nudged: AtomicBool,
    /// Nanoseconds for which its worker was active, up to when that began last, preempted or not.
    held_ns: AtomicU64,
    /// When the window began in which real time is counted, and for how long its worker had been busy by then.
    window_began: AtomicU64,
    busy_then: AtomicU64,
    /// It is to become ordinary for a while.
    must_rest: AtomicBool,
    /// Since when its worker computes as an ordinary thread, and holds no CPU; 0 if it does not.
    rest_since: AtomicU64,
    /// The worker's CPU time then.
    cpu_time_then: AtomicU64,
    /// Its worker is an ordinary thread until it is next heard of.
    demoted: AtomicBool,
    /// The waits in a row that nothing ended.
    idle_yields: AtomicU32,
}

/// See the module. It lives as long as the process.
#[derive(Debug)]
pub struct Member {
    me: AtomicUsize,
    cpus: Box<[u32]>,
    broker: SharedMemory,
    own: SharedMemory,
    peers: Box<[SharedMemory]>,
    /// The peers whose memory is mapped.
    mapped: AtomicU32,
    /// The pipes by which peers are asked, one for each CPU: a descriptor that stays, and stands for `/dev/null` while
    /// there is no peer.
    pipes: Box<[AtomicI32]>,
    /// The reading ends of the pipes by which others ask this member.
    asked_by: Box<[OwnedFd]>,
    locals: Box<[Local]>,
    /// The signal that an ask sends to a worker.
    signal: i32,
    /// The priority of active workers; 0 where they are ordinary threads.
    priority: AtomicU32,
    /// No broker has it as a member: its workers are ordinary threads and do not wait.
    removed: AtomicBool,
    socket: Mutex<Option<OwnedFd>>,
}

/// A thread's part in a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// It works for a shared CPU (an index).
    Worker(usize),
    /// It serves the workers and never computes for long.
    Helper,
}

impl Member {
    /// Makes the calling process a member of the share whose broker listens at `path`. Those who ask one of its workers
    /// to make way send it `signal`.
    ///
    /// # Errors
    /// See [`JoinError`]; nothing is left behind.
    pub fn join(
        path: &Path,
        name: &str,
        kind: Kind,
        signal: i32,
    ) -> Result<&'static Member, JoinError> {
        let admission = ask_to_join(path, name, kind)?;
        let system = |what| move |source| JoinError::System { what, source };
        let cpus = admission.cpus.clone();
        let reserve = |len| SharedMemory::reserve(len).map_err(system("reserve memory"));
        let (own, broker) = (reserve(app_size(cpus.len()))?, reserve(BROKER_SIZE)?);
        let peers = (0..APPS).map(|_| reserve(app_size(cpus.len()))).collect::<Result<_, _>>()?;
        let pipes = cpus.iter().map(|_| pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK));
        let pipes = pipes.collect::<Result<Vec<_>, _>>();
        let pipes = pipes.map_err(|error| system("make pipes")(error.into()))?;
        let (asked_by, askers): (Vec<OwnedFd>, Vec<OwnedFd>) = pipes.into_iter().unzip();
        let member = Member {
            me: AtomicUsize::new(admission.app),
            broker,
            own,
            peers,
            mapped: AtomicU32::new(0),
            pipes: (0..APPS * cpus.len()).map(|_| AtomicI32::new(-1)).collect(),
            asked_by: asked_by.into(),
            locals: cpus.iter().map(|_| Local::default()).collect(),
            cpus: cpus.into(),
            signal,
            priority: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            socket: Mutex::new(None),
        };
        let member: &'static Member = Box::leak(Box::new(member));
        member.begin(&admission).map_err(system("map the share's memory"))?;
        let ready = |socket: &OwnedFd| {
            let fds: Vec<_> = askers.iter().map(AsFd::as_fd).collect();
            wire::send(socket, &Message::Ready, &fds)
        };
        ready(&admission.socket).map_err(system("write to the broker"))?;
        let again = Rejoin { path: path.into(), name: name.into(), kind, askers };
        member.listen_in_thread(admission.socket, again).map_err(system("start a thread"))?;
        Ok(member)
    }

    /// Maps the memory of an admission in place of what was there.
    fn begin(&self, admission: &Admission) -> io::Result<()> {
        self.mapped.store(0, Ordering::SeqCst);
        self.broker.map(&admission.broker, false)?;
        self.own.map(&admission.own, true)?;
        self.me.store(admission.app, Ordering::SeqCst);
        let priority = match self.lowest_priority() {
            0 => 0,
            lowest => active_priority(lowest, self.rank()),
        };
        if priority != self.priority.load(Ordering::Relaxed) {
            self.set_priority_of_workers(priority);
        }
        *self.socket.lock().unwrap_or_else(|e| e.into_inner()) =
            Some(admission.socket.try_clone()?);
        self.removed.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns whether its workers are real-time threads, unless they need no priority.
    fn is_realtime(&self) -> bool {
        self.priority.load(Ordering::Relaxed) != 0
    }

    fn lowest_priority(&self) -> u32 {
        self.header().priority.load(Ordering::Relaxed)
    }

    fn rank(&self) -> u32 {
        self.entry(self.me()).rank.load(Ordering::Relaxed)
    }

    /// Returns the shared CPUs, by the system's numbers.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Prepares the calling thread.
    pub fn adopt_thread(&self, part: Thread) {
        let priority = self.priority.load(Ordering::Relaxed);
        let own = match part {
            Thread::Worker(_) => raised_priority(priority),
            Thread::Helper => helper_priority(self.lowest_priority(), self.rank()),
        };
        if priority != 0 && !self.removed.load(Ordering::Relaxed) {
            let _ = scheduling::set(0, Scheduling::fifo(own));
        }
        if let Thread::Worker(cpu) = part {
            let tid = thread::id();
            self.slot(cpu).tid.store(tid, Ordering::Relaxed);
            self.locals[cpu].raised.store(true, Ordering::Relaxed);
            self.locals[cpu].ordinary.store(false, Ordering::Relaxed);
            self.has_slept(cpu);
            // Without it the member is asked in vain, and its own ticker finds out.
            let _ = scheduling::signal_on_input(&self.asked_by[cpu], tid, self.signal);
        }
    }

    /// Makes the workers real-time threads of this priority, or ordinary ones if it is 0.
    fn set_priority_of_workers(&self, priority: u32) {
        self.priority.store(priority, Ordering::SeqCst);
        let to = if priority == 0 { Scheduling::ORDINARY } else { Scheduling::fifo(priority) };
        for cpu in 0..self.cpus.len() {
            self.locals[cpu].ordinary.store(false, Ordering::Relaxed);
            let worker = self.slot(cpu).tid.load(Ordering::Relaxed);
            if worker != 0 {
                let _ = scheduling::set(worker, to);
            }
        }
    }

    /// Makes workers that sleep look again: what they wait for is not where it was.
    fn nudge_all(&self) {
        (0..self.cpus.len()).for_each(|cpu| self.nudge(cpu));
    }

    /// The worker of `cpu`, the caller, has work: waits until it is active.
    pub fn enter(&self, cpu: usize) {
        if self.is_removed() {
            return;
        }
        let own = OwnCpu { member: self, cpu };
        self.has_slept(cpu);
        handover::enter(&own);
        own.lower();
        self.became_active(cpu);
    }

    /// The worker of `cpu`, the caller, which is active and has no work, is about to sleep.
    pub fn leave(&self, cpu: usize) {
        if self.is_removed() {
            return;
        }
        let own = OwnCpu { member: self, cpu };
        if !own.end_rest() {
            self.stops_being_active(cpu);
            handover::leave(&own);
            own.raise();
        }
    }

    /// The worker of `cpu`, the caller, which [was asked](Member::is_asked) to, makes way for those before it, and
    /// waits until it may go on.
    ///
    /// One that has computed for long goes on as an ordinary thread for a while, below all members: it holds no CPU
    /// then, and takes it again at the end of that.
    pub fn make_way(&self, cpu: usize) {
        if self.is_removed() {
            return;
        }
        let own = OwnCpu { member: self, cpu };
        if own.end_rest() {
            return self.enter(cpu);
        }
        self.stops_being_active(cpu);
        if self.locals[cpu].must_rest.swap(false, Ordering::Relaxed) {
            handover::leave(&own);
            return own.begin_rest();
        }
        add(&self.slot(cpu).made_way, 1);
        handover::make_way(&own);
        self.became_active(cpu);
    }

    /// Returns whether the worker of `cpu` is to call [`Member::make_way`]. Some 50 ns; safe in a signal handler.
    #[inline]
    pub fn is_asked(&self, cpu: usize) -> bool {
        let own = OwnCpu { member: self, cpu };
        if self.is_removed() {
            return false;
        }
        if State::of(self.slot(cpu).state.load(Ordering::Relaxed)) != State::Active {
            return own.is_resting() && own.has_rested();
        }
        let local = &self.locals[cpu];
        local.must_rest.load(Ordering::Relaxed)
            || handover::rival(&own).is_some()
            || self.slice_is_over(cpu)
    }

    /// The worker of `cpu` begins to use real-time.
    fn has_slept(&self, cpu: usize) {
        self.locals[cpu].slept_at.store(clock::now().0, Ordering::Relaxed);
    }

    fn became_active(&self, cpu: usize) {
        let (slot, now) = (self.slot(cpu), clock::now().0);
        let waited = now.saturating_sub(slot.since.load(Ordering::Relaxed));
        add(&slot.waited_ns, waited);
        add(&self.locals[cpu].waits[wait_class(waited)], 1);
        slot.longest_wait_ns.fetch_max(waited, Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        let own = OwnCpu { member: self, cpu };
        if own.needs_no_priority() && !self.locals[cpu].ordinary.swap(true, Ordering::Relaxed) {
            let _ = scheduling::set(0, Scheduling::ORDINARY);
        }
        // Two system calls, which only one that has better ones beside it needs.
        let cpu_time = if own.may_be_preempted() { own.cpu_time() } else { 0 };
        slot.cpu_time_then.store(cpu_time, Ordering::Relaxed);
        add(&slot.switches, 1);
    }

    fn stops_being_active(&self, cpu: usize) {
        let (slot, now) = (self.slot(cpu), clock::now().0);
        let held = now.saturating_sub(slot.since.load(Ordering::Relaxed));
        add(&self.locals[cpu].held_ns, held);
        let active = match slot.cpu_time_then.load(Ordering::Relaxed) {
            0 => held,
            then => held.min(OwnCpu { member: self, cpu }.cpu_time().saturating_sub(then)),
        };
        add(&slot.active_ns, active);
        slot.since.store(now, Ordering::Relaxed);
    }

    /// Returns how often the worker of `cpu` has waited for it so far, by time: fewer than 2 to the power of the index
    /// nanoseconds, and not fewer than half of that. The last number has all longer ones.
    pub fn waits(&self, cpu: usize) -> [u64; WAIT_CLASSES] {
        std::array::from_fn(|class| self.locals[cpu].waits[class].load(Ordering::Relaxed))
    }

    fn me(&self) -> usize {
        self.me.load(Ordering::Relaxed) % APPS
    }

    /// Returns whether the process is no member any more, or is the child of one.
    #[inline]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// In the child of a fork, which is no member and has none of the memory.
    pub fn forget_in_child(&self) {
        self.removed.store(true, Ordering::SeqCst);
    }

    fn header(&self) -> &BrokerHeader {
        // SAFETY: mapped for as long as the process lives, large enough, aligned to a page, all atomics.
        unsafe { &*self.broker.base().cast() }
    }

    fn entry(&self, app: usize) -> &AppEntry {
        let at = size_of::<BrokerHeader>() + app % APPS * size_of::<AppEntry>();
        // SAFETY: as above, and within `BROKER_SIZE`.
        unsafe { &*self.broker.base().add(at).cast() }
    }

    fn slot_in(&self, memory: &SharedMemory, cpu: usize) -> &CpuSlot {
        assert!(cpu < self.cpus.len());
        let at = size_of::<AppHeader>() + cpu * size_of::<CpuSlot>();
        // SAFETY: as above; each member's memory has that size, and what is not mapped reads as zero.
        unsafe { &*memory.base().add(at).cast() }
    }

    /// Returns the slot that this member writes.
    fn slot(&self, cpu: usize) -> &CpuSlot {
        self.slot_in(&self.own, cpu)
    }
}
