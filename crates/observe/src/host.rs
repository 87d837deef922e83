//! The machine and its threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use heddle_core::Ns;
use heddle_sys::{cpu_list, processes, scheduling};
use procfs::{CpuInfo, Current as _};

use crate::{Burst, Group, Host, ThreadUse, Use, service};

/// Describes this machine.
pub(crate) fn describe() -> Host {
    let processor = CpuInfo::current().ok().and_then(|cpu| cpu.model_name(0).map(str::to_owned));
    Host {
        processor: processor.unwrap_or_default(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: online_cpus(),
    }
}

/// Returns the number of CPUs that are online.
pub(crate) fn online_cpus() -> u32 {
    let listed = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = cpu_list::parse(&listed).map(|cpus| cpus.len()).unwrap_or_default();
    let or_own = || available_parallelism().map_or(1, usize::from);
    u32::try_from(if online == 0 { or_own() } else { online }).unwrap_or(1)
}

/// Returns the threads that ran on the CPUs on which threads of `processes` ran, between two readings.
pub(crate) fn threads(
    before: &[Use],
    after: Vec<Use>,
    processes: &[u32],
    bursts: &mut BTreeMap<u32, Vec<Burst>>,
) -> Vec<ThreadUse> {
    let before: BTreeMap<u32, &Use> = before.iter().map(|one| (one.thread, one)).collect();
    let own = after.iter().filter(|one| processes.contains(&one.process));
    let cpus = own.fold(0, |cpus, one| cpus | one.cpus);
    let on_them = after.into_iter().filter(|one| cpus == 0 || one.cpus & cpus != 0);
    let used = on_them.map(|one| since(before.get(&one.thread).copied(), one));
    let mut threads: Vec<ThreadUse> = used
        .filter(|one| one.switches > 0)
        .map(|one| describe_thread(&one, bursts.remove(&one.thread).unwrap_or_default()))
        .collect();
    threads.sort_by_key(|one| (one.process, one.thread));
    threads
}

fn since(before: Option<&Use>, now: Use) -> Use {
    // An id that was used again counts from zero.
    let Some(before) = before.filter(|one| one.switches <= now.switches) else { return now };
    Use {
        cpu: Ns(now.cpu.0.saturating_sub(before.cpu.0)),
        run_queue: Ns(now.run_queue.0.saturating_sub(before.run_queue.0)),
        switches: now.switches - before.switches,
        preempted: now.preempted.saturating_sub(before.preempted),
        delayed: Ns(now.delayed.0.saturating_sub(before.delayed.0)),
        ..now
    }
}

fn describe_thread(one: &Use, bursts: Vec<Burst>) -> ThreadUse {
    let lives = !one.ended;
    let name = lives.then(|| service::name_of(one.thread)).filter(|name| !name.is_empty());
    let scheduling = scheduling::of(one.thread).ok().filter(|_| lives);
    ThreadUse {
        thread: one.thread,
        process: one.process,
        name: name.unwrap_or_else(|| one.name.clone()),
        policy: scheduling.map_or(0, |scheduling| scheduling.class as u32),
        nice: scheduling::nice(one.thread).ok().filter(|_| lives).unwrap_or_default(),
        group: if lives { group(one.process) } else { Group::default() },
        cpus: allowed(one.thread).filter(|_| lives).unwrap_or_default(),
        cpu: one.cpu,
        run_queue: one.run_queue,
        switches: one.switches,
        preempted: one.preempted,
        bursts,
        delayed_service: one.delayed,
    }
}

/// Returns the group in which a process shares CPUs.
fn group(process: u32) -> Group {
    match processes::cpu_cgroup(process) {
        Some(folder) => in_cgroup(&folder),
        None => automatic(process).unwrap_or_default(),
    }
}

fn in_cgroup(folder: &Path) -> Group {
    let weight =
        |name: &str| Some((folder.join(name), fs::read_to_string(folder.join(name)).ok()?));
    let found = weight("cpu.weight").or_else(|| weight("cpu.shares"));
    let (file, weight) = found.unwrap_or_default();
    Group {
        name: folder.to_string_lossy().into_owned(),
        file: file.to_string_lossy().into_owned(),
        weight: weight.trim().into(),
    }
}

/// Returns the automatic group of a process without a cgroup of its own, if the kernel has them switched on.
fn automatic(process: u32) -> Option<Group> {
    let on = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
    let file = format!("/proc/{process}/autogroup");
    let text = fs::read_to_string(&file).ok().filter(|_| on.trim() == "1")?;
    let (name, weight) = text.trim().split_once(" nice ")?;
    Some(Group { name: name.trim_start_matches('/').into(), file, weight: weight.into() })
}

/// Returns for how long quotas of CPU time have stopped a process's cgroup and those above it.
pub(crate) fn throttled(process: u32) -> Ns {
    let Some(folder) = processes::cpu_cgroup(process) else { return Ns::ZERO };
    let of = |folder: &Path| {
        let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        // Version 2 counts in microseconds, version 1 in nanoseconds.
        value("throttled_usec ").map(Ns::from_us).or_else(|| value("throttled_time ").map(Ns))
    };
    folder.ancestors().filter_map(of).max().unwrap_or_default()
}

fn allowed(thread: u32) -> Option<String> {
    let mask = scheduling::mask(thread).ok()?;
    let cpus: Vec<u32> =
        (0..1024).filter(|cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect();
    Some(cpu_list::format(&cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(thread: u32, process: u32, cpus: u64, cpu: u64) -> Use {
        let name = format!("t{thread}");
        Use {
            thread,
            process,
            cpus,
            cpu: Ns(cpu),
            switches: cpu,
            name,
            ended: true,
            ..Use::default()
        }
    }

    #[test]
    fn threads_are_those_on_the_services_cpus() {
        let before = [used(1, 10, 1, 5), used(2, 20, 1, 7)];
        let after =
            vec![used(1, 10, 1, 9), used(2, 20, 1, 7), used(3, 30, 2, 4), used(4, 40, 3, 8)];
        let mut bursts = BTreeMap::from([(1, vec![Burst::default()])]);
        let found = threads(&before, after, &[10], &mut bursts);
        let of: Vec<(u32, u64)> = found.iter().map(|one| (one.thread, one.cpu.0)).collect();
        assert_eq!(of, [(1, 4), (4, 8)], "2 did not run meanwhile, 3 ran elsewhere");
        assert_eq!((found[0].name.as_str(), found[0].bursts.len()), ("t1", 1));
    }

    #[test]
    fn this_machine_has_a_kernel_and_cpus() {
        let host = describe();
        assert!(!host.kernel.is_empty() && host.cpus > 0, "{host:?}");
    }
}
