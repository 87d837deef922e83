//! Threads identified by more than their numbers, which the kernel reuses once a thread has ended.
//!
//! The system calls that change a thread's scheduling take only its number. So a caller checks before and after the
//! call that the number is still that of the intended thread. If the thread has ended in between, the call may have
//! hit another one, and what it did there is undone.

use heddle_sys::scheduling::{self, Class, Mask, Scheduling};
use heddle_sys::stat::Stat;
use std::fs;
use std::io;

/// The identity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its process.
    pub tgid: u32,
    /// Its start time, in the kernel's ticks since boot.
    pub began: u64,
}

impl Identity {
    /// Returns the identity of the thread that has the number `tid` now; none if there is none, or it is ending.
    pub(crate) fn of(tid: u32) -> Option<Identity> {
        let stat = Stat::of(tid).filter(|stat| !stat.is_exiting())?;
        Some(Identity { tgid: tgid(tid)?, began: stat.began })
    }
}

/// Whether the thread with the number `tid` has ended, and is not collected.
pub(crate) fn is_over(tid: u32) -> bool {
    Stat::of(tid).is_some_and(|stat| stat.has_ended())
}

fn tgid(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// A change of a thread's scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Policy(Scheduling),
    Cpus(Mask),
    Nice(i32),
}

impl Change {
    /// Makes the change of thread `tid`, if `is_meant` says that it still is the intended one. If it is gone, there
    /// is nothing to do. Another thread that has its number by then is restored as far as possible: to the settings
    /// of the thread that made it.
    ///
    /// # Errors
    /// The kernel's error, except for a thread that is gone.
    pub(crate) fn make(self, tid: u32, is_meant: impl Fn() -> bool) -> io::Result<()> {
        self.make_or_undo(tid, is_meant, |maker| self.like(maker))
    }

    /// As [`Change::make`]; `inherited` returns what children of a thread inherit.
    ///
    /// # Errors
    /// The kernel's error, except for a thread that is gone.
    pub(crate) fn make_or_undo(
        self,
        tid: u32,
        is_meant: impl Fn() -> bool,
        inherited: impl FnOnce(u32) -> io::Result<Change>,
    ) -> io::Result<()> {
        self.make_by(tid, is_meant, inherited, || self.call(tid))
    }

    fn make_by(
        self,
        tid: u32,
        is_meant: impl Fn() -> bool,
        inherited: impl FnOnce(u32) -> io::Result<Change>,
        call: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if !is_meant() {
            return Ok(());
        }
        let made = call();
        if !is_meant() {
            if made.is_ok() {
                self.undo(tid, inherited);
            }
            return Ok(());
        }
        made
    }

    fn call(self, tid: u32) -> io::Result<()> {
        match self {
            Change::Policy(scheduling) => scheduling::set(tid, scheduling),
            Change::Cpus(mask) => scheduling::set_mask(tid, &mask),
            Change::Nice(nice) => scheduling::set_nice(tid, nice),
        }
    }

    /// Returns the same kind of setting as thread `tid` has it.
    ///
    /// # Errors
    /// `ESRCH` if the thread is gone.
    pub(crate) fn like(self, tid: u32) -> io::Result<Change> {
        Ok(match self {
            Change::Policy(_) => Change::Policy(scheduling::of(tid)?),
            Change::Cpus(_) => Change::Cpus(scheduling::mask(tid)?),
            Change::Nice(_) => Change::Nice(scheduling::nice(tid)?),
        })
    }

    /// Returns what a child inherits from a thread with this setting. A thread that an agent has made real-time has
    /// children that are not.
    pub(crate) fn of_child(self) -> Change {
        match self {
            Change::Policy(Scheduling {
                class: Class::Fifo | Class::RoundRobin,
                reset_on_fork: true,
                ..
            }) => Change::Policy(Scheduling::ORDINARY),
            Change::Policy(scheduling) => {
                Change::Policy(Scheduling { reset_on_fork: false, ..scheduling })
            }
            other => other,
        }
    }

    /// Whether `now` can be the result of this change. The kernel leaves out CPUs that are offline or that a cgroup
    /// forbids.
    fn may_have_made(self, now: Change) -> bool {
        match (self, now) {
            (Change::Cpus(set), Change::Cpus(now)) => {
                set.iter().zip(now).all(|(set, now)| now & !set == 0)
            }
            _ => self == now,
        }
    }

    /// Restores the thread that has the number to the settings that it inherited: of its process's first thread, or
    /// of its parent.
    fn undo(self, tid: u32, inherited: impl FnOnce(u32) -> io::Result<Change>) {
        let Some(maker) = maker(tid) else { return };
        if self.like(tid).is_ok_and(|now| self.may_have_made(now))
            && let Ok(before) = inherited(maker)
        {
            // If this fails, the thread has ended.
            let _ = before.of_child().call(tid);
        }
    }
}

