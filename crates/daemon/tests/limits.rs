//! A user's resources count at their real size, and once.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::{
    Daemon, able, as_nobody, as_user, attach, compiled, copy, deployment, end, group,
    others_are_served, passed, shipped, start_as_nobody, steering_of_nobody, steering_of_user,
    traffic,
};
use heddle_steer::client::wire::{self, Call, Reply};
use heddle_steer::request::{ErrorKind, Request};

const LONG: Duration = Duration::from_secs(60);

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

#[test]
fn a_user_attaches_more_sockets_than_fit_into_a_message_within_the_quota() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone", "--max-executors", "300"]);
    passed(as_nobody("nobody_has_many_sockets", &daemon.socket(), &[]));
    others_are_served(&daemon);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_has_many_sockets() {
    let Some(steering) = steering_of_nobody() else { return };
    let attach = |sockets: &[UdpSocket]| steering.attach(deployment(shipped("jiq"), sockets));
    let first = group(200, "127.0.0.1:0");
    let attached = attach(&first).expect("within the quota");
    assert_eq!(attached.executors.len(), 200);
    steering.replace(attached.id, shipped("round-robin")).expect("replaced");
    assert_eq!(traffic(&first, 400), vec![2; 200]);
    let error = attach(&group(101, "127.0.0.1:0")).expect_err("301 in all");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.text.contains("200 executors, and may have 300"), "{error}");
    attach(&group(100, "127.0.0.1:0")).expect("300 in all");
    let error = attach(&group(450, "127.0.0.1:0")).expect_err("more than may be sent");
    assert!(error.text.contains("more than 396 descriptors"), "{error}");
}

#[test]
fn root_attaches_the_most_sockets_through_heddled() {
    let limit = heddle_sys::limits::raise_descriptors();
    if !able() || limit.is_some_and(|most| most < 4096) {
        return;
    }
    let daemon = Daemon::start(&[]);
    let sockets = group(1024, "127.0.0.1:0");
    let attached = attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
    assert_eq!(traffic(&sockets, 1024), vec![1; 1024]);
    assert_eq!(daemon.steering().stats(attached.id, 0).expect("stats").executors.len(), 1024);
    daemon.steering().detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
}

#[test]
fn descriptors_ahead_of_a_request_are_bounded_and_timed() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let socket = || -> OwnedFd { group(1, "127.0.0.1:0").remove(0).into() };
    let connect = || UnixStream::connect(daemon.socket()).expect("connected");
    let more = |to: &UnixStream, fds: &[OwnedFd]| wire::send(to, &Call::More, fds, LONG);
    let refusal = |from: &UnixStream| {
        wire::receive::<Reply>(from, LONG).expect("an answer").expect("one").0.expect_err("refused")
    };
    // Without a descriptor a message says nothing: it could go on forever.
    let client = connect();
    more(&client, &[]).expect("sent");
    assert!(refusal(&client).text.contains("has none"));
    // More than a request can have.
    let fds: Vec<OwnedFd> = (0..96).map(|_| socket()).collect();
    let client = connect();
    while more(&client, &fds).is_ok() {}
    assert!(refusal(&client).text.contains("more than 1120 descriptors"));
    // A file among them.
    let client = connect();
    more(&client, &fds).expect("sent");
    more(&client, &[fs::File::open("/proc/version").expect("a file").into()]).expect("sent");
    assert!(refusal(&client).text.contains("no socket, no process and no map"));
    // One after the other, each in time, but never a request.
    let client = connect();
    while more(&client, &fds[..1]).is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(refusal(&client).text.contains("took too long"));
    // They do not go to a later client, and a request with too few roles for them is refused.
    let client = connect();
    more(&client, &fds).expect("sent");
    drop(client);
    let client = connect();
    more(&client, &fds[..1]).expect("sent");
    let list = Call::Ask(Request::AddExecutor { id: 1, index: None, label: String::new() });
    wire::send(&client, &list, &fds[..1], LONG).expect("sent");
    assert!(refusal(&client).text.contains("one executor takes one descriptor"));
    others_are_served(&daemon);
}
