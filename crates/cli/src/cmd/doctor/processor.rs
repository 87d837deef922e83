//! What the processor offers, and how much of it this process may use.

use super::check::{Check, State};
use super::group;
use super::machine::{Machine, list_len};

/// `<linux/auxvec.h>` and `<asm/hwcap2.h>`.
const AT_HWCAP2: u64 = 26;
const AT_MINSIGSTKSZ: u64 = 51;
const HWCAP2_FSGSBASE: u64 = 1 << 1;

pub fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        cores(machine),
        isolation(machine),
        siblings(machine),
        bare_metal(machine),
        fsgsbase(machine),
        uintr(machine),
        signal_frame(machine),
        clock(machine),
    ]
}

fn cores(machine: &Machine) -> Check {
    let Some(allowed) = machine.field("/proc/self/status", "Cpus_allowed_list") else {
        return Check::new(
            "cores",
            State::Unknown,
            "no CPU list in /proc/self/status",
            "name the CPUs with --cpus",
        );
    };
    let usable = list_len(&allowed);
    let online =
        machine.read("/sys/devices/system/cpu/online").map_or(usable, |list| list_len(&list));
    let mut found = format!("{usable} of {online} online cores usable ({allowed})");
    let quota = group::cpu_quota(machine).filter(|&quota| quota < usable as f64);
    if let Some(quota) = quota {
        found += &format!(", limited to {quota:.1} by the control group");
    }
    let (state, follows) = match (quota, usable) {
        (Some(_), _) => (
            State::Partly,
            "the group's throttling stops all workers for milliseconds and dominates latency figures; raise cpu.max",
        ),
        (None, 1) => (
            State::Partly,
            "one worker only: no stealing, and a load generator competes with the server",
        ),
        (None, 2 | 3) => (
            State::Yes,
            "one worker can have its own core beside its load; compare systems by ratios only",
        ),
        _ => (
            State::Yes,
            "workers are pinned one per core; leave one core to timers and the load generator",
        ),
    };
    Check::new("cores", state, found, follows)
}

fn isolation(machine: &Machine) -> Check {
    let list = |file: &str| {
        machine
            .read(&format!("/sys/devices/system/cpu/{file}"))
            .filter(|list| !list.is_empty() && list != "(null)")
    };
    let mut found = Vec::new();
    found.extend(list("isolated").map(|cpus| format!("isolcpus={cpus}")));
    found.extend(list("nohz_full").map(|cpus| format!("nohz_full={cpus}")));
    if found.is_empty() {
        return Check::new(
            "isolation",
            State::No,
            "no isolated cores (isolcpus, nohz_full)",
            "other processes and the kernel's tick interrupt workers: expect milliseconds in p99.9 that no \
                policy can remove",
        );
    }
    Check::new(
        "isolation",
        State::Yes,
        found.join(" "),
        "give these cores to the runtime with --cpus for clean tails",
    )
}

fn siblings(machine: &Machine) -> Check {
    match machine.number("/sys/devices/system/cpu/smt/active") {
        Some(1) => Check::new(
            "own-cores",
            State::Partly,
            "hyperthreads share cores",
            "two workers on one core slow each other: use one hyperthread per core for latency-sensitive work",
        ),
        Some(_) => {
            Check::new("own-cores", State::Yes, "no active hyperthreads", "each CPU is a core")
        }
        None => Check::new(
            "own-cores",
            State::Unknown,
            "the kernel does not say whether hyperthreads share cores",
            "none",
        ),
    }
}

fn bare_metal(machine: &Machine) -> Check {
    if machine.cpu_flag("hypervisor") {
        return Check::new(
            "bare-metal",
            State::No,
            "a virtual machine",
            "a preemption signal costs about 12 us more to send and to receive: use quanta of 100 us and more, \
                or probes",
        );
    }
    Check::new(
        "bare-metal",
        State::Yes,
        "no hypervisor reported",
        "signals are cheap enough for quanta of 20 us and more",
    )
}

