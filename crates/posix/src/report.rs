//! Where threads block in the kernel without having said so, and what the runtime did: `heddle run --report`, at the
//! end and at SIGQUIT.
//!
//! A task that sleeps in the kernel outside this library's functions (in the C library's own locks and streams, or by a
//! system call in the program's code) holds its CPU until the runtime's ticker takes it over, a millisecond or two. The
//! report names these places. A task that does it again and again keeps its kernel thread from then on, as it would
//! have had one without Heddle, so that it costs the others no more time.

use crate::signals;
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_core::Ns;
use heddle_rt::raw::RawTask;
use heddle_sys::thread::Blocked;
use heddle_sys::{clock, signal};
use std::ffi::CStr;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A place at which tasks blocked unannounced.
struct Site {
    /// The address to which the system call returns; 0 for a free entry.
    at: AtomicUsize,
    number: AtomicI64,
    count: AtomicU64,
}

static SITES: [Site; 256] = [const {
    Site { at: AtomicUsize::new(0), number: AtomicI64::new(0), count: AtomicU64::new(0) }
}; 256];
/// Take-overs whose place is not known, or did not fit.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
/// How many threads have come to keep their kernel threads.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// A task's recent take-overs.
pub(crate) struct Losses {
    since: AtomicU64,
    count: AtomicU32,
    /// Waits in a row that this library has served since the last one.
    announced: AtomicU32,
}

/// So many take-overs within [`WITHIN`] make a task keep its thread.
const MANY: u32 = 3;
const WITHIN: Ns = Ns::from_secs(1);
/// So many waits in a row that are served here make it an ordinary task again.
const REFORMED: u32 = 64;

