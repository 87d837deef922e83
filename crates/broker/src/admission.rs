//! Who becomes a member.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use heddle_share::Kind;
use heddle_share::abi::{APPS, VERSION};
use heddle_sys::scheduling::{self, Mask};
use heddle_sys::socket::peer_process;
use heddle_sys::stat::Stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cpus;
use crate::realtime::threads;

/// The most characters of a name.
const NAME: usize = 40;

/// Threads of a process whose CPUs are looked at.
const THREADS: usize = 256;

/// What a process asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub version: u32,
    pub class: u32,
    pub pid: u32,
    pub uid: u32,
}

/// What there is: who is a member, and who may be.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// The members' processes by their numbers.
    pub members: &'a [Option<u32>; APPS],
    /// The most members.
    pub most: usize,
    /// The number given last.
    pub last: usize,
    /// The broker's user.
    pub owner: u32,
    /// Whether other users may join.
    pub is_open: bool,
}

/// Returns the number that a process gets, and what it is.
///
/// # Errors
/// Why it is refused.
pub fn decide(request: &Request, room: &Room<'_>) -> Result<(usize, Kind), String> {
    let Request { version, class, pid, uid, .. } = *request;
    if version != VERSION {
        return Err(format!(
            "your program speaks version {version} of the protocol and this broker version {VERSION}: use programs and \
             a broker of one release"
        ));
    }
    if pid == 0 {
        return Err(
            "your process is in a container whose processes this broker cannot see: run the \
                    broker in it, too"
                .into(),
        );
    }
    if uid != 0 && uid != room.owner && !room.is_open {
        return Err(format!("only user {} and root may join", room.owner));
    }
    let kind = match class {
        0 => Kind::Critical,
        1 => Kind::BestEffort,
        _ => {
            return Err(format!("there is no class {class}; 0 is latency-critical, 1 best-effort"));
        }
    };
    let members = room.members.iter().flatten().count();
    if members >= room.most {
        return Err(format!("the share has {members} applications, and has room for no more"));
    }
    // The next one, so that a number is not given again at once: members may still have it mapped.
    let free = (1..=APPS).map(|step| (room.last + step) % APPS);
    let mut free = free.filter(|&app| room.members[app].is_none());
    free.next().map(|app| (app, kind)).ok_or_else(|| "there is no room".into())
}

/// Returns a name as it is shown.
pub fn printable_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME).collect();
    match name.trim() {
        "" => "unnamed".into(),
        name => name.into(),
    }
}

/// Returns a descriptor of the process that connected.
///
/// # Errors
/// Why it is refused.
pub fn process(socket: BorrowedFd<'_>, pid: u32) -> Result<OwnedFd, String> {
    let by_number = || {
        let pid = Pid::from_raw(pid.cast_signed()).ok_or(rustix::io::Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty())
    };
    // Older kernels do not return it for a connection.
    let process = peer_process(socket).or_else(|_| Ok(by_number()?));
    let process = process.map_err(|error: std::io::Error| {
        format!("cannot watch process {pid}, which connected ({error}): it must not end before it has joined")
    })?;
    match has_ended(&process) {
        true => Err(format!("process {pid}, which connected, has ended")),
        false => Ok(process),
    }
}

/// Returns whether a process has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut ready = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut ready, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Returns whether a process has ended, or is about to: it closes its descriptors before.
pub fn is_ending(process: &OwnedFd, pid: u32) -> bool {
    has_ended(process) || Stat::of(pid).is_none_or(|stat| stat.is_exiting())
}

/// Checks that a process may run on the shared CPUs: some of its threads may be bound to one already. Not on machines
/// with more CPUs than a mask has.
///
/// # Errors
/// A sentence that names what keeps it from them.
pub fn check_cpus(pid: u32, shared: &[u32]) -> Result<(), String> {
    let mut all = Mask::default();
    for tid in threads(pid).into_iter().take(THREADS) {
        let mask = match scheduling::mask(tid) {
            Ok(mask) => mask,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Ok(()),
            // The thread has ended meanwhile.
            Err(_) => continue,
        };
        all.iter_mut().zip(mask).for_each(|(all, more)| *all |= more);
        if cpus::missing(shared, &all).is_empty() {
            return Ok(());
        }
    }
    Err(format!(
        "process {pid} may not run on CPUs {} of the share: widen its affinity (taskset -cp), or the cpuset of its \
         cgroup {} (cpuset.cpus)",
        cpus::format(&cpus::missing(shared, &all)),
        cgroup(pid)
    ))
}

