//! Kernel threads: names, CPUs, states. How the kernel schedules them is in [`crate::scheduling`].

use crate::scheduling;
use heddle_core::Ns;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Returns the id of the calling kernel thread.
pub fn id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Names the calling thread; the kernel truncates the name to 15 bytes.
pub fn set_name(name: &core::ffi::CStr) {
    // SAFETY: the kernel reads up to the zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Returns the CPU on which the calling thread runs now, by the system's number. About 20 ns.
pub fn current_cpu() -> u32 {
    // SAFETY: no arguments; it cannot fail with a C library newer than 2.6.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Sends `signal` to the kernel thread `tid` of this process. Returns false if it is gone.
pub fn signal(tid: u32, signal: i32) -> bool {
    // SAFETY: a system call on numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) == 0 }
}

/// Returns whether process `tgid` has a thread `tid`, even one that has ended but was not collected. One system call,
/// which sends nothing.
pub fn is_in(tid: u32, tgid: u32) -> bool {
    // SAFETY: a system call on numbers; signal 0 only checks.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, 0) } == 0;
    // Asking requires no right to send.
    sent || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// A set of CPUs on which a thread may run.
#[derive(Clone, Copy)]
pub struct CpuMask(libc::cpu_set_t);

impl CpuMask {
    /// Returns the CPUs of the calling thread.
    ///
    /// # Errors
    /// The system's.
    pub fn current() -> io::Result<CpuMask> {
        // SAFETY: all-zero is an empty set; the kernel fills it.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            // The C library's function is one that a program linked with the runtime replaces.
            let args = [0, size_of_val(&set), (&raw mut set) as usize, 0, 0, 0];
            match crate::syscall::call(libc::SYS_sched_getaffinity, args) {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error as i32)),
                _ => Ok(CpuMask(set)),
            }
        }
    }

    /// Returns the set of these CPUs, by the system's numbers.
    pub fn of(cpus: &[u32]) -> CpuMask {
        // SAFETY: all-zero is an empty set; numbers beyond its size are ignored.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as u32) {
                libc::CPU_SET(cpu as usize, &mut set);
            }
            CpuMask(set)
        }
    }

    /// Restricts the calling thread to them.
    ///
    /// # Errors
    /// The system's, if none of the CPUs exists or is allowed.
    pub fn apply(&self) -> io::Result<()> {
        self.apply_to(0)
    }

    /// Restricts the thread `tid` (0: the calling one) to them.
    ///
    /// # Errors
    /// As for [`CpuMask::apply`]; `ESRCH` if the thread is gone.
    pub fn apply_to(&self, tid: u32) -> io::Result<()> {
        // SAFETY: a valid set.
        if unsafe { libc::sched_setaffinity(tid as i32, size_of_val(&self.0), &self.0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the kernel's form: a bit for each CPU.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: plain words without padding.
        unsafe { core::slice::from_raw_parts((&raw const self.0).cast(), size_of_val(&self.0)) }
    }

    /// Returns the CPUs, by the system's numbers.
    pub fn cpus(&self) -> Vec<u32> {
        let all = 0..libc::CPU_SETSIZE as usize;
        // SAFETY: numbers within the set.
        all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) }).map(|cpu| cpu as u32).collect()
    }
}

/// The CPUs that a thread may use, as they were: dropped in that thread, it allows them again.
#[derive(Debug)]
pub struct SavedAffinity(Vec<u32>);

impl SavedAffinity {
    /// Notes the CPUs that the calling thread may use.
    ///
    /// # Errors
    /// The system's.
    pub fn save() -> io::Result<SavedAffinity> {
        affinity().map(SavedAffinity)
    }
}

impl Drop for SavedAffinity {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = pin(&self.0);
    }
}

/// Returns the CPUs on which the calling thread may run, by the system's numbers.
///
/// # Errors
/// The system's.
pub fn affinity() -> io::Result<Vec<u32>> {
    CpuMask::current().map(|mask| mask.cpus())
}

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// The system's, if none of the CPUs exists or is allowed.
pub fn pin(cpus: &[u32]) -> io::Result<()> {
    CpuMask::of(cpus).apply()
}