fn fsgsbase(machine: &Machine) -> Check {
    match machine.auxv(AT_HWCAP2).map(|bits| bits & HWCAP2_FSGSBASE != 0) {
        Some(true) => Check::new(
            "fsgsbase",
            State::Yes,
            "user space may set the FS and GS bases",
            "every task has its own thread-local storage for about 3 ns per switch",
        ),
        Some(false) => Check::new(
            "fsgsbase",
            State::No,
            "the kernel does not let user space set the FS and GS bases",
            "the runtime cannot start: it needs Linux 5.9 or later on an x86-64 processor since Ivy Bridge",
        ),
        None => Check::new(
            "fsgsbase",
            State::Unknown,
            "/proc/self/auxv has no AT_HWCAP2",
            "the runtime reports this when it starts",
        ),
    }
}

fn uintr(machine: &Machine) -> Check {
    let check = |state, what: &str, so: &str| Check::new("uintr", state, what, so);
    let without = "preemption uses signals or probes";
    match machine.uintr {
        None => check(State::No, "not an x86-64 processor", without),
        Some(false) => check(State::No, "no user interrupts (CPUID 7, EDX bit 5)", without),
        Some(true) if machine.exists("/dev/heddle-uintr") => check(
            State::Yes,
            "the module heddle_uintr provides user interrupts",
            "the runtime preempts by them unless HEDDLE_MECHANISM says otherwise",
        ),
        Some(true) => check(
            State::Partly,
            match () {
                () if isolates_page_tables(machine) => {
                    "the processor has user interrupts, but the kernel isolates its page tables (PTI)"
                }
                () if machine.cpu_flag("fred") => {
                    "the processor has user interrupts, but the kernel may use FRED, which the module refuses"
                }
                () => "the processor has user interrupts, and no module provides them",
            },
            match () {
                () if isolates_page_tables(machine) => "boot with nopti, then see kmod/README.md",
                () if machine.cpu_flag("fred") => "boot with fred=off, then see kmod/README.md",
                () => {
                    "sudo dkms install kmod && sudo modprobe heddle_uintr, as kmod/README.md says"
                }
            },
        ),
    }
}

fn isolates_page_tables(machine: &Machine) -> bool {
    let meltdown = machine.read("/sys/devices/system/cpu/vulnerabilities/meltdown");
    meltdown.is_some_and(|text| text.contains("PTI"))
}

fn signal_frame(machine: &Machine) -> Check {
    let vectors =
        match (machine.cpu_flag("amx_tile"), machine.cpu_flag("avx512f"), machine.cpu_flag("avx2"))
        {
            (true, ..) => "AMX",
            (_, true, _) => "AVX-512",
            (_, _, true) => "AVX2",
            _ => "no wide vectors",
        };
    let Some(bytes) = machine.auxv(AT_MINSIGSTKSZ) else {
        return Check::new(
            "signal-frame",
            State::Unknown,
            format!("{vectors}, frame size not reported"),
            "allow 4 KiB per task",
        );
    };
    let state = if bytes > 8192 { State::Partly } else { State::Yes };
    Check::new(
        "signal-frame",
        state,
        format!("{bytes} bytes ({vectors})"),
        "a preempted task holds one such frame on its stack: stacks under 16 KiB have little room left",
    )
}

fn clock(machine: &Machine) -> Check {
    let source = machine.read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let invariant = machine.cpu_flag("constant_tsc") && machine.cpu_flag("nonstop_tsc");
    let name = source.clone().unwrap_or_else(|| "unknown".to_owned());
    match (source.as_deref(), invariant) {
        (Some("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"), true) => Check::new(
            "clock",
            State::Yes,
            format!("clock source {name}, invariant TSC"),
            "the time is read without a system call, in about 20 ns",
        ),
        (None, _) => Check::new("clock", State::Unknown, "clock source not reported", "none"),
        _ => Check::new(
            "clock",
            State::Partly,
            format!(
                "clock source {name}, TSC {}",
                if invariant { "invariant" } else { "not invariant" }
            ),
            "reading the time may be a system call: timestamps cost up to a microsecond, and short quanta are \
                imprecise",
        ),
    }
}
