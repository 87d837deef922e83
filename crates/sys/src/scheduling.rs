//! How the kernel schedules a thread of any process: its scheduling policy, nice value and CPUs.
//!
//! To change other users' threads, or to make a thread real-time, a process needs `CAP_SYS_NICE` (for the latter, the
//! limit `RLIMIT_RTPRIO` suffices).

use heddle_core::Ns;
use std::io;

/// The kernel's scheduling policies (`sched(7)`), by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Class {
    /// `SCHED_OTHER`: the default.
    Other = 0,
    /// `SCHED_FIFO`: runs before all ordinary threads, until it sleeps.
    Fifo = 1,
    /// `SCHED_RR`: like `SCHED_FIFO`, but threads of one priority take turns.
    RoundRobin = 2,
    /// `SCHED_BATCH`: ordinary, for long computations.
    Batch = 3,
    /// `SCHED_IDLE`: runs if no other thread can.
    Idle = 5,
    /// `SCHED_DEADLINE`: scheduled by deadlines, before all others.
    Deadline = 6,
    /// `SCHED_EXT`: scheduled by the loaded BPF scheduler.
    Ext = 7,
}

impl Class {
    const ALL: [Class; 7] = [
        Class::Other,
        Class::Fifo,
        Class::RoundRobin,
        Class::Batch,
        Class::Idle,
        Class::Deadline,
        Class::Ext,
    ];

    /// Returns the class with the kernel's number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Class> {
        Self::ALL.into_iter().find(|class| *class as u32 == number)
    }
}

/// How a thread is scheduled, except for its nice value, which [`set`] does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Its scheduling policy.
    pub class: Class,
    /// 1 to 99 if it is real-time, else 0.
    pub priority: u32,
    /// Whether its children start as ordinary threads if it is real-time, and with nice 0 if its own is negative.
    pub reset_on_fork: bool,
}

impl Scheduling {
    /// The default for threads.
    pub const ORDINARY: Scheduling =
        Scheduling { class: Class::Other, priority: 0, reset_on_fork: false };

    /// `SCHED_IDLE`: runs if no other thread can.
    pub const IDLE: Scheduling =
        Scheduling { class: Class::Idle, priority: 0, reset_on_fork: false };

    /// Returns `SCHED_FIFO` at `priority`, with ordinary children.
    #[must_use]
    pub const fn fifo(priority: u32) -> Scheduling {
        Scheduling { class: Class::Fifo, priority, reset_on_fork: true }
    }

    /// Returns the number of the policy in system calls, including the flag.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.class as u32 | if self.reset_on_fork { RESET_ON_FORK } else { 0 }
    }

    /// Reverses [`Scheduling::number`]; `None` if the policy is unknown.
    #[must_use]
    pub fn from_number(number: u32, priority: u32) -> Option<Scheduling> {
        let class = Class::from_number(number & !RESET_ON_FORK)?;
        Some(Scheduling { class, priority, reset_on_fork: number & RESET_ON_FORK != 0 })
    }
}

const RESET_ON_FORK: u32 = 0x4000_0000;

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn pid(tid: u32) -> i32 {
    tid.cast_signed()
}

/// Returns how `tid` (0: the calling thread) is scheduled.
///
/// # Errors
/// `ESRCH` if it is gone; fails if Heddle does not know its policy.
pub fn of(tid: u32) -> io::Result<Scheduling> {
    // The C library's wrappers of these four calls may be stubs (musl), so the calls are made directly.
    // SAFETY: a system call on numbers.
    let number = check(unsafe { libc::syscall(libc::SYS_sched_getscheduler, pid(tid)) })? as u32;
    let mut priority = 0_i32;
    // SAFETY: the structure is one integer, which the kernel fills.
    check(unsafe { libc::syscall(libc::SYS_sched_getparam, pid(tid), &raw mut priority) })?;
    Scheduling::from_number(number, priority.cast_unsigned()).ok_or_else(|| unknown(number))
}