/// Returns whether the kernel thread `tid` of this process sleeps in the kernel, as opposed to running or waiting for a
/// CPU. Reads /proc: about 10 us, and allocates nothing. Returns false if it cannot tell.
pub fn is_asleep(tid: u32) -> bool {
    let mut stat = [0u8; 256];
    matches!(state_in(read_proc(tid, "stat", &mut stat)), Some(b'S' | b'D'))
}

/// Returns whether the kernel thread `tid`, of any process, runs or waits for a CPU. Like [`is_asleep`], it reads /proc
/// and allocates nothing. Returns false if it cannot tell.
pub fn is_runnable(tid: u32) -> bool {
    let (mut path, mut stat) = ([0u8; 32], [0u8; 256]);
    let _ = write!(&mut path[..], "/proc/{tid}/stat");
    state_in(read_file(&path, &mut stat)) == Some(b'R')
}

/// Returns the state in a thread's `stat`.
fn state_in(stat: &[u8]) -> Option<u8> {
    // The name may contain anything, so the state is what follows the last parenthesis.
    let name_ends = stat.windows(2).rposition(|two| two == b") ")?;
    stat.get(name_ends + 2).copied()
}

/// Returns the address of the futex on which the kernel thread `tid` of this process sleeps, as a thread does that
/// waits for a lock of the C library or of Rust's. Like [`is_asleep`], it reads /proc and allocates nothing. Returns
/// `None` if it cannot tell.
pub fn awaited_futex(tid: u32) -> Option<usize> {
    let call = blocked_in(tid)?;
    (call.number == libc::SYS_futex).then_some(call.argument)
}

/// A system call in which a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The call's number, or [`Blocked::UNKNOWN`].
    pub number: libc::c_long,
    /// Its first argument.
    pub argument: usize,
    /// The address to which it returns.
    pub at: usize,
}

impl Blocked {
    /// Stands for the number of a call that a signal has ended.
    pub const UNKNOWN: libc::c_long = -1;
}

/// Returns the system call in which the kernel thread `tid` of this process sleeps. Like [`is_asleep`], it reads /proc
/// and allocates nothing. Returns `None` if it cannot tell, or the thread runs.
pub fn blocked_in(tid: u32) -> Option<Blocked> {
    let mut call = [0u8; 256];
    // The number, six arguments, the stack pointer and the program counter; "running" if there is no call.
    let call = core::str::from_utf8(read_proc(tid, "syscall", &mut call)).ok()?;
    let mut words = call.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let hexadecimal = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let argument = hexadecimal(words.next()?)?;
    let at = words.last().and_then(hexadecimal)?;
    Some(Blocked { number, argument, at })
}

/// Returns the contents of the file `name` for the thread `tid` of this process, as much as fits into `room`; nothing
/// if the thread is gone.
fn read_proc<'a>(tid: u32, name: &str, room: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0u8; 40];
    let _ = write!(&mut path[..], "/proc/self/task/{tid}/{name}");
    read_file(&path, room)
}

/// Returns the contents of the file at `path`, which a zero ends, as much as fits into `room`; nothing if that fails.
fn read_file<'a>(path: &[u8], room: &'a mut [u8]) -> &'a [u8] {
    let path = core::ffi::CStr::from_bytes_until_nul(path).unwrap_or_default();
    let file = std::fs::File::open(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let read = file.and_then(|mut file| file.read(room)).unwrap_or(0);
    &room[..read]
}

/// Makes timed sleeps of the calling thread end within microseconds instead of the usual 50 us of slack, and asks the
/// scheduler to run it at once when it wakes: by a nice value of -19 if that is allowed, and by the shortest slice.
/// Priority is not enough: since Linux 6.12 a thread that shares the CPU keeps it for the rest of its slice of some
/// milliseconds unless the thread that wakes has a shorter one.
pub fn make_punctual() {
    // SAFETY: a system call on numbers, which may fail.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, id(), -19) };
    make_prompt();
}

/// Like [`make_punctual`], at the thread's current nice value: its share of the CPU stays the same.
pub fn make_prompt() {
    set_timer_slack(Some(Ns(1)));
    ask_for_slice(SHORTEST_SLICE);
}

/// Sets by how much the kernel may prolong timed sleeps of the calling thread; `None` restores the thread's initial
/// value, usually 50 us.
pub fn set_timer_slack(slack: Option<Ns>) {
    // Zero means the default.
    let slack = slack.map_or(0, |slack| slack.0.max(1));
    // SAFETY: a system call on numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
}

