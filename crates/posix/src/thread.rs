//! Threads: their records, creation, end and joining.

use crate::cancel;
use crate::clock;
use crate::real::real;
use crate::report::Losses;
use crate::sched::Wishes;
use crate::wait::Attend;
use crate::{base, mutex, signals, start};
use heddle_core::{Class, Ns, TaskAttrs};
use heddle_rt::raw::{self, Caller, Entry, JoinLimit, NewTask, RawTask};
use heddle_sys::memory;
use libc::{pthread_attr_t, pthread_t, timespec};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// What this library knows of a thread that is a task. One for each block of the runtime's, made at its first use and
/// never freed: a stale `pthread_t` finds a record, perhaps of a later thread.
pub(crate) struct Thread {
    pub(crate) task: RawTask,
    /// A [`Life`].
    life: AtomicU8,
    /// What other threads ask of it: [`Thread::CANCEL`], [`Thread::SIGNAL`].
    attention: AtomicU32,
    /// Whether a request to cancel it is acted upon. The thread's own, as the next.
    pub(crate) cancel_enabled: AtomicBool,
    /// Whether a request is acted upon at once, and not at the next cancellation point.
    pub(crate) cancel_async: AtomicBool,
    result: AtomicPtr<c_void>,
    /// The robust mutexes that it holds.
    pub(crate) robust: Cell<mutex::RobustList>,
    pub(crate) wishes: Wishes,
    pub(crate) losses: Losses,
    /// The number that `gettid` returns.
    pub(crate) tid: AtomicU32,
    pub(crate) signals: signals::State,
    /// The record that was made before this one.
    next: AtomicPtr<Thread>,
}

// SAFETY: `robust` is used by the thread itself only.
unsafe impl Sync for Thread {}
// SAFETY: as above.
unsafe impl Send for Thread {}

/// Who may still ask for the end of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Life {
    /// The record's block serves no thread.
    None,
    Joinable,
    /// A thread waits for it, or has begun to.
    Joining,
    Detached,
}

/// The newest record.
static LAST: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// The number of threads that are tasks and have not ended.
static ALIVE: AtomicUsize = AtomicUsize::new(0);
/// Set when the program's first thread has left by `pthread_exit`: the last thread ends the process.
static MAIN_HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// Room for the signal frame and the block of thread-local variables, which the C library takes from a mapping of its
/// own, or from above the stack.
const EXTRA_STACK: usize = 16 << 10;

impl Thread {
    pub(crate) const CANCEL: u32 = 1;
    pub(crate) const SIGNAL: u32 = 2;