/// Changes how `tid` (0: the calling thread) is scheduled. Its nice value stays the same.
///
/// # Errors
/// `ESRCH` if it is gone, `EPERM` without the privilege, `EINVAL` for an invalid priority and for `SCHED_DEADLINE`.
pub fn set(tid: u32, to: Scheduling) -> io::Result<()> {
    let (number, priority) = (to.number(), to.priority.cast_signed());
    // SAFETY: the structure is one integer, which the kernel reads.
    check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, pid(tid), number, &raw const priority)
    })
    .map(drop)
}

/// Returns the nice value of `tid` (0: the calling thread).
///
/// # Errors
/// `ESRCH` if it is gone.
pub fn nice(tid: u32) -> io::Result<i32> {
    // The system call returns 1 to 40, so that no value looks like an error.
    // SAFETY: a system call on numbers.
    check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })
        .map(|value| 20 - value as i32)
}

/// Changes the nice value of `tid` (0: the calling thread).
///
/// # Errors
/// `ESRCH` if it is gone, `EACCES` without the privilege.
pub fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: a system call on numbers.
    check(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, nice) }).map(drop)
}

/// Everything that the kernel's fair scheduler knows about a thread: how it is scheduled, its nice value and its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its scheduling policy.
    pub scheduling: Scheduling,
    /// Its nice value, -20 to 19.
    pub nice: i32,
    /// How long it runs at a time (since Linux 6.12; ignored before): zero for the kernel's default, else 100 us to
    /// 100 ms.
    pub slice: Ns,
}

/// Returns the attributes of `tid` (0: the calling thread). For a thread with the default slice, this is not zero but
/// the kernel's value: [`default_slice`].
///
/// # Errors
/// `ESRCH` if it is gone; fails if Heddle does not know its policy.
pub fn attributes(tid: u32) -> io::Result<Attributes> {
    let attr = raw_attributes(tid)?;
    let reset_on_fork = attr.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0;
    let class = Class::from_number(attr.sched_policy).ok_or_else(|| unknown(attr.sched_policy))?;
    let scheduling = Scheduling { class, priority: attr.sched_priority, reset_on_fork };
    let is_fair = matches!(class, Class::Other | Class::Batch);
    let slice = if is_fair { Ns(attr.sched_runtime) } else { Ns::ZERO };
    Ok(Attributes { scheduling, nice: attr.sched_nice, slice })
}

/// Changes the attributes of `tid` (0: the calling thread). An idle thread keeps its previous nice value.
///
/// # Errors
/// `ESRCH` if it is gone, `EPERM` without `CAP_SYS_NICE` (to lower a nice value, or to leave the idle policy).
pub fn set_attributes(tid: u32, to: Attributes) -> io::Result<()> {
    // SAFETY: the structure is all integers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { core::mem::zeroed() };
    attr.size = size_of_val(&attr) as u32;
    attr.sched_policy = to.scheduling.class as u32;
    attr.sched_flags = match to.scheduling.reset_on_fork {
        true => libc::SCHED_FLAG_RESET_ON_FORK as u64,
        false => 0,
    };
    attr.sched_nice = to.nice;
    attr.sched_priority = to.scheduling.priority;
    attr.sched_runtime = to.slice.0;
    set_raw_attributes(tid, &attr)
}

/// Returns the slice that the kernel gives to threads that request none, as [`attributes`] returns it; zero before
/// Linux 6.12.
///
/// # Errors
/// Fails if no thread can be created.
pub fn default_slice() -> io::Result<Ns> {
    let ask = || {
        let own = attributes(0)?;
        set_attributes(0, Attributes { slice: Ns::ZERO, ..own })?;
        Ok(attributes(0)?.slice)
    };
    // On a separate thread, so that the caller's attributes stay the same.
    let asking = std::thread::Builder::new().spawn(ask)?;
    asking.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

pub(crate) fn raw_attributes(tid: u32) -> io::Result<libc::sched_attr> {
    // SAFETY: the structure is all integers, of which the kernel fills at most `size` bytes.
    unsafe {
        let mut attr: libc::sched_attr = core::mem::zeroed();
        let size = size_of_val(&attr) as u32;
        check(libc::syscall(libc::SYS_sched_getattr, pid(tid), &raw mut attr, size, 0))?;
        Ok(attr)
    }
}

pub(crate) fn set_raw_attributes(tid: u32, attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the structure is all integers, of which the kernel reads as many bytes as its `size` field says.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, pid(tid), &raw const *attr, 0) })
        .map(drop)
}

