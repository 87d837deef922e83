//! What a user can have is counted as what it takes.

mod common;

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};

use common::{Daemon, able, compiled, deployment, group};

/// Bytes that the kernel says a map takes.
fn memory(map: &OwnedFd) -> u64 {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd()));
    let info = info.expect("readable");
    let line = info.lines().find_map(|line| line.strip_prefix("memlock:")).expect("its memory");
    line.trim().parse().expect("a number")
}

#[test]
fn maps_count_with_what_the_kernel_adds() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let steering = daemon.steering();
    let schedule = "static u32 schedule(struct hd_in *in) { return hd_find(m, in->hash) ? 0 : 1; }";
    let row = "struct row { u8 bytes[4096]; };";
    // One value in reserve for each CPU.
    for entries in [1, 2, 100] {
        let source = format!("{row} HD_HASH(m, u32, struct row, {entries}); {schedule}");
        let sockets = group(1, "127.0.0.1:0");
        let attached = steering.attach(deployment(compiled(&source), &sockets)).expect("attached");
        let takes = memory(&steering.map(attached.id, "m").expect("a map").1);
        assert!(attached.map_bytes >= takes, "{entries}: {} of {takes}", attached.map_bytes);
    }
    // Rounded up to 128 values, which no number of the kernel's tells.
    let schedule = schedule.replace("hd_find", "hd_at");
    let source = format!("{row} HD_TABLE(m, struct row, 65); {schedule}");
    let sockets = group(1, "127.0.0.1:0");
    let attached = steering.attach(deployment(compiled(&source), &sockets)).expect("attached");
    assert!(attached.map_bytes >= 128 * 4096, "{}", attached.map_bytes);
}
