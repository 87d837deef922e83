//! A user's resources count at their real size, and once.

mod common;

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};

use common::{
    Daemon, able, as_user, compiled, deployment, end, group, passed, start_as_nobody,
    steering_of_nobody, steering_of_user,
};

const OTHER: u32 = 65000;

/// Returns the bytes that the kernel reports for a map.
fn memory(map: &OwnedFd) -> u64 {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd()));
    let info = info.expect("readable");
    let line = info.lines().find_map(|line| line.strip_prefix("memlock:")).expect("its memory");
    line.trim().parse().expect("a number")
}

#[test]
fn maps_count_with_the_kernels_overhead() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let steering = daemon.steering();
    let schedule = "static u32 schedule(struct hd_in *in) { return hd_find(m, in->hash) ? 0 : 1; }";
    let row = "struct row { u8 bytes[4096]; };";
    // One spare value per CPU.
    for entries in [1, 2, 100] {
        let source = format!("{row} HD_HASH(m, u32, struct row, {entries}); {schedule}");
        let sockets = group(1, "127.0.0.1:0");
        let attached = steering.attach(deployment(compiled(&source), &sockets)).expect("attached");
        let takes = memory(&steering.map(attached.id, "m").expect("a map").1);
        assert!(attached.map_bytes >= takes, "{entries}: {} of {takes}", attached.map_bytes);
    }
    // Rounded up to 128 values, which the kernel does not report.
    let schedule = schedule.replace("hd_find", "hd_at");
    let source = format!("{row} HD_TABLE(m, struct row, 65); {schedule}");
    let sockets = group(1, "127.0.0.1:0");
    let attached = steering.attach(deployment(compiled(&source), &sockets)).expect("attached");
    assert!(attached.map_bytes >= 128 * 4096, "{}", attached.map_bytes);
}

/// 4 MiB.
const BIG: &str = "HD_TABLE(big, u64, 524288);\nstatic u32 schedule(struct hd_in *in) \
    { u64 *n = hd_at(big, in->hash % 524288); return n ? *n : 0; }";

#[test]
fn a_shared_map_counts_once_for_all_users_together() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone", "--max-map-mib", "10", "--max-users", "2"]);
    let attack = start_as_nobody("nobody_shares_one_map_often", &daemon, &[]);
    passed(as_user(OTHER, "another_user_has_room", &daemon.socket(), &[]));
    end(attack);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_shares_one_map_often() {
    let Some(steering) = steering_of_nobody() else { return };
    let (policy, groups) = (compiled(BIG), [(); 8].map(|()| group(1, "127.0.0.1:0")));
    let first = steering.attach(deployment(policy.clone(), &groups[0])).expect("attached");
    for sockets in &groups[1..] {
        let map = steering.map(first.id, "big").expect("a map").1;
        let sharing = deployment(policy.clone(), sockets).share("big", map);
        steering.attach(sharing).expect("one map");
    }
    println!("\nnow");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
#[ignore = "run by another test, as another user"]
fn another_user_has_room() {
    let Some(steering) = steering_of_user(OTHER) else { return };
    let (policy, groups) = (compiled(BIG), [(); 3].map(|()| group(1, "127.0.0.1:0")));
    let attach = |n: usize| steering.attach(deployment(policy.clone(), &groups[n]));
    attach(0).expect("there is room");
    attach(1).expect("there is room");
    let error = attach(2).expect_err("over his own").text;
    assert!(error.contains("MiB of maps"), "{error}");
}
