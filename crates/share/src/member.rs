//! A member: the calling process as one application of a share.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::time::Duration;

use heddle_core::Ns;
use heddle_sys::memory::{self, SharedMemory};
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, futex, thread};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::abi::{APPS, AppEntry, AppHeader, BrokerHeader, CpuSlot, VERSION};
use crate::abi::{app_size, broker_size, turns_at};
use crate::handover::{self, Cpu, NOBODY, State, Woken};
use crate::wire::{self, Message};

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
            _ => Err(format!("no class `{text}`; there are: lc (latency-critical), be (best-effort)")),
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

/// How long a waiter sleeps before it looks again by itself.
const LOOK_AGAIN: Ns = Ns::from_ms(2);

/// How long a member waits before it asks again, and before it tells the broker.
const ASK_AGAIN: Ns = Ns::from_ms(1);
const TELL: Ns = Ns::from_ms(10);

/// How often a worker looks how much of its CPU real-time threads have used. If it was most of it, the worker computes as
/// an ordinary thread for a while: the kernel stops all real-time threads of a CPU that have used 95 % of a second, for
/// the rest of it, and since Linux 6.12 ordinary threads that wait get a twentieth, in one piece of 50 ms.
const WINDOW: Ns = Ns::from_ms(50);
/// That while, of which others' real time is no part.
const ORDINARY_FOR: Ns = Ns::from_us(3500);
/// A worker that has not slept for so long does the same: the kernel ends processes whose real-time threads never sleep.
const REST_AFTER: Ns = Ns::from_ms(150);
/// A sleep that is one: a timer that has expired before the thread is off its CPU lets it go on, and for the kernel it
/// has not slept.
const NAP: Ns = Ns::from_us(20);

/// After this it is made an ordinary thread until it is next heard of.
const DEMOTE_AFTER: Ns = Ns::from_ms(300);

/// How often a member looks for a broker that is gone.
const RECONNECT: Duration = Duration::from_millis(200);

/// What only this process knows about one of its CPUs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Local {
    /// Its worker has the priority of one that sleeps.
    raised: AtomicBool,
    /// When its worker last slept or waited.
    slept_at: AtomicU64,
    /// When it was last asked again.
    asked_at: AtomicU64,
    told_at: AtomicU64,
    /// When the [`WINDOW`] began, and for how long members had been active by then.
    window_began: AtomicU64,
    active_then: AtomicU64,
    /// It is to become ordinary for a while.
    rest: AtomicBool,
    /// Since when its worker computes as an ordinary thread, and holds no CPU; 0 if it does not.
    ordinary_since: AtomicU64,
    /// For how long others had been active then.
    others_then: AtomicU64,
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

/// What [`Member::watch`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The worker does not want the CPU.
    Idle,
    /// It has the CPU or wants it.
    Busy,
    /// It must be interrupted, because it is to make way or has run for long without sleeping.
    MakeWay,
}

/// What the broker gave to a member that it admits.
struct Admission {
    socket: OwnedFd,
    app: usize,
    cpus: Vec<u32>,
    broker: OwnedFd,
    own: OwnedFd,
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
        let (own, broker) = (reserve(app_size(cpus.len()))?, reserve(broker_size(cpus.len()))?);
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
        self.priority.store(self.header().priority.load(Ordering::Relaxed), Ordering::SeqCst);
        *self.socket.lock().unwrap_or_else(|e| e.into_inner()) =
            Some(admission.socket.try_clone()?);
        self.removed.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the shared CPUs, by the system's numbers.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Prepares the calling thread.
    pub fn adopt_thread(&self, part: Thread) {
        let priority = self.priority.load(Ordering::Relaxed);
        match part {
            Thread::Worker(cpu) => {
                let tid = thread::id();
                self.slot(cpu).tid.store(tid, Ordering::Relaxed);
                self.locals[cpu].raised.store(true, Ordering::Relaxed);
                self.has_slept(cpu);
                // Without it the member is asked in vain, and its own ticker finds out.
                let _ = scheduling::signal_on_input(&self.asked_by[cpu], tid, self.signal);
            }
            Thread::Helper => {}
        }
        if priority != 0 && !self.removed.load(Ordering::Relaxed) {
            let _ = scheduling::set(0, Scheduling::fifo(priority + 1));
        }
    }