    /// Returns the calling thread's record, if it is a task.
    #[inline]
    pub(crate) fn current() -> Option<&'static Thread> {
        Thread::of(RawTask::current()?)
    }

    /// Returns the record of `task`, if this library made the task.
    #[inline]
    pub(crate) fn of(task: RawTask) -> Option<&'static Thread> {
        let at = task.extension().load(Ordering::Acquire).cast::<Thread>();
        // SAFETY: null, or a record, which is never freed.
        unsafe { at.as_ref() }
    }

    /// Returns the record of the live or unjoined thread `thread`, if it is a task.
    pub(crate) fn find(thread: pthread_t) -> Option<&'static Thread> {
        let is_known = |t: &&Thread| match t.life() {
            life if life == Life::None as u8 => false,
            life => life != Life::Detached as u8 || !t.task.has_ended(),
        };
        Registry::get().find(thread as usize).filter(is_known)
    }

    /// Returns the record for the block of `task`.
    fn for_block(task: RawTask) -> &'static Thread {
        if let Some(known) = Thread::of(task) {
            return known;
        }
        let thread: &'static Thread = Box::leak(Box::new(Thread {
            task,
            life: AtomicU8::new(Life::None as u8),
            attention: AtomicU32::new(0),
            cancel_enabled: AtomicBool::new(true),
            cancel_async: AtomicBool::new(false),
            result: AtomicPtr::new(ptr::null_mut()),
            robust: Cell::default(),
            wishes: Wishes::new(),
            losses: Losses::new(),
            tid: AtomicU32::new(0),
            signals: signals::State::new(),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        task.extension().store(ptr::from_ref(thread).cast_mut().cast(), Ordering::Release);
        Registry::get().add(thread);
        thread.link();
        thread
    }

    /// Puts a new record in front of the list of all.
    fn link(&'static self) {
        let at = ptr::from_ref(self).cast_mut();
        let mut last = LAST.load(Ordering::Acquire);
        loop {
            self.next.store(last, Ordering::Relaxed);
            match LAST.compare_exchange(last, at, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// Returns all records, also those that serve no thread at present.
    pub(crate) fn all() -> impl Iterator<Item = &'static Thread> {
        // SAFETY: null, or a record, which is never freed.
        let get = |at: &AtomicPtr<Thread>| unsafe { at.load(Ordering::Acquire).as_ref() };
        std::iter::successors(get(&LAST), move |thread| get(&thread.next))
    }

    /// Returns whether the record serves a thread that has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.life() != Life::None as u8 && !self.task.has_ended()
    }

    /// Prepares the record for a new thread on its block.
    fn begin(&self, life: Life) {
        self.attention.store(0, Ordering::Relaxed);
        self.cancel_enabled.store(true, Ordering::Relaxed);
        self.cancel_async.store(false, Ordering::Relaxed);
        self.result.store(ptr::null_mut(), Ordering::Relaxed);
        self.losses.reset();
        self.wishes.inherit(Thread::current());
        signals::begin(self);
        self.life.store(life as u8, Ordering::Release);
    }

    fn life(&self) -> u8 {
        self.life.load(Ordering::Acquire)
    }

    fn change_life(&self, from: Life, to: Life) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.life.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns the `pthread_t`.
    pub(crate) fn id(&self) -> pthread_t {
        self.task.thread() as pthread_t
    }

    /// Returns the number that `gettid` answers in this thread.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Asks `what` of the thread, which attends to it where it waits or when it next looks.
    pub(crate) fn ask(&'static self, what: u32) {
        self.attention.fetch_or(what, Ordering::SeqCst);
        self.task.wake();
        self.task.interrupt();
        signals::receiver::insist(self);
    }

    /// Takes back a request, for the thread itself. Returns whether it was there.
    pub(crate) fn take(&self, what: u32) -> bool {
        self.attention.load(Ordering::Relaxed) & what != 0
            && self.attention.fetch_and(!what, Ordering::AcqRel) & what != 0
    }

    /// Returns whether `what` is asked of it.
    pub(crate) fn is_asked(&self, what: u32) -> bool {
        self.attention.load(Ordering::Relaxed) & what != 0
    }

    /// Returns whether anything is asked of it that ends a wait of this kind.
    #[inline]
    pub(crate) fn must_attend(&self, to: Attend) -> bool {
        let asked = self.attention.load(Ordering::Relaxed);
        asked != 0
            && (asked & Thread::SIGNAL != 0
                || asked & Thread::CANCEL != 0
                    && self.cancel_enabled.load(Ordering::Relaxed)
                    && (to == Attend::Cancel || self.cancel_async.load(Ordering::Relaxed)))
    }
}

/// All records by thread pointer: a hash table that only grows.
struct Registry {
    slots: &'static [AtomicPtr<Thread>],
}

impl Registry {
    /// Twice the maximum number of tasks. Only the pages that are used cost memory.
    const SLOTS: usize = 1 << 21;

    fn get() -> &'static Registry {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        REGISTRY.get_or_init(|| {
            let memory = memory::reserve(Registry::SLOTS * size_of::<AtomicPtr<Thread>>());
            let base = memory.unwrap_or_else(|e| heddle_sys::abort(e));
            // SAFETY: fresh zeroed memory of this size, never given back; zero is a null pointer.
            let slots = unsafe { std::slice::from_raw_parts(base.cast(), Registry::SLOTS) };
            Registry { slots }
        })
    }

    fn probe(&self, fs: usize) -> impl Iterator<Item = &'static AtomicPtr<Thread>> {
        let hash = (fs as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let start = hash as usize % Registry::SLOTS;
        self.slots[start..].iter().chain(&self.slots[..start])
    }

    fn add(&self, thread: &'static Thread) {
        let at = ptr::from_ref(thread).cast_mut();
        let free = |slot: &&AtomicPtr<Thread>| {
            slot.compare_exchange(ptr::null_mut(), at, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let added = self.probe(thread.task.thread()).find(free);
        assert!(added.is_some(), "there are twice as many slots as tasks");
    }

    fn find(&self, fs: usize) -> Option<&'static Thread> {
        // SAFETY: null, or a record, which is never freed.
        let threads =
            self.probe(fs).map_while(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() });
        { threads }.find(|thread| thread.task.thread() == fs)
    }
}