fn unknown(policy: u32) -> io::Error {
    io::Error::other(format!("unknown scheduling policy: {policy}"))
}

/// A mask of CPUs: bit `n % 64` of word `n / 64`.
pub type Mask = [u64; 16];

/// Returns the CPUs on which `tid` (0: the calling thread) may run.
///
/// # Errors
/// `ESRCH` if it is gone, `EINVAL` on machines with more than 1024 CPUs.
pub fn mask(tid: u32) -> io::Result<Mask> {
    let mut mask: Mask = [0; 16];
    let size = size_of_val(&mask);
    // SAFETY: the kernel writes `size` bytes at most.
    check(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, pid(tid), size, mask.as_mut_ptr())
    })?;
    Ok(mask)
}

/// Restricts `tid` (0: the calling thread) to `mask`.
///
/// # Errors
/// `ESRCH` if it is gone, `EPERM` without the privilege, `EINVAL` if none of the CPUs is present, online and allowed by
/// its cgroup.
pub fn set_mask(tid: u32, mask: &Mask) -> io::Result<()> {
    let size = size_of_val(mask);
    // SAFETY: the kernel reads `size` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, pid(tid), size, mask.as_ptr()) })
        .map(drop)
}

/// Limits how long the threads of this process may run with real-time priority without sleeping: at the limit, the
/// kernel sends `SIGKILL` (`RLIMIT_RTTIME`). For tests and for agents that sleep.
///
/// # Errors
/// `EPERM` if the limit was lower.
pub fn limit_realtime(us: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: us, rlim_max: us };
    // SAFETY: a valid structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) }.into()).map(drop)
}

/// Changes the real-time priority of the calling thread, which is real-time. About 0.5 us; allocates nothing. Returns
/// false if the kernel refuses.
pub fn set_own_priority(priority: u32) -> bool {
    let args = [0, (&raw const priority) as usize, 0, 0, 0, 0];
    // SAFETY: the structure is one integer, which the kernel reads.
    unsafe { crate::syscall::call(libc::SYS_sched_setparam, args) == 0 }
}

/// Lets other real-time threads of the caller's priority run first, if any can.
pub fn yield_to_equals() {
    // SAFETY: no arguments.
    unsafe { crate::syscall::call(libc::SYS_sched_yield, [0; 6]) };
}

/// Makes `fd`, the reading end of a pipe, send `signal` to the thread `tid` of this process when any process writes.
///
/// # Errors
/// The system's.
pub fn signal_on_input(fd: impl std::os::fd::AsFd, tid: u32, signal: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    /// `struct f_owner_ex` and `F_OWNER_TID` of fcntl(2).
    #[repr(C)]
    struct Owner {
        kind: i32,
        pid: i32,
    }
    const F_SETOWN_EX: i32 = 15;
    const F_SETSIG: i32 = 10;
    let fd = fd.as_fd().as_raw_fd();
    let owner = Owner { kind: 0, pid: pid(tid) };
    // SAFETY: calls on a descriptor and numbers, and a structure that the kernel reads.
    unsafe {
        check(libc::fcntl(fd, F_SETOWN_EX, &raw const owner).into())?;
        check(libc::fcntl(fd, F_SETSIG, signal).into())?;
        check(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC).into()).map(drop)
    }
}

/// Allows another process to give its threads real-time priorities up to `priority`, and limits for how long one of
/// them may run without sleeping, microseconds: at `soft` it gets SIGXCPU, at `hard` SIGKILL.
///
/// # Errors
/// `EPERM` without the privilege, which to allow is `CAP_SYS_RESOURCE`, unless the process has `CAP_SYS_NICE` itself.
pub fn limit_realtime_of(process: u32, priority: u32, soft: u64, hard: u64) -> io::Result<()> {
    let set = |resource, current, maximum| {
        let limit = libc::rlimit { rlim_cur: current, rlim_max: maximum };
        // SAFETY: a valid structure, which the kernel reads.
        let result =
            unsafe { libc::prlimit(pid(process), resource, &limit, core::ptr::null_mut()) };
        check(result.into()).map(drop)
    };
    set(libc::RLIMIT_RTTIME, soft, hard)?;
    let allowed = set(libc::RLIMIT_RTPRIO, priority.into(), priority.into());
    allowed.or_else(|error| if may_be_realtime(process) { Ok(()) } else { Err(error) })
}