    /// Makes the calling worker of `cpu`, which has lost it to another worker of this process, an ordinary thread.
    pub fn release_thread(&self) {
        if self.priority.load(Ordering::Relaxed) != 0 {
            let _ = scheduling::set(0, Scheduling::ORDINARY);
        }
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
        if !own.ends_ordinary() {
            self.stops_being_active(cpu);
            handover::leave(&own);
            own.raise();
        }
    }

    /// The worker of `cpu`, the caller, which [was asked](Member::is_asked) to, makes way for those before it, and waits
    /// until it may go on.
    ///
    /// One that has computed for long goes on as an ordinary thread for a while, below all members: it holds no CPU
    /// then, and takes it again at the end of that.
    pub fn make_way(&self, cpu: usize) {
        if self.is_removed() {
            return;
        }
        let own = OwnCpu { member: self, cpu };
        self.drain(cpu);
        if own.ends_ordinary() {
            return self.enter(cpu);
        }
        self.stops_being_active(cpu);
        if self.locals[cpu].rest.swap(false, Ordering::Relaxed) {
            handover::leave(&own);
            return own.become_ordinary();
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
            return own.is_ordinary() && own.was_ordinary_for_long();
        }
        self.locals[cpu].rest.load(Ordering::Relaxed)
            || handover::rival(&own).is_some()
            || self.slice_is_over(cpu)
    }

    /// Returns whether another member of the same rank waits, and the CPU has been active for its slice.
    fn slice_is_over(&self, cpu: usize) -> bool {
        let own = OwnCpu { member: self, cpu };
        handover::equal(&own).is_some() && {
            let weight = self.entry(self.me()).weight.load(Ordering::Relaxed).clamp(1, 1 << 20);
            let slice = self.header().slice.load(Ordering::Relaxed).min(1 << 40);
            let active = clock::now().0.saturating_sub(self.slot(cpu).since.load(Ordering::Relaxed));
            active >= slice.saturating_mul(weight.into()) / 1024
        }
    }

    /// Looks after `cpu`, each millisecond while its worker has work, on a thread of its own.
    pub fn watch(&self, cpu: usize) -> Watched {
        if self.is_removed() {
            return Watched::Idle;
        }
        let (own, local, now) = (OwnCpu { member: self, cpu }, &self.locals[cpu], clock::now().0);
        let since = self.slot(cpu).since.load(Ordering::Relaxed);
        match State::of(self.slot(cpu).state.load(Ordering::Acquire)) {
            State::Idle if own.is_ordinary() => {
                if own.was_ordinary_for_long() {
                    // Below the others' real-time threads it would not hear that it may be one again.
                    let priority = self.priority.load(Ordering::Relaxed) + 1;
                    let tid = self.slot(cpu).tid.load(Ordering::Relaxed);
                    let _ = scheduling::set(tid, Scheduling::fifo(priority));
                    return Watched::MakeWay;
                }
            }
            State::Idle => return Watched::Idle,
            State::Wanting => self.insist(&own, now, now.saturating_sub(since)),
            State::Active => {
                // One that stood in for it is still there, and may be in its way.
                if handover::active(&own).is_some() {
                    self.insist(&own, now, ASK_AGAIN.0);
                }
                if self.priority.load(Ordering::Relaxed) != 0 {
                    let ran = now.saturating_sub(local.slept_at.load(Ordering::Relaxed));
                    if own.has_used_up_realtime(now) || ran >= REST_AFTER.0 {
                        local.rest.store(true, Ordering::Relaxed);
                    }
                    if ran >= DEMOTE_AFTER.0 {
                        self.demote_own(cpu);
                    }
                }
                if self.is_asked(cpu) {
                    return Watched::MakeWay;
                }
            }
        }
        Watched::Busy
    }

    /// The worker of `cpu` does not come to a point at which it can rest: it loses its real-time priority until it does.
    fn demote_own(&self, cpu: usize) {
        self.has_slept(cpu);
        self.locals[cpu].demoted.store(true, Ordering::Relaxed);
        let _ = scheduling::set(self.slot(cpu).tid.load(Ordering::Relaxed), Scheduling::ORDINARY);
    }