/// An attribute's scheduling policy counts.
const PTHREAD_EXPLICIT_SCHED: c_int = 1;

/// What a program asks of a new thread.
struct ThreadRequest {
    stack: usize,
    life: Life,
    /// Only a kernel thread has it: a stack of the program's own, or a real-time policy.
    is_foreign: bool,
}

unsafe extern "C" {
    fn pthread_getattr_default_np(attr: *mut pthread_attr_t) -> c_int;
    fn pthread_attr_getdetachstate(attr: *const pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_attr_getstackaddr(attr: *const pthread_attr_t, at: *mut *mut c_void) -> c_int;
    fn pthread_attr_getinheritsched(attr: *const pthread_attr_t, inherit: *mut c_int) -> c_int;
    fn pthread_attr_getschedpolicy(attr: *const pthread_attr_t, policy: *mut c_int) -> c_int;
}

impl ThreadRequest {
    /// Reads `attr` by the public functions only.
    ///
    /// # Safety
    /// `attr` is null or initialised.
    unsafe fn of(attr: *const pthread_attr_t) -> ThreadRequest {
        let (mut stack, mut detached, mut inherits, mut policy) = (0, 0, 0, 0);
        let mut at = ptr::null_mut();
        if attr.is_null() {
            return ThreadRequest {
                stack: default_stack(),
                life: Life::Joinable,
                is_foreign: false,
            };
        }
        // SAFETY: the caller's attribute, and room for each answer.
        unsafe {
            libc::pthread_attr_getstacksize(attr, &mut stack);
            pthread_attr_getdetachstate(attr, &mut detached);
            pthread_attr_getstackaddr(attr, &mut at);
            pthread_attr_getinheritsched(attr, &mut inherits);
            pthread_attr_getschedpolicy(attr, &mut policy);
        }
        let life = match detached {
            libc::PTHREAD_CREATE_DETACHED => Life::Detached,
            _ => Life::Joinable,
        };
        // The address is the stack's end: for an attribute without a stack, the C library computes it from null.
        let has_stack = !at.is_null() && at as usize != stack;
        let is_real_time = inherits == PTHREAD_EXPLICIT_SCHED
            && matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR);
        ThreadRequest { stack, life, is_foreign: has_stack || is_real_time }
    }
}

/// Returns the stack size of threads created without attributes.
fn default_stack() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let mut size = 8 << 20;
        // SAFETY: the C library initialises the attribute.
        unsafe {
            let mut attr = std::mem::zeroed();
            if pthread_getattr_default_np(&mut attr) == 0 {
                libc::pthread_attr_getstacksize(&attr, &mut size);
                libc::pthread_attr_destroy(&mut attr);
            }
        }
        size
    })
}

/// What `pthread_create` does.
///
/// # Safety
/// POSIX's contract.
pub(crate) unsafe extern "C" fn create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    let request = unsafe { ThreadRequest::of(attr) };
    if Caller::here() == Caller::Runtime || start::is_starting() || request.is_foreign {
        // SAFETY: the caller's contract.
        return signals::with_own_mask(|| unsafe {
            raw::create_foreign_thread(thread, attr, entry, argument)
        });
    }
    start::runtime();
    let argument = argument as usize;
    let attrs = TaskAttrs::default();
    let run = move || {
        let thread = Thread::current().expect("`create` made the record");
        run(thread, entry, argument as *mut c_void);
    };
    let Ok(task) = NewTask::create(request.stack + EXTRA_STACK, attrs, run) else {
        return libc::EAGAIN;
    };
    let record = Thread::for_block(task.task());
    record.begin(request.life);
    // SAFETY: this is the thread's argument.
    unsafe { record.wishes.set_start(entry, argument as *mut c_void) };
    let class = record.wishes.class();
    if class != Class::LC {
        task.task().set_class(class);
    }
    ALIVE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's memory. Written before the thread can run.
    unsafe { thread.write(record.id()) };
    let detached = request.life == Life::Detached;
    let task = task.start();
    if detached {
        task.detach();
    }
    0
}