/// Returns whether a process has the privilege to give its threads real-time priorities.
fn may_be_realtime(process: u32) -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    capabilities.is_some_and(|all| all >> CAP_SYS_NICE & 1 == 1)
}

/// Prevents all present and future memory of this process from being paged out.
///
/// # Errors
/// `ENOMEM` beyond `RLIMIT_MEMLOCK`; `EPERM` if that is 0 and the process lacks the privilege.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: a system call on numbers.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` on a separate thread, whose scheduling may change.
    fn on_own_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn a_thread_made_idle_keeps_its_nice_value() {
        on_own_thread(|| {
            set_nice(0, 7).unwrap();
            set(0, Scheduling::IDLE).unwrap();
            assert_eq!(of(0).unwrap(), Scheduling::IDLE);
            assert_eq!(of(crate::thread::id()).unwrap(), Scheduling::IDLE);
            assert_eq!(nice(0).unwrap(), 7);
        });
    }

    #[test]
    fn attributes_read_back_as_set() {
        on_own_thread(|| {
            let own = attributes(0).unwrap();
            assert_eq!((own.scheduling, own.nice), (Scheduling::ORDINARY, nice(0).unwrap()));
            let other = Attributes { nice: own.nice + 3, slice: Ns::from_ms(1), ..own };
            set_attributes(0, other).unwrap();
            let found = attributes(0).unwrap();
            assert_eq!((found.scheduling, found.nice), (other.scheduling, other.nice));
            // Before Linux 6.12 a thread has no slice of its own.
            assert!([Ns::ZERO, other.slice].contains(&found.slice), "{found:?}");
            set_attributes(0, Attributes { scheduling: Scheduling::IDLE, ..other }).unwrap();
            let idle = attributes(0).unwrap();
            assert_eq!((idle.scheduling, idle.nice), (Scheduling::IDLE, other.nice));
        });
        assert_eq!(attributes(u32::MAX >> 2).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn the_default_slice_is_returned_whatever_the_caller_has() {
        on_own_thread(|| {
            let before = default_slice().unwrap();
            set_attributes(0, Attributes { slice: Ns::from_ms(50), ..attributes(0).unwrap() })
                .unwrap();
            assert_eq!(default_slice().unwrap(), before);
            assert!(before < Ns::from_ms(50));
        });
    }

    #[test]
    fn real_time_priority_needs_the_privilege() {
        on_own_thread(|| match set(0, Scheduling::fifo(1)) {
            Ok(()) => assert_eq!(of(0).unwrap(), Scheduling::fifo(1)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        });
        on_own_thread(|| {
            let result = set(0, Scheduling { priority: 200, ..Scheduling::fifo(1) });
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        });
    }

    #[test]
    fn a_mask_reads_back_as_set_and_an_empty_one_is_refused() {
        on_own_thread(|| {
            let all = mask(0).unwrap();
            let first = (0..1024).find(|cpu| all[cpu / 64] >> (cpu % 64) & 1 == 1).unwrap();
            let mut one: Mask = [0; 16];
            one[first / 64] = 1 << (first % 64);
            set_mask(0, &one).unwrap();
            assert_eq!(mask(0).unwrap(), one);
            let error = set_mask(0, &[0; 16]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            set_mask(0, &all).unwrap();
        });
    }

    #[test]
    fn calls_on_a_thread_that_has_ended_fail() {
        let gone = std::thread::scope(|scope| scope.spawn(crate::thread::id).join().unwrap());
        for error in [of(gone).map(drop), set_nice(gone, 0), mask(gone).map(drop)] {
            assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
    }

    #[test]
    fn policy_numbers_convert_both_ways() {
        for class in Class::ALL {
            for reset_on_fork in [false, true] {
                let one = Scheduling { class, priority: 3, reset_on_fork };
                assert_eq!(Scheduling::from_number(one.number(), 3), Some(one));
            }
        }
        assert_eq!(Scheduling::from_number(4, 0), None);
    }
}