    /// Asks whoever has the CPU again, and tells the broker after a while.
    fn insist(&self, own: &OwnCpu<'_>, now: u64, waited: u64) {
        let local = &self.locals[own.cpu];
        let every = |last: &AtomicU64, period: Ns| {
            let due = now.saturating_sub(last.load(Ordering::Relaxed)) >= period.0;
            if due {
                last.store(now, Ordering::Relaxed);
            }
            due
        };
        if waited < ASK_AGAIN.0 {
            return;
        }
        if let Some(app) = handover::active(own).filter(|&app| own.rank(app) > own.rank(own.me()))
            && every(&local.asked_at, ASK_AGAIN)
        {
            own.ask(app);
        }
        if waited >= TELL.0 && every(&local.told_at, TELL) {
            self.tell(&Message::Alert(own.cpu as u32));
        }
    }

    /// The worker of `cpu` begins to use real-time.
    fn has_slept(&self, cpu: usize) {
        self.locals[cpu].slept_at.store(clock::now().0, Ordering::Relaxed);
    }

    fn tell(&self, message: &Message) {
        if let Some(socket) = &*self.socket.lock().unwrap_or_else(|e| e.into_inner()) {
            let _ = wire::send(socket, message, &[]);
        }
    }

    fn became_active(&self, cpu: usize) {
        let (slot, now) = (self.slot(cpu), clock::now().0);
        let waited = now.saturating_sub(slot.since.load(Ordering::Relaxed));
        add(&slot.waited_ns, waited);
        slot.longest_wait_ns.fetch_max(waited, Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        add(&slot.switches, 1);
    }

    fn stops_being_active(&self, cpu: usize) {
        let (slot, now) = (self.slot(cpu), clock::now().0);
        add(&slot.active_ns, now.saturating_sub(slot.since.load(Ordering::Relaxed)));
        slot.since.store(now, Ordering::Relaxed);
    }

    /// Empties the pipe by which the member was asked.
    fn drain(&self, cpu: usize) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.asked_by[cpu], &mut bytes).is_ok_and(|n| n == bytes.len()) {}
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
        // SAFETY: as above, and within `broker_size`.
        unsafe { &*self.broker.base().add(at).cast() }
    }

    fn turn(&self, cpu: usize) -> u32 {
        assert!(cpu < self.cpus.len());
        // SAFETY: as above; the CPU is one of those for which the memory was sized.
        let turn: &AtomicU32 =
            unsafe { &*self.broker.base().add(turns_at() + cpu * size_of::<AtomicU32>()).cast() };
        turn.load(Ordering::Relaxed)
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

fn add(counter: &AtomicU64, more: u64) {
    // One writer.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// One CPU, for the member's worker there.
struct OwnCpu<'a> {
    member: &'a Member,
    cpu: usize,
}

impl OwnCpu<'_> {
    fn local(&self) -> &Local {
        &self.member.locals[self.cpu]
    }

    fn slot_of(&self, app: usize) -> &CpuSlot {
        match app == self.member.me() {
            true => self.member.slot(self.cpu),
            false => self.member.slot_in(&self.member.peers[app % APPS], self.cpu),
        }
    }

    /// Gives the calling worker, which is about to sleep, the priority of those that are to be heard at once. One that
    /// all others are before would only disturb them: it runs when they sleep.
    fn raise(&self) {
        let priority = self.member.priority.load(Ordering::Relaxed);
        let may_be_next = || handover::has_peer_behind(self);
        if priority != 0
            && !self.local().raised.load(Ordering::Relaxed)
            && may_be_next()
        {
            self.local().raised.store(true, Ordering::Relaxed);
            set_priority(priority + 1);
        }
    }

    /// Gives the calling worker the priority of those that compute.
    fn lower(&self) {
        let priority = self.member.priority.load(Ordering::Relaxed);
        let local = self.local();
        if priority != 0 && local.raised.swap(false, Ordering::Relaxed) {
            set_priority(priority);
        } else if local.demoted.swap(false, Ordering::Relaxed) {
            let _ = scheduling::set(0, Scheduling::fifo(priority));
        }
    }

    /// Makes the calling worker, which has left the CPU, an ordinary thread that computes while no member does.
    fn become_ordinary(&self) {
        // For the kernel's limit of a thread's real-time, which begins anew when the thread has slept.
        thread::sleep(NAP);
        let local = self.local();
        local.others_then.store(self.others_active(), Ordering::Relaxed);
        local.ordinary_since.store(clock::now().0, Ordering::Relaxed);
        let _ = scheduling::set(0, Scheduling::ORDINARY);
    }

    /// Ends what [`OwnCpu::become_ordinary`] began: the calling worker is about to want the CPU, or to sleep. Returns
    /// false if it was not ordinary.
    fn ends_ordinary(&self) -> bool {
        let was = self.local().ordinary_since.swap(0, Ordering::Relaxed) != 0;
        let priority = self.member.priority.load(Ordering::Relaxed);
        if was && priority != 0 {
            let _ = scheduling::set(0, Scheduling::fifo(priority + 1));
            self.local().raised.store(true, Ordering::Relaxed);
        }
        was
    }

    fn is_ordinary(&self) -> bool {
        self.local().ordinary_since.load(Ordering::Relaxed) != 0
    }

    /// Returns whether ordinary threads have had the CPU for long enough since the worker is one.
    fn was_ordinary_for_long(&self) -> bool {
        let (local, now) = (self.local(), clock::now().0);
        let passed = now.saturating_sub(local.ordinary_since.load(Ordering::Relaxed));
        let others =
            self.others_active().saturating_sub(local.others_then.load(Ordering::Relaxed));
        passed >= ORDINARY_FOR.0
            && (passed.saturating_sub(others) >= ORDINARY_FOR.0 || !handover::has_better(self))
    }

    /// Returns for how long the other members have been active on this CPU, by their own word.
    fn others_active(&self) -> u64 {
        let now = clock::now().0;
        handover::others(self).map(|app| self.active(app, now)).fold(0, u64::saturating_add)
    }

    fn active(&self, app: usize, now: u64) -> u64 {
        let slot = self.slot_of(app);
        let is_active = State::of(slot.state.load(Ordering::Relaxed)) == State::Active;
        let current = now.saturating_sub(slot.since.load(Ordering::Relaxed));
        let before = slot.active_ns.load(Ordering::Relaxed);
        if is_active { before.saturating_add(current) } else { before }
    }

    /// Returns whether members have used most of this CPU in real time, once in each window; for a member that is before
    /// others, whether it has by itself: as long as it leaves them something, they see to that.
    fn has_used_up_realtime(&self, now: u64) -> bool {
        let local = self.local();
        let elapsed = now.saturating_sub(local.window_began.load(Ordering::Relaxed));
        if elapsed < WINDOW.0 {
            return false;
        }
        let others = if handover::has_worse(self) { 0 } else { self.others_active() };
        let active = others.saturating_add(self.active(self.me(), now));
        local.window_began.store(now, Ordering::Relaxed);
        let used = active.saturating_sub(local.active_then.swap(active, Ordering::Relaxed));
        // Handing over is real time too, and in nobody's account.
        used >= elapsed - elapsed / 5
    }

    /// Waits as a thread that could run: it does when the active one sleeps or yields. Only where there are two.
    fn yields(&self) -> bool {
        self.member.priority.load(Ordering::Relaxed) != 0 && self.members().count_ones() == 2
    }
}