/// What a thread begins with.
struct First {
    entry: Entry,
    argument: *mut c_void,
}

/// Calls the start routine, after the handlers of signals that have come before.
unsafe extern "C-unwind" fn first(first: *mut c_void) -> *mut c_void {
    // SAFETY: `run` passes it, and stays.
    let First { entry, argument } = unsafe { first.cast::<First>().read() };
    let attend = || {
        if Thread::current().is_some_and(|thread| thread.is_asked(Thread::SIGNAL)) {
            let _ = cancel::attend(Attend::Signals);
        }
    };
    attend();
    // SAFETY: the same call, which may be left by unwinding.
    let entry: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void =
        unsafe { std::mem::transmute(entry) };
    // SAFETY: the start routine's contract is the program's.
    let result = unsafe { entry(argument) };
    // The senders of signals that have come by now may wait for the handlers.
    signals::receiver::before_end();
    attend();
    result
}

/// The life of a thread.
fn run(thread: &'static Thread, entry: Entry, argument: *mut c_void) {
    thread.tid.store(raw::renumber(), Ordering::Relaxed);
    let mut result = ptr::null_mut();
    let mut begin = First { entry, argument };
    // SAFETY: the same but for unwinding, which `call` allows.
    let entry: Entry = unsafe {
        std::mem::transmute(first as unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void)
    };
    // SAFETY: this is the thread's first call.
    if unsafe { base::call(entry, (&raw mut begin).cast(), &mut result) } == 0 {
        thread.result.store(result, Ordering::Release);
    }
    if RawTask::current().is_none() {
        // The child of a fork that the thread made: its only thread ends.
        // SAFETY: as the C library does.
        unsafe { libc::exit(0) };
    }
    // Neither cancelled nor interrupted from here on.
    thread.cancel_enabled.store(false, Ordering::Relaxed);
    raw::run_destructors();
    mutex::leave_robust(thread);
    signals::end(thread);
    reset_libc();
    if thread.life() == Life::Detached as u8 {
        thread.life.store(Life::None as u8, Ordering::Release);
    }
    one_ends();
}

/// glibc's LC_GLOBAL_LOCALE.
const GLOBAL_LOCALE: libc::locale_t = usize::MAX as libc::locale_t;

/// Leaves the C library's thread-local state as a new thread expects it: the descriptor serves another one next.
fn reset_libc() {
    crate::errno::set(0);
    // SAFETY: the global locale is never freed.
    unsafe {
        if libc::uselocale(ptr::null_mut()) != GLOBAL_LOCALE {
            libc::uselocale(GLOBAL_LOCALE);
        }
    }
}

/// In the child of a fork: there are no tasks, and the calling thread is no longer one.
pub(crate) fn forget_all() {
    Thread::all().for_each(|thread| thread.life.store(Life::None as u8, Ordering::Release));
    ALIVE.store(0, Ordering::Release);
    MAIN_HAS_LEFT.store(false, Ordering::Release);
}

/// Ends the process if the calling thread was its last.
fn one_ends() {
    if ALIVE.fetch_sub(1, Ordering::AcqRel) == 1 && MAIN_HAS_LEFT.load(Ordering::Acquire) {
        // SAFETY: as the C library does when the last thread ends.
        unsafe { libc::exit(0) };
    }
}

/// Ends the calling thread with `value`, after its cleanup handlers and C++ destructors.
pub(crate) fn exit(value: *mut c_void) -> ! {
    match Thread::current() {
        Some(thread) => {
            thread.cancel_enabled.store(false, Ordering::Relaxed);
            thread.result.store(value, Ordering::Release);
        }
        None => start::when_main_ends(|| {
            MAIN_HAS_LEFT.store(true, Ordering::Release);
            if ALIVE.load(Ordering::Acquire) == 0 {
                // SAFETY: as above.
                unsafe { libc::exit(0) };
            }
        }),
    }
    // SAFETY: the function has this type; a task unwinds to the frame in `base`.
    unsafe { real!(pthread_exit(value: *mut c_void) -> ()) }
    unreachable!("a thread does not come back from its end")
}

/// POSIX's `pthread_exit`.
///
/// # Safety
/// POSIX's contract: the caller's frames may be left.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    exit(value)
}