/// How soon the kernel runs a thread that wakes: what [`make_punctual`] changes, and a thread inherits from its
/// creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promptness {
    nice: i32,
    slack_ns: i32,
    slice_ns: u64,
}

impl Promptness {
    /// Returns that of the calling thread.
    pub fn of_caller() -> Promptness {
        Promptness {
            nice: scheduling::nice(0).unwrap_or(0),
            // SAFETY: a system call without arguments.
            slack_ns: unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) },
            slice_ns: scheduling::raw_attributes(0).map_or(0, |attr| attr.sched_runtime),
        }
    }

    /// Applies it to the calling thread, as far as the kernel permits.
    pub fn adopt(self) {
        let _ = scheduling::set_nice(0, self.nice);
        // SAFETY: a system call on numbers, which may fail.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack_ns) };
        ask_for_slice(self.slice_ns);
    }
}

/// The minimum that the kernel grants.
const SHORTEST_SLICE: u64 = 100_000;

/// Requests slices of `ns` for the calling thread. Before Linux 6.12 the kernel refuses, or accepts without effect.
fn ask_for_slice(ns: u64) {
    if let Ok(mut attr) = scheduling::raw_attributes(0) {
        attr.sched_runtime = ns;
        let _ = scheduling::set_raw_attributes(0, &attr);
    }
}

/// Sleeps for `ns` or until a signal arrives.
pub fn sleep(ns: heddle_core::Ns) {
    let ts = crate::futex::timespec(ns);
    // SAFETY: a valid time, no remainder wanted.
    unsafe { libc::nanosleep(&ts, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_its_own_process_and_in_no_other_and_gone_when_it_has_ended() {
        let me = std::process::id();
        let ended = std::thread::spawn(id).join().unwrap();
        assert_eq!((is_in(id(), me), is_in(id(), 1), is_in(1, 1)), (true, false, true));
        while is_in(ended, me) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_waits_is_asleep_and_this_one_is_not() {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let (id_tx, id_rx) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            id_tx.send(id()).unwrap();
            let _ = rx.recv();
        });
        let other = id_rx.recv().unwrap();
        while !is_asleep(other) {
            std::thread::yield_now();
        }
        assert!(!is_asleep(id()));
        drop(tx);
        thread.join().unwrap();
        assert!(!is_asleep(other), "gone is not asleep");
    }

    #[test]
    fn the_futex_on_which_a_thread_sleeps_is_found() {
        let word = core::sync::atomic::AtomicU32::new(0);
        let (id_tx, id_rx) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                id_tx.send(id()).unwrap();
                while word.load(core::sync::atomic::Ordering::SeqCst) == 0 {
                    crate::futex::wait(&word, 0, None);
                }
            });
            let other = id_rx.recv().unwrap();
            while awaited_futex(other) != Some(word.as_ptr() as usize) {
                std::thread::yield_now();
            }
            assert_eq!(awaited_futex(id()), None, "it computes");
            word.store(1, core::sync::atomic::Ordering::SeqCst);
            crate::futex::wake(&word, 1);
        });
    }

    #[test]
    fn a_thread_can_be_made_as_prompt_as_another_was() {
        let ordinary = Promptness::of_caller();
        let (punctual, again) = std::thread::spawn(move || {
            make_punctual();
            let punctual = Promptness::of_caller();
            ordinary.adopt();
            (punctual, Promptness::of_caller())
        })
        .join()
        .unwrap();
        assert_ne!(punctual, ordinary);
        assert_eq!(again, ordinary);
    }

    #[test]
    fn a_saved_affinity_is_restored_when_it_is_dropped() {
        let allowed = affinity().unwrap();
        let saved = SavedAffinity::save().unwrap();
        pin(&allowed[..1]).unwrap();
        assert_eq!(affinity().unwrap(), allowed[..1]);
        drop(saved);
        assert_eq!(affinity().unwrap(), allowed);
    }

    #[test]
    fn pinning_to_a_cpu_that_is_not_there_fails() {
        assert!(pin(&[1023]).is_err());
        let all = affinity().unwrap();
        pin(&all).unwrap();
        assert_eq!(affinity().unwrap(), all);
    }
}
