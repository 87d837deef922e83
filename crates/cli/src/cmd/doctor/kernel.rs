//! What the kernel offers, and how much of it this process may use.

use super::check::{Check, State};
use super::machine::Machine;

/// Capability numbers of `<linux/capability.h>`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

pub fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        version(machine),
        guards(machine),
        sched_ext(machine),
        bpf(machine),
        xdp(machine),
        counters(machine),
    ]
}

fn version(machine: &Machine) -> Check {
    let release =
        machine.read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let found = format!("Linux {release}");
    match machine.kernel() {
        None => Check::new("kernel", State::Unknown, found, "the runtime needs Linux 5.9 or later"),
        Some(version) if version < (5, 9) => Check::new(
            "kernel",
            State::No,
            found,
            "the runtime needs Linux 5.9 or later (FSGSBASE)",
        ),
        Some(version) if version < (6, 12) => Check::new(
            "kernel",
            State::Partly,
            found,
            "the runtime works; kernel threads can be scheduled from 6.12 on",
        ),
        Some(_) => Check::new("kernel", State::Yes, found, "new enough for every part of Heddle"),
    }
}

fn guards(machine: &Machine) -> Check {
    match machine.kernel() {
        Some(version) if version >= (6, 13) => Check::new(
            "guard-regions",
            State::Yes,
            "Linux 6.13 or later",
            "a stack's guard page does not split its mapping (MADV_GUARD_INSTALL)",
        ),
        Some(_) => Check::new(
            "guard-regions",
            State::No,
            "older than Linux 6.13",
            "each guarded stack takes two mappings: see max-map-count before starting many tasks",
        ),
        None => Check::new("guard-regions", State::Unknown, "kernel version unknown", "none"),
    }
}

fn sched_ext(machine: &Machine) -> Check {
    let Some(state) = machine.read("/sys/kernel/sched_ext/state") else {
        return Check::new(
            "sched-ext",
            State::No,
            "/sys/kernel/sched_ext is absent",
            "kernel threads of other programs cannot be scheduled (requires Linux 6.12 with \
                CONFIG_SCHED_CLASS_EXT); tasks can",
        );
    };
    if state == "enabled" {
        let name =
            machine.read("/sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "unnamed".to_owned());
        return Check::new(
            "sched-ext",
            State::Partly,
            format!("taken by the scheduler {name}"),
            "only one scheduler can be loaded: stop it to schedule kernel threads",
        );
    }
    Check::new(
        "sched-ext",
        State::Yes,
        "present, no scheduler loaded",
        "kernel threads can be scheduled from user space",
    )
}

fn bpf(machine: &Machine) -> Check {
    // The file exists exactly when the kernel has the bpf system call.
    let Some(unprivileged) = machine.number("/proc/sys/kernel/unprivileged_bpf_disabled") else {
        return Check::new(
            "bpf",
            State::No,
            "the kernel has no BPF",
            "inputs cannot be steered in the kernel",
        );
    };
    let may_load = machine.capable(CAP_BPF) || machine.capable(CAP_SYS_ADMIN);
    let types = machine.exists("/sys/kernel/btf/vmlinux");
    let found = format!(
        "BPF {} type information (BTF); this process {} load programs{}",
        if types { "with" } else { "without" },
        if may_load { "may" } else { "may not" },
        if unprivileged == 0 { "; unprivileged loading is on" } else { "" },
    );
    match (may_load, types) {
        (true, true) => {
            Check::new("bpf", State::Yes, found, "steering and scheduling programs can be loaded")
        }
        (true, false) => Check::new(
            "bpf",
            State::Partly,
            found,
            "programs that read kernel structures will not load",
        ),
        (false, _) => Check::new(
            "bpf",
            State::Partly,
            found,
            "run as root or with CAP_BPF to load programs; tasks need neither",
        ),
    }
}

fn xdp(machine: &Machine) -> Check {
    let has_bpf = machine.exists("/proc/sys/kernel/unprivileged_bpf_disabled");
    let sockets = machine.read("/proc/net/protocols").is_some_and(|table| {
        table.lines().any(|line| line.split_whitespace().next() == Some("XDP"))
    });
    let redirect = machine.kernel().is_some_and(|version| version >= (4, 18));
    if !(has_bpf && redirect) {
        return Check::new(
            "xdp",
            State::No,
            "no XDP in this kernel",
            "packets are steered at their sockets only",
        );
    }
    if !sockets {
        return Check::new(
            "xdp",
            State::Partly,
            "XDP without AF_XDP sockets",
            "packets can be steered to cores, but not directly to user space (CONFIG_XDP_SOCKETS)",
        );
    }
    if !machine.capable(CAP_NET_ADMIN) && !machine.capable(CAP_SYS_ADMIN) {
        return Check::new(
            "xdp",
            State::Partly,
            "XDP with AF_XDP sockets",
            "attaching requires CAP_NET_ADMIN and CAP_BPF",
        );
    }
    Check::new(
        "xdp",
        State::Yes,
        "XDP with AF_XDP sockets",
        "packets can be steered to cores and to user space",
    )
}

fn counters(machine: &Machine) -> Check {
    let hardware = ["cpu", "cpu_core", "armv8_pmuv3_0"]
        .iter()
        .any(|pmu| machine.exists(&format!("/sys/bus/event_source/devices/{pmu}")));
    let paranoid = machine
        .read("/proc/sys/kernel/perf_event_paranoid")
        .and_then(|level| level.parse::<i32>().ok());
    let Some(paranoid) = paranoid else {
        return Check::new(
            "perf-counters",
            State::No,
            "the kernel has no perf events",
            "profiles come from sampling timers",
        );
    };
    if !hardware {
        return Check::new(
            "perf-counters",
            State::No,
            "no hardware counters (usual in a virtual machine)",
            "costs are measured in CPU time, not in cycles and misses",
        );
    }
    let allowed = paranoid <= 2 || machine.capable(CAP_SYS_ADMIN);
    let state = if allowed { State::Yes } else { State::Partly };
    let follows = if allowed {
        "perf stat works on your own processes"
    } else {
        "sysctl kernel.perf_event_paranoid=2 allows them"
    };
    Check::new(
        "perf-counters",
        state,
        format!("hardware counters, perf_event_paranoid={paranoid}"),
        follows,
    )
}
