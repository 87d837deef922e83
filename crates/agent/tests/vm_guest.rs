//! Checks that the guest of `scripts/test-vm` is what the other programs rely on.

mod vm;

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
}

#[test]
fn no_scheduler_is_loaded_and_the_kernels_types_are_known() {
    if !vm::has_sched_ext() {
        return;
    }
    assert_eq!(read("/sys/kernel/sched_ext/state"), "disabled");
    assert!(Path::new("/sys/kernel/btf/vmlinux").exists());
    assert!(read("/proc/mounts").contains(" /sys/fs/bpf bpf "));
}

/// No other test measures anything, but a guest whose clock jumps starves threads of their time.
#[test]
fn the_clock_is_the_processors_own() {
    if !vm::has_sched_ext() {
        return;
    }
    assert_eq!(read("/sys/devices/system/clocksource/clocksource0/current_clocksource"), "tsc");
}

#[test]
fn a_processor_can_be_taken_offline_and_back() {
    if !vm::has_sched_ext() || std::env::var_os("HEDDLE_VM").is_none() {
        return; // not on a machine in use
    }
    let online = || read("/sys/devices/system/cpu/online");
    let switch = "/sys/devices/system/cpu/cpu3/online";
    fs::write(switch, "0").unwrap();
    let without = online();
    fs::write(switch, "1").unwrap();
    assert_eq!((without.as_str(), online().as_str()), ("0-2", "0-3"));
}
