//! How the kernel schedules a thread, of any process: its scheduling policy, its nice value, its CPUs.
//!
//! Changing other users' threads, or making any thread real-time, needs `CAP_SYS_NICE` (or a limit `RLIMIT_RTPRIO`).

use std::io;

/// The kernel's scheduling policies (`sched(7)`), by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Class {
    /// `SCHED_OTHER`: the default.
    Other = 0,
    /// `SCHED_FIFO`: before all ordinary threads, until it sleeps.
    Fifo = 1,
    /// `SCHED_RR`: the same by turns.
    RoundRobin = 2,
    /// `SCHED_BATCH`: ordinary, of long stretches.
    Batch = 3,
    /// `SCHED_IDLE`: where nobody else wants to run.
    Idle = 5,
    /// `SCHED_DEADLINE`: by deadlines, before all others.
    Deadline = 6,
    /// `SCHED_EXT`: by the BPF scheduler that is loaded.
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

    /// The class of the kernel's number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Class> {
        Self::ALL.into_iter().find(|class| *class as u32 == number)
    }
}

/// How a thread is scheduled, but for its nice value, which [`set`] leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Its policy.
    pub class: Class,
    /// 1 to 99 where it is real-time, else 0.
    pub priority: u32,
    /// Whether its children start as ordinary threads if it is real-time, and with nice 0 if it is below that.
    pub reset_on_fork: bool,
}

impl Scheduling {
    /// What threads are unless told otherwise.
    pub const ORDINARY: Scheduling =
        Scheduling { class: Class::Other, priority: 0, reset_on_fork: false };

    /// Runs where nobody else wants to.
    pub const IDLE: Scheduling =
        Scheduling { class: Class::Idle, priority: 0, reset_on_fork: false };

    /// `SCHED_FIFO` of `priority`, its children ordinary.
    #[must_use]
    pub const fn fifo(priority: u32) -> Scheduling {
        Scheduling { class: Class::Fifo, priority, reset_on_fork: true }
    }

    /// The number by which the system calls name the policy, with its flag.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.class as u32 | if self.reset_on_fork { RESET_ON_FORK } else { 0 }
    }

    /// The opposite of [`Scheduling::number`]; `None` for a policy that is unknown.
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

/// How `tid` is scheduled (0: the calling thread).
///
/// # Errors
/// `ESRCH` where it is gone; a policy that Heddle does not know.
pub fn of(tid: u32) -> io::Result<Scheduling> {
    // The C library's wrappers of these four calls may be empty (musl), so they are made directly.
    // SAFETY: a system call on numbers.
    let number = check(unsafe { libc::syscall(libc::SYS_sched_getscheduler, pid(tid)) })? as u32;
    let mut priority = 0_i32;
    // SAFETY: the structure is one integer, which the kernel fills.
    check(unsafe { libc::syscall(libc::SYS_sched_getparam, pid(tid), &raw mut priority) })?;
    Scheduling::from_number(number, priority.cast_unsigned())
        .ok_or_else(|| io::Error::other(format!("a scheduling policy {number} that is unknown")))
}

/// Changes how `tid` is scheduled (0: the calling thread). Its nice value stays.
///
/// # Errors
/// `ESRCH` where it is gone, `EPERM` without the privilege, `EINVAL` for a priority that there is not, and for deadlines.
pub fn set(tid: u32, to: Scheduling) -> io::Result<()> {
    let (number, priority) = (to.number(), to.priority.cast_signed());
    // SAFETY: the structure is one integer, which the kernel reads.
    check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, pid(tid), number, &raw const priority)
    })
    .map(drop)
}

/// The nice value of `tid` (0: the calling thread).
///
/// # Errors
/// `ESRCH` where it is gone.
pub fn nice(tid: u32) -> io::Result<i32> {
    // The call itself returns 1 to 40, so that no value looks like an error.
    // SAFETY: a system call on numbers.
    check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })
        .map(|value| 20 - value as i32)
}

/// Changes the nice value of `tid` (0: the calling thread).
///
/// # Errors
/// `ESRCH`, and `EACCES` without the privilege.
pub fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: a system call on numbers.
    check(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, nice) }).map(drop)
}

/// A mask of CPUs: bit `n % 64` of word `n / 64`.
pub type Mask = [u64; 16];

/// The CPUs on which `tid` may run (0: the calling thread).
///
/// # Errors
/// `ESRCH` where it is gone, `EINVAL` on machines of more than 1024 CPUs.
pub fn mask(tid: u32) -> io::Result<Mask> {
    let mut mask: Mask = [0; 16];
    let size = size_of_val(&mask);
    // SAFETY: the kernel writes `size` bytes at most.
    check(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, pid(tid), size, mask.as_mut_ptr())
    })?;
    Ok(mask)
}

/// Confines `tid` (0: the calling thread) to `mask`.
///
/// # Errors
/// `ESRCH` where it is gone, `EPERM` without the privilege, `EINVAL` where none of the CPUs is there, online and allowed by its
/// cgroup.
pub fn set_mask(tid: u32, mask: &Mask) -> io::Result<()> {
    let size = size_of_val(mask);
    // SAFETY: the kernel reads `size` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, pid(tid), size, mask.as_ptr()) })
        .map(drop)
}

/// Bounds for how long the threads of this process may run with real-time priority without sleeping: the kernel then sends
/// `SIGXCPU` and, at the limit, `SIGKILL` (`RLIMIT_RTTIME`). For tests and for agents that sleep.
///
/// # Errors
/// `EPERM` where the limit was lower.
pub fn limit_realtime(us: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: us, rlim_max: us };
    // SAFETY: a valid structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) }.into()).map(drop)
}

/// Keeps all memory of this process, present and future, from being paged out.
///
/// # Errors
/// `ENOMEM` beyond `RLIMIT_MEMLOCK`, `EPERM`.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: a system call on numbers.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` on a thread of its own, whose scheduling nobody minds.
    fn apart(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn an_idle_thread_is_and_keeps_its_nice_value() {
        apart(|| {
            set_nice(0, 7).unwrap();
            set(0, Scheduling::IDLE).unwrap();
            assert_eq!(of(0).unwrap(), Scheduling::IDLE);
            assert_eq!(of(crate::thread::id()).unwrap(), Scheduling::IDLE);
            assert_eq!(nice(0).unwrap(), 7);
        });
    }

    #[test]
    fn a_real_time_thread_needs_the_privilege() {
        apart(|| match set(0, Scheduling::fifo(1)) {
            Ok(()) => assert_eq!(of(0).unwrap(), Scheduling::fifo(1)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        });
        apart(|| {
            let none = set(0, Scheduling { priority: 200, ..Scheduling::fifo(1) });
            assert_eq!(none.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        });
    }

    #[test]
    fn a_mask_is_what_it_was_set_to_and_never_empty() {
        apart(|| {
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
    fn a_thread_that_is_gone_is_gone() {
        let gone = std::thread::scope(|scope| scope.spawn(crate::thread::id).join().unwrap());
        for error in [of(gone).map(drop), set_nice(gone, 0), mask(gone).map(drop)] {
            assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
    }

    #[test]
    fn numbers_of_policies_come_back() {
        for class in Class::ALL {
            for reset_on_fork in [false, true] {
                let one = Scheduling { class, priority: 3, reset_on_fork };
                assert_eq!(Scheduling::from_number(one.number(), 3), Some(one));
            }
        }
        assert_eq!(Scheduling::from_number(4, 0), None);
    }
}
