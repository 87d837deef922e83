//! The machine and its threads.

use std::collections::BTreeMap;
use std::thread::available_parallelism;

use heddle_core::Ns;
use heddle_sys::{cpu_list, scheduling};
use procfs::{CpuInfo, Current as _};

use crate::{Burst, Host, ThreadUse, Use, service};

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
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
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
        cpus: allowed(one.thread).filter(|_| lives).unwrap_or_default(),
        cpu: one.cpu,
        run_queue: one.run_queue,
        switches: one.switches,
        preempted: one.preempted,
        bursts,
        delayed_service: one.delayed,
    }
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
