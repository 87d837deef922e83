//! Real-time priorities: whether the broker may grant them, and how it takes them away.

use std::fs;
use std::io;
use std::thread;

use heddle_core::Ns;
use heddle_share::abi;
use heddle_sys::scheduling::{self, Class, Scheduling};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cpus;

/// For how long a real-time thread of a member may run without sleeping, microseconds: then it gets a signal, and at
/// the second its process ends.
const SOFT: u64 = 500_000;
const HARD: u64 = 1_000_000;

/// The most threads of a process that are looked at.
const MOST_THREADS: usize = 4096;

/// How often the threads of a process are looked at, in case it starts new ones meanwhile.
const LOOKS: usize = 4;

/// A thread, and how it was scheduled before.
pub type Demoted = (u32, Scheduling);

/// Checks that this process may make its threads and those of members real-time, at `priority` and the next ones.
///
/// # Errors
/// What is missing.
pub fn check(priority: u32) -> Result<(), String> {
    let raise = || scheduling::set(0, Scheduling::fifo(abi::broker_priority(priority)));
    let raised = thread::scope(|scope| scope.spawn(raise).join()).unwrap_or(Ok(()));
    raised.map_err(|error| {
        format!(
            "cannot make threads real-time ({error}); it takes root, CAP_SYS_NICE or `ulimit -r`"
        )
    })?;
    let most = abi::helper_priority(priority, 0);
    match may_let_others(most) || has_sys_nice() {
        true => Ok(()),
        false => Err(format!(
            "cannot let members be real-time; it takes root, CAP_SYS_RESOURCE, or for each of them a limit of {most} \
             (`ulimit -r`)"
        )),
    }
}

/// Returns whether this process may raise the limit of members, or has one that is high enough, as members then have.
fn may_let_others(priority: u32) -> bool {
    let limit = getrlimit(Resource::Rtprio);
    let Some(most) = limit.maximum else { return true };
    if most >= priority.into() {
        return true;
    }
    // Raised and put back: the limit in use stays what it was.
    let raised = Rlimit { maximum: Some(priority.into()), ..limit };
    let may = setrlimit(Resource::Rtprio, raised).is_ok();
    let _ = setrlimit(Resource::Rtprio, limit);
    may
}

/// Returns whether this process has the privilege to be real-time whatever the limit: then members that have it too
/// need none. The others are refused one by one if their limit cannot be raised.
fn has_sys_nice() -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set >> CAP_SYS_NICE & 1 == 1)
}

/// Gives the calling thread, the broker's, a priority above those of members.
///
/// # Errors
/// The system's.
pub fn raise_own(priority: u32) -> io::Result<()> {
    scheduling::set(0, Scheduling::fifo(abi::broker_priority(priority)))
}

/// Lets the process of a member of this rank be real-time, within bounds, in a share whose lowest priority is
/// `priority`. None of its threads may come before those of a better rank.
///
/// # Errors
/// The system's.
pub fn grant(pid: u32, priority: u32, rank: u32) -> io::Result<()> {
    scheduling::limit_realtime_of(pid, abi::helper_priority(priority, rank), SOFT, HARD)
}

/// Lets a process start no more real-time threads.
pub fn forbid(pid: u32) {
    // One that has ended meanwhile has no limits.
    let _ = scheduling::limit_realtime_of(pid, 0, SOFT, HARD);
}

/// Makes all real-time threads of a process ordinary, for good.
pub fn revoke(pid: u32) {
    forbid(pid);
    demote(pid, Scheduling::ORDINARY);
}

/// Gives all real-time threads of a process this scheduling; returns them.
pub fn demote(pid: u32, to: Scheduling) -> Vec<Demoted> {
    let is_realtime = |class| matches!(class, Class::Fifo | Class::RoundRobin);
    let mut demoted = Vec::new();
    for _ in 0..LOOKS {
        let before = demoted.len();
        for tid in threads(pid) {
            let Ok(was) = scheduling::of(tid) else { continue };
            if is_realtime(was.class) && scheduling::set(tid, to).is_ok() {
                demoted.push((tid, was));
            }
        }
        if demoted.len() == before {
            break;
        }
    }
    demoted
}

/// Gives idle threads of a process their scheduling back; some may have it already.
pub fn restore(pid: u32, demoted: &[Demoted]) {
    let there = threads(pid);
    for &(tid, was) in demoted.iter().filter(|(tid, _)| there.contains(tid)) {
        if scheduling::of(tid).is_ok_and(|now| now.class == Class::Idle) {
            let _ = scheduling::set(tid, was);
        }
    }
}

/// Returns the CPU time of the threads of a process that may run on this CPU; `None` if the kernel does not say.
pub fn time_on(pid: u32, cpu: u32) -> Option<Ns> {
    let may_run = |&tid: &u32| {
        scheduling::mask(tid).is_ok_and(|mask| cpus::missing(&[cpu], &mask).is_empty())
    };
    let time = |tid| time_of(pid, tid);
    let mut times = threads(pid).into_iter().filter(may_run).filter_map(time).peekable();
    times.peek()?;
    Some(Ns(times.map(|time| time.0).fold(0, u64::saturating_add)))
}

/// Returns the CPU time of a thread of a process; `None` if the kernel does not say.
pub fn time_of(pid: u32, tid: u32) -> Option<Ns> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Ns)
}

/// Returns the threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.take(MOST_THREADS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_test_support::Running;
    use std::process::{Command, Stdio};

    fn child() -> Running {
        Running::start(Command::new("cat").stdin(Stdio::piped()))
    }

    #[test]
    fn a_real_time_thread_is_demoted_and_gets_its_priority_back() {
        let child = child();
        if check(1).is_err() || scheduling::set(child.pid(), Scheduling::fifo(1)).is_err() {
            eprintln!("skipped: no right to make threads real-time");
            return;
        }
        let demoted = demote(child.pid(), Scheduling::IDLE);
        assert_eq!(demoted, [(child.pid(), Scheduling::fifo(1))]);
        assert_eq!(scheduling::of(child.pid()).unwrap(), Scheduling::IDLE);
        restore(child.pid(), &demoted);
        assert_eq!(scheduling::of(child.pid()).unwrap(), Scheduling::fifo(1));
        revoke(child.pid());
        assert_eq!(scheduling::of(child.pid()).unwrap(), Scheduling::ORDINARY);
    }
}