/// How long a join may last.
struct Patience {
    deadline: Option<Ns>,
}

impl JoinLimit for Patience {
    fn park(&self) -> bool {
        let thread = Thread::current();
        if thread.is_some_and(|thread| thread.must_attend(Attend::Cancel))
            || self.deadline.is_some_and(|at| at <= heddle_sys::clock::now())
        {
            return false;
        }
        raw::park(self.deadline);
        true
    }
}

/// Waits for the end of `thread` until `deadline` and stores what it returned.
///
/// # Errors
/// ESRCH, EDEADLK, EINVAL (detached, or another thread joins it), ETIMEDOUT, EBUSY (if it may not wait).
unsafe fn join(
    thread: pthread_t,
    value: *mut *mut c_void,
    deadline: Option<Ns>,
    may_wait: bool,
) -> Result<(), c_int> {
    let record = Thread::find(thread).ok_or(libc::ESRCH)?;
    if Thread::current().is_some_and(|own| ptr::eq(own, record)) {
        return Err(libc::EDEADLK);
    }
    if !may_wait && !record.task.has_ended() && record.life() == Life::Joinable as u8 {
        return Err(libc::EBUSY);
    }
    if !record.change_life(Life::Joinable, Life::Joining) {
        return Err(libc::EINVAL);
    }
    let limit = Patience { deadline };
    while !record.task.join(&limit) {
        let is_over = deadline.is_some_and(|at| at <= heddle_sys::clock::now());
        if is_over || cancel::is_requested() {
            record.life.store(Life::Joinable as u8, Ordering::Release);
        }
        if is_over && !cancel::is_requested() {
            return Err(libc::ETIMEDOUT);
        }
        // Returns after a signal's handler; does not return from a cancellation.
        cancel::attend(Attend::Cancel);
    }
    if !value.is_null() {
        // SAFETY: the caller's memory.
        unsafe { value.write(record.result.load(Ordering::Acquire)) };
    }
    record.life.store(Life::None as u8, Ordering::Release);
    record.task.recycle();
    Ok(())
}

/// Returns whether `thread` is, or was, a task of ours. A kernel thread is the C library's.
fn is_ours(thread: pthread_t) -> bool {
    Registry::get().find(thread as usize).is_some()
}

/// Converts to an error number.
pub(crate) fn number(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Waits in a task for the end of a kernel thread, of which nothing tells us: looks every now and then.
///
/// # Safety
/// POSIX's contract of `pthread_join`.
unsafe fn join_foreign(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    let mut pause = Ns::from_us(50);
    loop {
        cancel::point();
        // SAFETY: the caller's contract.
        let error = unsafe {
            real!(pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int)
        };
        if error != libc::EBUSY {
            return error;
        }
        raw::park(Some(Ns(heddle_sys::clock::now().0.saturating_add(pause.0))));
        pause = (pause * 2).min(Ns::from_ms(2));
    }
}

/// POSIX's `pthread_join`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return match Caller::here() {
                Caller::Task => join_foreign(thread, value),
                _ => real!(pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int),
            };
        }
        cancel::point();
        number(join(thread, value, None, true))
    }
}

/// glibc's `pthread_tryjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_tryjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return real!(pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int);
        }
        number(join(thread, value, None, false))
    }
}

/// glibc's `pthread_clockjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_clockjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return real!(pthread_clockjoin_np(
                thread: pthread_t,
                value: *mut *mut c_void,
                clock: libc::clockid_t,
                time: *const timespec,
            ) -> c_int);
        }
        cancel::point();
        let deadline = match time.as_ref().map(|time| clock::deadline(clock, time)).transpose() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        number(join(thread, value, deadline, true))
    }
}

/// glibc's `pthread_timedjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_clockjoin_np(thread, value, libc::CLOCK_REALTIME, time) }
}

/// POSIX's `pthread_detach`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> c_int {
    if !is_ours(thread) {
        // SAFETY: the caller's contract.
        return unsafe { real!(pthread_detach(thread: pthread_t) -> c_int) };
    }
    let Some(record) = Thread::find(thread) else { return libc::ESRCH };
    if !record.change_life(Life::Joinable, Life::Detached) {
        return libc::EINVAL;
    }
    record.task.detach();
    0
}
