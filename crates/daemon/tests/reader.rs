//! No other user can interfere with the process that parses users' objects.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    Daemon, able, as_user, compiled, copy, deployment, end, group, passed, start_as_nobody,
    steering_of_nobody, steering_of_user, until,
};
use heddle_steer::client::Steering;
use rustix::process::{Pid, Signal, kill_process};

/// A user other than root and [`NOBODY`].
const OTHER: u32 = 65000;
/// The environment variable that gives heddled's pid to the child test.
const HEDDLED: &str = "HEDDLE_TEST_HEDDLED";
const POLICY: &str = "static u32 next;
static u32 schedule(struct hd_in *in) { return next++ % hd_executors(); }";

fn attach_often(steering: &Steering) {
    let (policy, sockets) = (compiled(POLICY), group(1, "127.0.0.1:0"));
    for _ in 0..40 {
        let attached = steering.attach(deployment(policy.clone(), &sockets)).expect("attached");
        steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
    }
}

#[test]
fn ordinary_users_cannot_kill_or_trace_the_policy_reader() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let given = [(HEDDLED, daemon.id().to_string())];
    let attacks: Vec<_> =
        (0..2).map(|_| start_as_nobody("nobody_searches_readers", &daemon, &given)).collect();
    let other = as_user(OTHER, "another_user_attaches", &daemon.socket(), &[]);
    attach_often(&daemon.steering());
    passed(other);
    attacks.into_iter().for_each(end);
}

#[test]
#[ignore = "run by another test, as another user"]
fn another_user_attaches() {
    let Some(steering) = steering_of_user(OTHER) else { return };
    attach_often(&steering);
}

/// Sends SIGKILL to policy readers, if the kernel allows it; and opens their memory, which requires the
/// permission to trace.
#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_searches_readers() {
    let Some(_) = steering_of_nobody() else { return };
    let heddled = std::env::var(HEDDLED).expect("its number");
    println!("\nnow");
    loop {
        let load = fs::read_to_string("/proc/loadavg").expect("readable");
        let last = load.split_whitespace().last().and_then(|last| last.parse::<i32>().ok());
        let last = last.expect("the last process's number");
        for pid in (last - 16).max(2)..=last + 1 {
            if !is_child(pid, &heddled) {
                continue;
            }
            let memory = fs::File::options().write(true).open(format!("/proc/{pid}/mem"));
            let kill = |pid| kill_process(pid, Signal::KILL);
            if memory.is_ok() || Pid::from_raw(pid).map(kill) == Some(Ok(())) {
                let _ = Pid::from_raw(pid).map(kill);
            }
        }
    }
}

fn is_child(pid: i32, parent: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `number (name) state parent`; a name may contain anything.
    let after = stat.rsplit_once(')').map(|(_, after)| after);
    after.and_then(|after| after.split_whitespace().nth(1)) == Some(parent)
}

#[test]
fn the_policy_reader_runs_as_an_unassigned_uid() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let heddled = daemon.id().to_string();
    let users = Mutex::new(BTreeSet::new());
    let stop = AtomicBool::new(false);
    let seen = || users.lock().expect("whole").clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let now = readers(&heddled);
                users.lock().expect("whole").extend(now);
            }
        });
        until("one is seen", || {
            attach_often(&daemon.steering());
            !seen().is_empty()
        });
        stop.store(true, Ordering::Relaxed);
    });
    let users = seen();
    assert!(users.iter().all(|uid| (0x7000_0000..0x7800_0000).contains(uid)), "{users:x?}");
}

/// Returns the users of the current policy readers: children of heddled that have executed its program again.
fn readers(heddled: &str) -> Vec<u32> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").expect("readable").flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if !is_child(pid, heddled) || !line.ends_with(b"--read-policy\0") {
            continue;
        }
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.extend(uids.into_iter().flat_map(|uids| uids.split_whitespace().map(number)));
    }
    users
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}