/// Sets the calling thread's real-time priority; the broker or a watchdog may have taken that away.
fn set_priority(priority: u32) {
    if !scheduling::set_own_priority(priority) {
        let _ = scheduling::set(0, Scheduling::fifo(priority));
    }
}

/// Yields in a row after which a waiter sleeps, lest it spins beside one that is stopped.
const YIELDS: u32 = 100;

impl Cpu for OwnCpu<'_> {
    fn me(&self) -> usize {
        self.member.me()
    }

    fn members(&self) -> u32 {
        let members = self.member.header().members.load(Ordering::Acquire);
        members & self.member.mapped.load(Ordering::Acquire) | 1 << self.me()
    }

    fn rank(&self, app: usize) -> u32 {
        self.member.entry(app).rank.load(Ordering::Relaxed)
    }

    fn turn(&self) -> u32 {
        self.member.turn(self.cpu)
    }

    fn word(&self, app: usize) -> u32 {
        self.slot_of(app).state.load(Ordering::Acquire)
    }

    fn set_word(&self, word: u32) {
        self.slot_of(self.me()).state.store(word, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn since(&self, app: usize) -> u64 {
        self.slot_of(app).since.load(Ordering::Relaxed)
    }

    fn begin_want(&self) {
        let slot = self.slot_of(self.me());
        slot.since.store(clock::now().0, Ordering::Relaxed);
        slot.waits_on.store(NOBODY, Ordering::Relaxed);
        self.local().idle_yields.store(0, Ordering::Relaxed);
    }

    fn waits_on(&self, app: usize) -> u32 {
        self.slot_of(app).waits_on.load(Ordering::Acquire)
    }

    fn sleep(&self, app: usize, word: u32) -> Woken {
        self.lower();
        let idle_yields = &self.local().idle_yields;
        let yields = self.yields() && idle_yields.load(Ordering::Relaxed) < YIELDS;
        let on = if yields { NOBODY } else { app as u32 };
        self.slot_of(self.me()).waits_on.store(on, Ordering::Release);
        fence(Ordering::SeqCst);
        let moved = || self.word(app) != word;
        if yields {
            if !moved() {
                scheduling::yield_to_equals();
            }
        } else {
            let set = 1 << self.me();
            let slot = self.slot_of(app);
            if futex::wait_shared(&slot.state, word, set, Some(LOOK_AGAIN)) {
                idle_yields.store(0, Ordering::Relaxed);
                return Woken::Moved;
            }
        }
        if moved() || self.member.priority.load(Ordering::Relaxed) == 0 {
            return Woken::Moved;
        }
        idle_yields.fetch_add(1, Ordering::Relaxed);
        Woken::StandIn
    }

    fn wake(&self, app: usize, waiter: usize) {
        futex::wake_shared(&self.slot_of(app % APPS).state, 1 << (waiter % APPS));
    }

    fn ask(&self, app: usize) {
        add(&self.slot_of(self.me()).asked, 1);
        let pipe = &self.member.pipes[(app % APPS) * self.member.cpus.len() + self.cpu];
        write_byte(pipe.load(Ordering::Relaxed));
    }

    fn broke_rule(&self) {
        add(&self.slot_of(self.me()).broken, 1);
    }

    fn stands_in(&self) {
        add(&self.slot_of(self.me()).stood_in, 1);
    }
}

/// Writes to a pipe that the reader has not emptied, or to no pipe at all: then nothing happens.
fn write_byte(fd: RawFd) {
    if fd >= 0 {
        let byte = [0_u8];
        let args = [fd as usize, byte.as_ptr() as usize, 1, 0, 0, 0];
        // SAFETY: the kernel reads one byte; the descriptor is a pipe's or `/dev/null`'s for the rest of the process.
        unsafe { heddle_sys::syscall::call(libc::SYS_write, args) };
    }
}

/// What it takes to join again.
struct Rejoin {
    path: PathBuf,
    name: String,
    kind: Kind,
    askers: Vec<OwnedFd>,
}

/// Connects, and asks to be a member.
fn ask_to_join(path: &Path, name: &str, kind: Kind) -> Result<Admission, JoinError> {
    let socket = connect_to(path)
        .map_err(|source| JoinError::NoBroker { at: path.into(), source })?;
    let wrong = |why: String| JoinError::Protocol { at: path.into(), why };
    let class = u32::from(kind == Kind::BestEffort);
    let join = Message::Join { version: VERSION, class, name: name.into() };
    wire::send(&socket, &join, &[]).map_err(|error| wrong(error.to_string()))?;
    match wire::receive(&socket).map_err(|error| wrong(error.to_string()))? {
        Some((Message::Admitted { app, cpus }, fds)) => {
            let Ok([broker, own]) = <[OwnedFd; 2]>::try_from(fds) else {
                return Err(wrong("it sent no memory".into()));
            };
            match (app as usize) < APPS && !cpus.is_empty() {
                true => Ok(Admission { socket, app: app as usize, cpus, broker, own }),
                false => Err(wrong("its answer makes no sense".into())),
            }
        }
        Some((Message::Refused(why), _)) => Err(JoinError::Refused(why)),
        Some((other, _)) => Err(wrong(format!("unexpected {other:?}"))),
        None => Err(wrong("it hung up".into())),
    }
}

/// Connects to the broker at `path`.
///
/// # Errors
/// The system's.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Member {
    fn listen_in_thread(&'static self, socket: OwnedFd, again: Rejoin) -> io::Result<()> {
        let builder = std::thread::Builder::new().name("heddle-share".into());
        builder.spawn(move || self.run(socket, &again)).map(drop)
    }

    /// Hears the broker, for the rest of the process.
    fn run(&'static self, mut socket: OwnedFd, again: &Rejoin) {
        self.adopt_thread(Thread::Helper);
        loop {
            let why = self.listen(&socket);
            if let Some(why) = why {
                self.mapped.store(0, Ordering::SeqCst);
                self.removed.store(true, Ordering::SeqCst);
                say(format_args!("the broker has removed this program: {why}"));
                return;
            }
            // The broker is gone. Members go on without it, by the order that it left.
            *self.socket.lock().unwrap_or_else(|e| e.into_inner()) = None;
            socket = self.rejoin(again);
        }
    }

    /// Looks for a broker until there is one, and becomes its member.
    fn rejoin(&'static self, again: &Rejoin) -> OwnedFd {
        loop {
            std::thread::sleep(RECONNECT);
            let Ok(admission) = ask_to_join(&again.path, &again.name, again.kind) else { continue };
            if *admission.cpus != *self.cpus || self.copy_own(&admission).is_err() {
                continue;
            }
            let begun = self.begin(&admission);
            let fds: Vec<_> = again.askers.iter().map(AsFd::as_fd).collect();
            if begun.is_ok() && wire::send(&admission.socket, &Message::Ready, &fds).is_ok() {
                return admission.socket;
            }
        }
    }

    /// Brings the state of this member's workers into the memory that a new broker has made for it.
    fn copy_own(&self, admission: &Admission) -> io::Result<()> {
        let new = SharedMemory::reserve(app_size(self.cpus.len()))?;
        new.map(&admission.own, true)?;
        for cpu in 0..self.cpus.len() {
            let (from, to) = (self.slot(cpu), self.slot_in(&new, cpu));
            to.waits_on.store(NOBODY, Ordering::Relaxed);
            to.since.store(from.since.load(Ordering::Relaxed), Ordering::Relaxed);
            to.tid.store(from.tid.load(Ordering::Relaxed), Ordering::Relaxed);
            to.state.store(from.state.load(Ordering::Acquire), Ordering::Release);
        }
        // SAFETY: nothing refers to it any more.
        unsafe { new.unmap() };
        Ok(())
    }

    /// Hears the broker until it is gone. Returns why the broker has removed this member, if it has.
    fn listen(&self, socket: &OwnedFd) -> Option<String> {
        loop {
            match wire::receive(socket) {
                Ok(Some((Message::Peer(app), fds))) if (app as usize) < APPS => {
                    // A peer that cannot be mapped is not seen, and waits until it is active by itself.
                    let _ = self.add_peer(app as usize, fds);
                }
                Ok(Some((Message::Left(app), _))) if (app as usize) < APPS => {
                    self.mapped.fetch_and(!(1 << app), Ordering::SeqCst);
                    self.hang_up(app as usize);
                }
                Ok(Some((Message::Refused(why), _))) => return Some(why),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn add_peer(&self, app: usize, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let memory = fds.next().ok_or(io::ErrorKind::InvalidData)?;
        let size = rustix::fs::fstat(&memory)?.st_size as usize;
        if size < app_size(self.cpus.len()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.peers[app].map(&memory, false)?;
        let pipes = &self.pipes[app * self.cpus.len()..][..self.cpus.len()];
        for (pipe, fd) in pipes.iter().zip(fds) {
            let number = pipe.load(Ordering::Relaxed);
            match number {
                -1 => pipe.store(std::os::fd::IntoRawFd::into_raw_fd(fd), Ordering::Relaxed),
                _ => memory::replace_descriptor(number, &fd)?,
            }
        }
        self.mapped.fetch_or(1 << app, Ordering::SeqCst);
        Ok(())
    }

    /// Lets the descriptors of a peer that is gone stand for `/dev/null`: a worker may be about to write to one.
    fn hang_up(&self, app: usize) {
        let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
        for pipe in &self.pipes[app * self.cpus.len()..][..self.cpus.len()] {
            let number = pipe.load(Ordering::Relaxed);
            if number >= 0 {
                let _ = memory::replace_descriptor(number, &null);
            }
        }
    }
}

fn say(what: fmt::Arguments<'_>) {
    let text = format!("heddle: {what}\n");
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}
