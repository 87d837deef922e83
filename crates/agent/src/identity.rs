//! Threads that are meant by more than their numbers, which the kernel gives to others once a thread has ended.
//!
//! The system calls that change how a thread is scheduled only take numbers. So who makes one knows the thread to be the one that is meant
//! before and after; where it has ended in between, the call may have hit a stranger, and what it did to the stranger is undone.

use heddle_sys::scheduling::{self, Class, Mask, Scheduling};
use std::fs;
use std::io;

/// In the kernel's flags of a thread: it ends.
const ENDS: u64 = 0x4;

/// Who a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its process.
    pub tgid: u32,
    /// When it began, in the kernel's ticks since boot.
    pub began: u64,
}

impl Identity {
    /// Of the thread that has the number `tid` now; none where nobody has it, or it ends.
    pub(crate) fn of(tid: u32) -> Option<Identity> {
        let fields = stat(tid)?;
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        if ended(&fields) || field(6)? & ENDS != 0 {
            return None;
        }
        Some(Identity { tgid: tgid(tid)?, began: field(19)? })
    }
}

/// Whether the thread that has the number `tid` has ended, and is not collected.
pub(crate) fn is_over(tid: u32) -> bool {
    stat(tid).is_some_and(|fields| ended(&fields))
}

fn ended(fields: &[String]) -> bool {
    matches!(fields.first().map(String::as_str), Some("Z" | "X" | "x"))
}

/// The fields from the state on: what is before may hold anything, up to the last parenthesis.
fn stat(tid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split_whitespace().map(str::to_owned).collect())
}

fn tgid(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// A change of how a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Policy(Scheduling),
    Cpus(Mask),
    Nice(i32),
}

impl Change {
    /// Makes it of thread `tid`, for as long as that `is_meant`; then it is gone, and that is all right. A stranger who has its number by
    /// then is as before, as far as that can be known: like who made him.
    ///
    /// # Errors
    /// The kernel's, but for a thread that is gone.
    pub(crate) fn make(self, tid: u32, is_meant: impl Fn() -> bool) -> io::Result<()> {
        self.make_or_undo(tid, is_meant, |maker| self.like(maker))
    }

    /// The same, where `inherited` says what children of a thread have.
    ///
    /// # Errors
    /// The kernel's, but for a thread that is gone.
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

    /// The same kind of thing as it is of another thread, or as that one's children have it.
    ///
    /// # Errors
    /// `ESRCH` where that one is gone.
    pub(crate) fn like(self, tid: u32) -> io::Result<Change> {
        Ok(match self {
            Change::Policy(_) => Change::Policy(scheduling::of(tid)?),
            Change::Cpus(_) => Change::Cpus(scheduling::mask(tid)?),
            Change::Nice(_) => Change::Nice(scheduling::nice(tid)?),
        })
    }

    /// What a child gets from a thread that has this. A thread that was made real-time by an agent has children that are not.
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

    /// Whether `now` can be what came of it. Of CPUs the kernel takes those away that are off, or that a cgroup forbids.
    fn may_have_made(self, now: Change) -> bool {
        match (self, now) {
            (Change::Cpus(set), Change::Cpus(now)) => {
                set.iter().zip(now).all(|(set, now)| now & !set == 0)
            }
            _ => self == now,
        }
    }

    /// Makes whoever has the number like the one from whom he has how he is scheduled: his process's first thread, or its parent.
    fn undo(self, tid: u32, inherited: impl FnOnce(u32) -> io::Result<Change>) {
        let Some(maker) = maker(tid) else { return };
        if self.like(tid).is_ok_and(|now| self.may_have_made(now))
            && let Ok(before) = inherited(maker)
        {
            // He has ended, if that fails.
            let _ = before.of_child().call(tid);
        }
    }
}

fn maker(tid: u32) -> Option<u32> {
    match tgid(tid)? {
        first if first != tid => Some(first),
        _ => stat(tid)?.get(1)?.parse().ok().filter(|parent| *parent != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A process that has the number `pid`, which was another's; none where the machine takes it first.
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
            "not when it is over, though nobody has collected it"
        );
        child.wait().unwrap();
        assert_eq!(Identity::of(child.id()), None);
        let me = heddle_sys::thread::id();
        assert_eq!(Identity::of(me).map(|me| me.tgid), Some(std::process::id()));
    }

    fn until_over(pid: u32) {
        while stat(pid).is_some_and(|fields| fields[0] != "Z") {
            std::thread::yield_now();
        }
    }

    /// The thread ends between look and call, and its number is another's at once.
    #[test]
    fn who_has_the_number_of_a_thread_that_ended_is_left_as_he_was() {
        let fifo = Scheduling::fifo(1);
        let mut one: Mask = scheduling::mask(0).unwrap();
        let last = (0..1024).rfind(|cpu| one[cpu / 64] >> (cpu % 64) & 1 == 1).unwrap();
        one = [0; 16];
        one[last / 64] = 1 << (last % 64);
        for change in [Change::Policy(fifo), Change::Cpus(one), Change::Nice(7)] {
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            let (pid, who) = (child.id(), Identity::of(child.id()));
            // So that the stranger does not begin within the same tick.
            std::thread::sleep(std::time::Duration::from_millis(30));
            let mut stranger = None;
            let call = || {
                end(&mut child);
                stranger = with_number(pid);
                change.call(pid)
            };
            let like = |maker| change.like(maker);
            let made = change.make_by(pid, || Identity::of(pid) == who, like, call);
            let Some(mut stranger) = stranger else {
                eprintln!("skipped: choosing a process's number takes root");
                end(&mut child);
                return;
            };
            let now = change.like(pid);
            end(&mut stranger);
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

    /// Its maker may be a thread that an agent has made real-time.
    #[test]
    fn nobody_becomes_real_time_because_his_maker_is() {
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
    fn a_thread_that_is_not_meant_any_more_is_not_touched() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        Change::Nice(5).make(child.id(), || false).unwrap();
        assert_eq!(scheduling::nice(child.id()).unwrap(), scheduling::nice(0).unwrap());
        Change::Nice(5).make(child.id(), || true).unwrap();
        assert_eq!(scheduling::nice(child.id()).unwrap(), 5);
        end(&mut child);
    }
}