fn maker(tid: u32) -> Option<u32> {
    match tgid(tid)? {
        first if first != tid => Some(first),
        _ => Stat::of(tid).map(|stat| stat.parent).filter(|parent| *parent != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    /// Starts a process with the number `pid`, which was another's; none if the machine takes it first.
    fn with_number(pid: u32) -> Option<Child> {
        for _ in 0..200 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            if child.id() == pid {
                return Some(child);
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        None
    }

    fn end(child: &mut Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_number_names_a_thread_only_with_its_process_and_its_beginning() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let first = Identity::of(child.id()).unwrap();
        assert_eq!(Identity::of(child.id()), Some(first));
        child.kill().unwrap();
        until_over(child.id());
        assert_eq!(
            Identity::of(child.id()),
            None,
            "not when it is over, although it was not collected"
        );
        child.wait().unwrap();
        assert_eq!(Identity::of(child.id()), None);
        let me = heddle_sys::thread::id();
        assert_eq!(Identity::of(me).map(|me| me.tgid), Some(std::process::id()));
    }

    fn until_over(pid: u32) {
        while Stat::of(pid).is_some_and(|stat| !stat.has_ended()) {
            std::thread::yield_now();
        }
    }

    /// The thread ends between check and call, and its number is reused at once.
    #[test]
    fn a_thread_with_a_reused_number_stays_as_it_was() {
        let fifo = Scheduling::fifo(1);
        let mut one: Mask = scheduling::mask(0).unwrap();
        let last = (0..1024).rfind(|cpu| one[cpu / 64] >> (cpu % 64) & 1 == 1).unwrap();
        one = [0; 16];
        one[last / 64] = 1 << (last % 64);
        for change in [Change::Policy(fifo), Change::Cpus(one), Change::Nice(7)] {
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            let (pid, who) = (child.id(), Identity::of(child.id()));
            // So that the other process does not begin within the same tick.
            std::thread::sleep(std::time::Duration::from_millis(30));
            let mut successor = None;
            let call = || {
                end(&mut child);
                successor = with_number(pid);
                change.call(pid)
            };
            let like = |maker| change.like(maker);
            let made = change.make_by(pid, || Identity::of(pid) == who, like, call);
            let Some(mut successor) = successor else {
                eprintln!("skipped: choosing a process's number takes root");
                end(&mut child);
                return;
            };
            let now = change.like(pid);
            end(&mut successor);
            made.unwrap();
            assert_eq!(now.unwrap(), change.like(std::process::id()).unwrap());
        }
    }

    #[test]
    fn cpus_are_undone_although_the_kernel_has_left_out_some() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let all = scheduling::mask(std::process::id()).unwrap();
        let first = all.iter().position(|word| *word != 0).unwrap();
        let mut one: Mask = [0; 16];
        one[first] = 1 << all[first].trailing_zeros();
        scheduling::set_mask(child.id(), &one).unwrap();
        let now = |tid| scheduling::mask(tid).unwrap();
        let mut other: Mask = [0; 16];
        other[15] = 1 << 63;
        let undo = |change: Change| change.undo(child.id(), |maker| change.like(maker));
        undo(Change::Cpus(other));
        let own_choice = now(child.id());
        undo(Change::Cpus([u64::MAX; 16]));
        let undone = now(child.id());
        end(&mut child);
        assert_eq!(own_choice, one, "that cannot be ours");
        assert_eq!(undone, all);
    }

    /// Its parent may be a thread that an agent has made real-time.
    #[test]
    fn no_thread_becomes_real_time_because_its_parent_is() {
        let script = "sleep 1000 & echo $!; wait";
        let mut command = Command::new("sh");
        let mut maker = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(maker.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let (tid, fifo) = (said.trim().parse().unwrap(), Scheduling::fifo(1));
        if scheduling::set(maker.id(), fifo).is_ok() {
            Change::Policy(fifo).call(tid).unwrap();
            Change::Policy(fifo).undo(tid, |maker| Change::Policy(fifo).like(maker));
        }
        let now = scheduling::of(tid);
        end(&mut maker);
        Command::new("kill").arg(tid.to_string()).status().unwrap();
        assert_eq!(now.unwrap(), Scheduling::ORDINARY);
    }

    #[test]
    fn a_thread_that_is_no_longer_meant_is_not_changed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        Change::Nice(5).make(child.id(), || false).unwrap();
        assert_eq!(scheduling::nice(child.id()).unwrap(), scheduling::nice(0).unwrap());
        Change::Nice(5).make(child.id(), || true).unwrap();
        assert_eq!(scheduling::nice(child.id()).unwrap(), 5);
        end(&mut child);
    }
}
