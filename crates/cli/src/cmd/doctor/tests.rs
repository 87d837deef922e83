//! The checks on machines made of files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A machine made of files in a temporary folder.
struct Fake {
    root: PathBuf,
}

impl Fake {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "heddle-doctor-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self { root: std::env::temp_dir().join(name) }
    }

    fn with(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let file = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, contents).unwrap();
        self
    }

    fn state_of(&self, id: &str) -> State {
        self.check(id).state
    }

    fn check(&self, id: &str) -> Check {
        let checks = inspect(&Machine::at(&self.root, Some(false)));
        checks.into_iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn an_empty_machine_is_unknown_and_never_a_panic() {
    let machine = Fake::new();
    for id in ["cores", "fsgsbase", "kernel", "clock", "max-map-count", "open-files"] {
        assert_eq!(machine.state_of(id), State::Unknown, "{id}");
    }
    for id in ["sched-ext", "bpf", "xdp", "isolation"] {
        assert_eq!(machine.state_of(id), State::No, "{id}");
    }
}

#[test]
fn cores_count_affinity_and_the_tightest_group() {
    let machine = Fake::new()
        .with("/proc/self/status", "Name:\theddle\nCpus_allowed_list:\t0-2,5\n")
        .with("/sys/devices/system/cpu/online", "0-7\n");
    let cores = machine.check("cores");
    assert_eq!(
        (cores.state, cores.found.as_str()),
        (State::Yes, "4 of 8 online cores usable (0-2,5)")
    );

    let machine = machine
        .with("/proc/self/cgroup", "0::/app/web\n")
        .with("/sys/fs/cgroup/app/cpu.max", "150000 100000\n")
        .with("/sys/fs/cgroup/app/web/cpu.max", "max 100000\n");
    let cores = machine.check("cores");
    assert_eq!(cores.state, State::Partly);
    assert!(cores.found.ends_with("limited to 1.5 by the control group"), "{}", cores.found);
}

#[test]
fn legacy_groups_limit_too_and_no_quota_is_no_limit() {
    let group = |quota: &str| {
        Fake::new()
            .with("/proc/self/status", "Cpus_allowed_list:\t0-3\n")
            .with("/proc/self/cgroup", "3:cpu,cpuacct:/job\n")
            .with("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", quota)
            .with("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    };
    assert_eq!(group("200000\n").state_of("cores"), State::Partly);
    assert_eq!(group("-1\n").state_of("cores"), State::Yes);
}

#[test]
fn the_auxiliary_vector_shows_fsgsbase_and_the_signal_frame() {
    let auxv = |pairs: &[(u64, u64)]| -> Vec<u8> {
        pairs.iter().flat_map(|&(k, v)| [k.to_ne_bytes(), v.to_ne_bytes()].concat()).collect()
    };
    let machine =
        Fake::new().with("/proc/self/auxv", auxv(&[(16, 7), (26, 2), (51, 3632), (0, 0)]));
    assert_eq!(machine.state_of("fsgsbase"), State::Yes);
    assert_eq!(machine.check("signal-frame").found, "3632 bytes (no wide vectors)");

    let machine = Fake::new().with("/proc/self/auxv", auxv(&[(26, 1), (51, 11_000)]));
    assert_eq!(machine.state_of("fsgsbase"), State::No);
    assert_eq!(machine.state_of("signal-frame"), State::Partly);
}

#[test]
fn user_interrupts_are_there_with_the_module_and_else_it_says_what_to_do() {
    let uintr = |machine: &Fake, in_cpuid| {
        let checks = inspect(&Machine::at(&machine.root, in_cpuid));
        let check = checks.into_iter().find(|check| check.id == "uintr").unwrap();
        (check.state, format!("{}; {}", check.found, check.follows))
    };
    let bare = Fake::new();
    assert_eq!(uintr(&bare, None).0, State::No);
    assert_eq!(uintr(&bare, Some(false)).0, State::No);
    let (state, text) = uintr(&bare, Some(true));
    assert!(state == State::Partly && text.contains("modprobe heddle_uintr"), "{text}");
    let meltdown = "/sys/devices/system/cpu/vulnerabilities/meltdown";
    let isolated = Fake::new().with(meltdown, "Mitigation: PTI\n");
    let (state, text) = uintr(&isolated, Some(true));
    assert!(state == State::Partly && text.contains("nopti"), "{text}");
    let fred = Fake::new().with("/proc/cpuinfo", "flags\t: fpu fred\n");
    assert!(uintr(&fred, Some(true)).1.contains("fred=off"));
    let ready = Fake::new().with("/dev/heddle-uintr", "");
    assert_eq!(uintr(&ready, Some(true)).0, State::Yes);
}

#[test]
fn the_kernel_version_decides_what_works() {
    let kernel = |release: &str| Fake::new().with("/proc/sys/kernel/osrelease", release);
    assert_eq!(kernel("5.4.0-150-generic\n").state_of("kernel"), State::No);
    assert_eq!(kernel("6.1.0-18-amd64\n").state_of("kernel"), State::Partly);
    assert_eq!(kernel("6.1.0-18-amd64\n").state_of("guard-regions"), State::No);
    assert_eq!(kernel("6.18.44-fc\n").state_of("kernel"), State::Yes);
    assert_eq!(kernel("7.2\n").state_of("guard-regions"), State::Yes);
}

#[test]
fn few_mappings_matter_only_without_guard_regions() {
    let machine = |release: &str, limit: &str| {
        Fake::new()
            .with("/proc/sys/kernel/osrelease", release)
            .with("/proc/sys/vm/max_map_count", limit)
    };
    assert_eq!(machine("6.1.0", "65530\n").state_of("max-map-count"), State::Partly);
    assert_eq!(machine("6.13.0", "65530\n").state_of("max-map-count"), State::Yes);
    assert_eq!(machine("6.1.0", "1048576\n").state_of("max-map-count"), State::Yes);
}

#[test]
fn bpf_and_xdp_depend_on_capabilities() {
    let machine = |caps: &str| {
        Fake::new()
            .with("/proc/sys/kernel/osrelease", "6.12.1")
            .with("/proc/sys/kernel/unprivileged_bpf_disabled", "2\n")
            .with("/sys/kernel/btf/vmlinux", "")
            .with("/proc/net/protocols", "protocol size sockets\nXDP 960 -1\n")
            .with("/proc/self/status", format!("CapEff:\t{caps}\n"))
    };
    let root = machine("000001ffffffffff");
    assert_eq!((root.state_of("bpf"), root.state_of("xdp")), (State::Yes, State::Yes));
    let user = machine("0000000000000000");
    assert_eq!((user.state_of("bpf"), user.state_of("xdp")), (State::Partly, State::Partly));
}

#[test]
fn a_loaded_scheduler_is_named() {
    let machine = Fake::new()
        .with("/sys/kernel/sched_ext/state", "enabled\n")
        .with("/sys/kernel/sched_ext/root/ops", "rusty\n");
    assert_eq!(machine.check("sched-ext").found, "taken by the scheduler rusty");
}

#[test]
fn limits_come_from_the_process() {
    let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                  Max processes             unlimited            unlimited            processes\n\
                  Max open files            1024                 4096                 files\n\
                  Max realtime priority     0                    0\n";
    let machine =
        Fake::new().with("/proc/self/limits", limits).with("/proc/sys/kernel/pid_max", "4194304\n");
    assert_eq!(machine.state_of("open-files"), State::Partly);
    assert_eq!(machine.state_of("realtime"), State::No);
    assert_eq!(
        machine.check("threads-max").found,
        "at most 4194304 kernel threads (kernel.pid_max)"
    );
}

#[test]
fn text_has_one_line_per_check_and_colour_only_on_request() {
    let checks = inspect(&Machine::at("/nonexistent", None));
    assert_eq!(lines(&checks, false).lines().count(), checks.len());
    assert!(!lines(&checks, false).contains('\x1b'));
    assert!(lines(&checks, true).contains('\x1b'));
}

#[test]
fn this_machine_can_be_inspected() {
    assert!(inspect(&Machine::here()).len() > 15);
}