/// Checks that no cgroup limits a process to less than the shared CPUs, by `quota`: the kernel does not hold real-time
/// threads to it.
///
/// # Errors
/// A sentence that names the limit.
pub fn check_quota(pid: u32, shared: &[u32], quota: Option<f64>) -> Result<(), String> {
    match quota {
        Some(quota) if quota < shared.len() as f64 => Err(format!(
            "a cgroup limits process {pid} to {quota:.2} CPUs (cpu.max), and real-time threads would exceed that: lift \
             the limit, or set realtime = \"never\" in the file"
        )),
        _ => Ok(()),
    }
}

fn cgroup(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let in_v1 = text.lines().find_map(|line| line.split_once(":cpuset:"));
    let in_v2 = text.lines().find_map(|line| line.split_once("0::"));
    in_v1.or(in_v2).map_or_else(|| "(unknown)".into(), |(_, path)| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request { version: VERSION, class: 0, pid: 7, uid: 5 };

    fn room(members: &[Option<u32>; APPS]) -> Room<'_> {
        Room { members, most: APPS, last: APPS - 1, owner: 5, is_open: false }
    }

    #[test]
    fn the_first_gets_number_zero_and_numbers_are_not_reused_at_once() {
        let mut members = [None; APPS];
        assert_eq!(decide(&REQUEST, &room(&members)), Ok((0, Kind::Critical)));
        let best_effort = Request { class: 1, ..REQUEST };
        assert_eq!(
            decide(&best_effort, &Room { last: 3, ..room(&members) }),
            Ok((4, Kind::BestEffort))
        );
        members[0] = Some(1);
        assert_eq!(decide(&REQUEST, &room(&members)).unwrap().0, 1);
    }

    #[test]
    fn refusals_say_why() {
        let mut members = [None; APPS];
        members[3] = Some(8);
        let refused = |request: Request, room: Room<'_>| decide(&request, &room).unwrap_err();
        let room = room(&members);
        for (error, says) in [
            (refused(Request { version: 9, ..REQUEST }, room), "version 9"),
            (refused(Request { class: 2, ..REQUEST }, room), "no class 2"),
            (refused(Request { pid: 0, ..REQUEST }, room), "container"),
            (refused(Request { uid: 6, ..REQUEST }, room), "only user 5 and root"),
            (refused(REQUEST, Room { most: 1, ..room }), "no more"),
        ] {
            assert!(error.contains(says), "{error}");
        }
        assert!(decide(&Request { uid: 6, ..REQUEST }, &Room { is_open: true, ..room }).is_ok());
        assert!(decide(&Request { uid: 0, ..REQUEST }, &room).is_ok());
    }

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!(printable_name("a\x1b[2Jb\n"), "a[2Jb");
        assert_eq!(printable_name(&"x".repeat(99)).len(), NAME);
        assert_eq!(printable_name("\n"), "unnamed");
    }

    #[test]
    fn a_process_with_a_lower_quota_is_refused() {
        assert_eq!(check_quota(7, &[1, 2], None), Ok(()));
        assert_eq!(check_quota(7, &[1, 2], Some(2.0)), Ok(()));
        let error = check_quota(7, &[1, 2], Some(1.5)).unwrap_err();
        assert!(error.contains("process 7 to 1.50 CPUs") && error.contains("never"), "{error}");
    }

    #[test]
    fn a_process_that_may_not_run_there_is_refused_with_its_cgroup() {
        let own = std::process::id();
        let mask = scheduling::mask(0).unwrap();
        let has = |cpu: u32| cpus::missing(&[cpu], &mask).is_empty();
        let allowed: Vec<u32> = (0..1024).filter(|&cpu| has(cpu)).collect();
        assert_eq!(check_cpus(own, &allowed), Ok(()));
        let error = check_cpus(own, &[4000]).unwrap_err();
        assert!(error.contains("CPUs 4000") && error.contains("cgroup /"), "{error}");
    }
}
