//! Resource limits: mappings and threads for many tasks, real-time priority, descriptors.

use super::check::{Check, State};
use super::machine::Machine;

/// The number of live tasks that Heddle promises in one process; limits are judged against it.
const MANY_TASKS: u64 = 100_000;
/// Without guard regions in the kernel, a stack and its guard page take a mapping each.
const MAPPINGS_PER_TASK: u64 = 2;
const CAP_SYS_NICE: u32 = 23;

pub fn checks(machine: &Machine) -> Vec<Check> {
    vec![mappings(machine), threads(machine), realtime(machine), shares(machine), files(machine)]
}

fn mappings(machine: &Machine) -> Check {
    let Some(limit) = machine.number("/proc/sys/vm/max_map_count") else {
        return Check::new(
            "max-map-count",
            State::Unknown,
            "vm.max_map_count cannot be read",
            "none",
        );
    };
    let found = format!("vm.max_map_count = {limit}");
    if limit >= MANY_TASKS * MAPPINGS_PER_TASK {
        return Check::new(
            "max-map-count",
            State::Yes,
            found,
            "100,000 live tasks fit, with any kind of guard page",
        );
    }
    let room = limit / MAPPINGS_PER_TASK;
    let advice = format!(
        "enough for about {room} live tasks with guard pages; for 100,000: sysctl -w vm.max_map_count=262144"
    );
    let has_regions = machine.kernel().is_some_and(|version| version >= (6, 13));
    if has_regions {
        return Check::new(
            "max-map-count",
            State::Yes,
            found,
            "enough: guard regions need no extra mapping",
        );
    }
    Check::new("max-map-count", State::Partly, found, advice)
}

fn threads(machine: &Machine) -> Check {
    let limits = [
        ("kernel.threads-max", machine.number("/proc/sys/kernel/threads-max")),
        ("kernel.pid_max", machine.number("/proc/sys/kernel/pid_max")),
        ("RLIMIT_NPROC", machine.limit("Max processes")),
    ];
    let Some((name, limit)) =
        limits.into_iter().filter_map(|(n, l)| Some((n, l?))).min_by_key(|&(_, limit)| limit)
    else {
        return Check::new("threads-max", State::Unknown, "no limit can be read", "none");
    };
    let found = format!("at most {limit} kernel threads ({name})");
    if limit >= MANY_TASKS {
        return Check::new(
            "threads-max",
            State::Yes,
            found,
            "100,000 tasks fit even with a kernel thread each",
        );
    }
    Check::new(
        "threads-max",
        State::Partly,
        found,
        "limits pools of kernel threads, and tasks whose thread-local storage comes from donor threads",
    )
}

fn realtime(machine: &Machine) -> Check {
    let limit = machine.limit("Max realtime priority").unwrap_or(0);
    if machine.capable(CAP_SYS_NICE) {
        return Check::new(
            "realtime",
            State::Yes,
            "any real-time priority (CAP_SYS_NICE)",
            "timer threads and agents can run first",
        );
    }
    if limit > 0 {
        return Check::new(
            "realtime",
            State::Yes,
            format!("priorities up to {limit}"),
            "timer threads and agents can run first",
        );
    }
    Check::new(
        "realtime",
        State::No,
        "no real-time priority (RLIMIT_RTPRIO is 0)",
        "a timer thread competes with other programs: preemptions may be late on a busy machine (raise rtprio in \
            limits.conf)",
    )
}

/// Whether programs can share CPUs, and how (`heddle run --share`).
fn shares(machine: &Machine) -> Check {
    let priority = machine.limit("Max realtime priority").unwrap_or(0);
    if !machine.capable(CAP_SYS_NICE) && priority == 0 {
        return Check::new(
            "share-cpus",
            State::Partly,
            "programs can share CPUs as ordinary threads",
            "other programs come between them, and a hand-over takes longer: run them as root, or let \
             `heddled --share` admit them",
        );
    }
    let runtime = machine.number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = machine.number("/proc/sys/kernel/sched_rt_period_us");
    let (found, follows) = match (runtime, period) {
        (Some(runtime), Some(period)) if period > 0 && runtime < period => (
            format!("programs can share CPUs in real time, {} % of it", runtime * 100 / period),
            "one that would use more computes as an ordinary thread for the rest, and does not notice",
        ),
        _ => (
            "programs can share CPUs in real time".to_owned(),
            "a latency-critical one has a CPU within microseconds of asking: `heddle run --share`",
        ),
    };
    Check::new("share-cpus", State::Yes, found, follows)
}

fn files(machine: &Machine) -> Check {
    /// With fewer descriptors, a server under test load runs out of them before its cores are busy.
    const ENOUGH: u64 = 8192;
    match machine.limit("Max open files") {
        None => Check::new("open-files", State::Unknown, "RLIMIT_NOFILE cannot be read", "none"),
        Some(u64::MAX) => Check::new(
            "open-files",
            State::Yes,
            "no limit on open files",
            "connections are not limited by it",
        ),
        Some(limit) => {
            let state = if limit >= ENOUGH { State::Yes } else { State::Partly };
            let follows = format!(
                "about {} connections at once (ulimit -n raises it)",
                limit.saturating_sub(64)
            );
            Check::new("open-files", state, format!("RLIMIT_NOFILE is {limit}"), follows)
        }
    }
}