impl Losses {
    pub(crate) const fn new() -> Losses {
        Losses { since: AtomicU64::new(0), count: AtomicU32::new(0), announced: AtomicU32::new(0) }
    }

    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Counts a take-over. Returns whether there have been many of late.
    fn add(&self) -> bool {
        let now = clock::now();
        self.announced.store(0, Ordering::Relaxed);
        if now - Ns(self.since.load(Ordering::Relaxed)) > WITHIN {
            self.since.store(now.0, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1 >= MANY
    }

    /// Counts a wait that was served here. Returns whether the task is an ordinary one again.
    fn is_reformed(&self) -> bool {
        self.announced.fetch_add(1, Ordering::Relaxed) + 1 >= REFORMED
    }
}

/// Called when `task` has lost its CPU because it sleeps in the kernel, in `call` if that is known.
pub(crate) fn on_take_over(task: RawTask, call: Option<Blocked>) {
    match call {
        Some(call) => count(call.at, call.number),
        None => drop(ELSEWHERE.fetch_add(1, Ordering::Relaxed)),
    }
    if Thread::of(task).is_some_and(|thread| thread.losses.add()) && !task.keeps_thread() {
        KEPT.fetch_add(1, Ordering::Relaxed);
        task.keep_thread(true);
    }
}

fn count(at: usize, number: i64) {
    for site in &SITES {
        let claim = site.at.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() || claim == Err(at) {
            // A call that a signal has ended does not tell its number.
            if claim.is_ok() || number != Blocked::UNKNOWN {
                site.number.store(number, Ordering::Relaxed);
            }
            site.count.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    ELSEWHERE.fetch_add(1, Ordering::Relaxed);
}

/// Called in `task`, the caller, after a wait that was served here. If it keeps its thread, it now runs on one of the
/// runtime's CPUs: it leaves that, unless it has waited so often that it is an ordinary task again.
#[inline]
pub(crate) fn after_wait(task: RawTask) {
    if task.keeps_thread()
        && let Some(thread) = Thread::of(task)
    {
        resume_on_kept_thread(thread);
    }
}

#[cold]
fn resume_on_kept_thread(thread: &Thread) {
    if thread.losses.is_reformed() {
        thread.task.keep_thread(false);
    } else {
        heddle_rt::raw::leave_cpu();
    }
}

extern "C" fn print() {
    let text = text();
    // One write, so that the program's own words do not come in between.
    // SAFETY: initialised bytes.
    unsafe { syscall!(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}

/// Prints the report at the end of the process, and at each SIGQUIT that the program does not handle, if
/// `HEDDLE_PTHREAD_REPORT=1`. Called for each runtime: the child of a fork has a new one.
pub(crate) fn at_exit() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if std::env::var_os("HEDDLE_PTHREAD_REPORT").is_none_or(|value| value != "1") {
        return;
    }
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: a function of the right type; the library is never unloaded.
        unsafe { libc::atexit(print) };
    }
    // The thread runs no handlers of the program's. Without it, SIGQUIT does what it always does.
    let mask = signal::change_mask(libc::SIG_SETMASK, !(signal::bit(32) | signal::bit(33)));
    if heddle_rt::raw::kernel_thread("report", serve_quits).is_ok() {
        signals::actions::report_at_quit(true);
    }
    signal::change_mask(libc::SIG_SETMASK, mask);
}

/// How often SIGQUIT has asked for a report.
static QUITS: AtomicU32 = AtomicU32::new(0);

/// Prints a report soon, by another thread. For signal handlers.
pub(crate) fn on_quit() {
    QUITS.fetch_add(1, Ordering::SeqCst);
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a static word.
    unsafe { syscall!(libc::SYS_futex, QUITS.as_ptr(), wake, 1) };
}

/// The thread that prints reports: it may wait for the loader's lock, and until they are read.
fn serve_quits() {
    let mut printed = 0;
    loop {
        let asked = QUITS.load(Ordering::SeqCst);
        if asked != printed {
            printed = asked;
            print();
            continue;
        }
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a static word.
        unsafe { syscall!(libc::SYS_futex, QUITS.as_ptr(), wait, asked, 0) };
    }
}

/// In the child of a fork: there is nothing to report, and no thread that would.
pub(crate) fn forget() {
    QUITS.store(0, Ordering::SeqCst);
    signals::actions::report_at_quit(false);
}

fn text() -> String {
    let Ok(stats) = heddle_rt::stats() else { return String::new() };
    let policy = std::env::var("HEDDLE_POLICY").unwrap_or_else(|_| "work-stealing".into());
    let mut text = format!("\nheddle run: {policy}\n");
    let mut line = |what: &str, value: u64, note: &str| {
        let _ = writeln!(text, "  {what:<24}{value:>12}  {note}");
    };
    let first = u64::from(Thread::all().any(Thread::is_first));
    line("threads created", stats.spawned.saturating_sub(first), "");
    line("switches", stats.switches, "");
    line("preemptions", stats.preemptions, "");
    line("signals for them", stats.interrupts, "");
    if stats.probes != 0 {
        line("probes that were due", stats.probes, "");
    }
    line("take-overs", stats.takeovers, "of a CPU whose thread blocked unannounced");
    line("threads set aside", KEPT.load(Ordering::Relaxed), "which blocked so again and again");
    line("kernel threads", stats.kernel_threads as u64, "");
    let mut sites: Vec<&Site> =
        SITES.iter().filter(|site| site.at.load(Ordering::Acquire) != 0).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.count.load(Ordering::Relaxed)));
    if !sites.is_empty() {
        text.push_str("  unannounced blocking, most frequent first:\n");
    }
    for site in sites.iter().take(10) {
        let at = place(site.at.load(Ordering::Relaxed));
        let call = call_name(site.number.load(Ordering::Relaxed));
        let _ = writeln!(text, "  {:>12}  {call} in {at}", site.count.load(Ordering::Relaxed));
    }
    let elsewhere = ELSEWHERE.load(Ordering::Relaxed);
    if elsewhere > 0 {
        let _ = writeln!(text, "  {elsewhere:>12}  elsewhere");
    }
    text
}

/// Returns the object and the function in which the address lies.
fn place(at: usize) -> String {
    // SAFETY: all-zero is valid; the loader fills it. Its names stay valid as long as the object.
    let (object, function, offset) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(at as *const _, &mut info) == 0 {
            return format!("{at:#x}");
        }
        let text = |name: *const std::ffi::c_char| match name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(name).to_string_lossy().into_owned(),
        };
        let base = if info.dli_saddr.is_null() { info.dli_fbase } else { info.dli_saddr };
        (text(info.dli_fname), text(info.dli_sname), at - base as usize)
    };
    let file = object.rsplit('/').next().unwrap_or_default();
    match function.as_str() {
        "" => format!("{file}+{offset:#x}"),
        name => format!("{file} ({name}+{offset:#x})"),
    }
}

/// Returns the name of a system call that blocks, or its number.
fn call_name(number: i64) -> String {
    let name = match number {
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_poll => "poll",
        libc::SYS_futex => "futex",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_sendto => "sendto",
        libc::SYS_accept => "accept",
        libc::SYS_accept4 => "accept4",
        libc::SYS_connect => "connect",
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_epoll_pwait => "epoll_pwait",
        libc::SYS_select => "select",
        libc::SYS_pselect6 => "pselect",
        libc::SYS_ppoll => "ppoll",
        libc::SYS_nanosleep => "nanosleep",
        libc::SYS_clock_nanosleep => "clock_nanosleep",
        libc::SYS_fsync => "fsync",
        libc::SYS_fdatasync => "fdatasync",
        libc::SYS_openat => "openat",
        libc::SYS_wait4 => "wait4",
        libc::SYS_waitid => "waitid",
        libc::SYS_flock => "flock",
        libc::SYS_fcntl => "fcntl",
        libc::SYS_rt_sigtimedwait => "sigtimedwait",
        libc::SYS_io_uring_enter => "io_uring_enter",
        libc::SYS_io_getevents => "io_getevents",
        libc::SYS_mmap => "mmap",
        libc::SYS_munmap => "munmap",
        number => return format!("system call {number}"),
    };
    name.into()
}
