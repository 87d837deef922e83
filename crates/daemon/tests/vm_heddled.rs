//! heddled on a machine that changes under it: CPU hotplug, clock jumps, pid reuse. In the guest of `make
//! test-vm`, whose machine it may change; elsewhere the tests skip, and say so.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::time::Duration;

use common::{Daemon, attach, copy, deployment, group, shipped, traffic, until};
use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Role, Status};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Checks are frequent, so that mistakes show soon.
const OFTEN: [&str; 4] = ["--watch-ms", "20", "--sample-ms", "1"];

fn guest() -> bool {
    let is = std::env::var_os("HEDDLE_VM").is_some();
    if !is {
        eprintln!("skipped: this is no guest of scripts/vm (make test-vm)");
    }
    is
}

/// A CPU that is offline until this is dropped.
struct Offline(u32);

impl Offline {
    fn new(cpu: u32) -> Self {
        Self::set(cpu, "0");
        Self(cpu)
    }

    fn set(cpu: u32, to: &str) {
        fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), to).expect("switched");
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        Self::set(self.0, "1");
    }
}

/// Long enough for several checks of the watch.
fn a_while() {
    std::thread::sleep(Duration::from_millis(300));
}

/// The attachment decides as before, and another can come and go.
fn is_whole(steering: &Steering, attached: &Attachment, sockets: &[UdpSocket]) {
    a_while();
    assert_eq!(steering.list().expect("listed"), std::slice::from_ref(attached));
    let before = steering.stats(attached.id, 0).expect("counts").decisions();
    assert_eq!(traffic(sockets, 30), [10, 10, 10]);
    let stats = steering.stats(attached.id, 0).expect("counts");
    assert_eq!((stats.decisions() - before, stats.failed()), (30, 0));
    let others = group(2, "127.0.0.1:0");
    let other = attach(steering, "jiq", &others).expect("another");
    assert_eq!(traffic(&others, 10).iter().sum::<usize>(), 10);
    steering.detach(other.id, vec![copy(&others[0])]).expect("detached");
}

#[test]
fn cpu_hotplug_changes_no_steering() {
    if !guest() {
        return;
    }
    let mut daemon = Daemon::start(&OFTEN);
    let steering = daemon.steering();
    let sockets = group(3, "127.0.0.1:0");
    let attached = attach(&steering, "round-robin", &sockets).expect("attached");
    is_whole(&steering, &attached, &sockets);
    let offline = [Offline::new(1), Offline::new(3)];
    is_whole(&steering, &attached, &sockets);
    // One that starts with fewer CPUs than before.
    daemon.kill();
    daemon.again();
    is_whole(&steering, &attached, &sockets);
    drop(offline);
    is_whole(&steering, &attached, &sockets);
    steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
    assert!(steering.list().expect("listed").is_empty());
}

/// The wall clock: jumps, and is restored when this is dropped.
struct Clock(Timespec);

impl Clock {
    fn jump(&self, seconds: i64) {
        let to = Timespec { tv_sec: self.0.tv_sec + seconds, tv_nsec: 0 };
        clock_settime(ClockId::Realtime, to).expect("set");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = clock_settime(ClockId::Realtime, self.0);
    }
}

#[test]
fn a_clock_jump_ends_and_evicts_nothing() {
    if !guest() {
        return;
    }
    const DAY: i64 = 24 * 3600;
    let mut daemon = Daemon::start(&OFTEN);
    let steering = daemon.steering();
    let sockets = group(3, "127.0.0.1:0");
    let owner = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("a pidfd");
    let owned = deployment(shipped("round-robin"), &sockets).with(Role::Owner, owner);
    let attached = steering.attach(owned).expect("attached");
    let clock = Clock(clock_gettime(ClockId::Realtime));
    for days in [3000, -3000, 1] {
        clock.jump(days * DAY);
        is_whole(&steering, &attached, &sockets);
        daemon.kill();
        daemon.again();
        is_whole(&steering, &attached, &sockets);
    }
    steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
}

/// Ends with its test.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("started"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Limits pids, so that they are reused soon, until this is dropped.
struct FewNumbers(String);

impl FewNumbers {
    const FILE: &str = "/proc/sys/kernel/pid_max";

    fn new() -> Self {
        let before = fs::read_to_string(Self::FILE).expect("read");
        fs::write(Self::FILE, "400").expect("written");
        Self(before)
    }

    /// Returns the next process whose pid satisfies the condition.
    fn next(is: impl Fn(u32) -> bool) -> Process {
        let mut new = (0..1000).map(|_| Process::start());
        new.find(|process| is(process.0.id())).expect("it comes around")
    }
}

impl Drop for FewNumbers {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

#[test]
fn a_process_that_reuses_an_ended_owners_pid_is_not_the_owner() {
    if !guest() {
        return;
    }
    let _few = FewNumbers::new();
    let mut daemon = Daemon::start(&OFTEN);
    let steering = daemon.steering();
    let sockets = group(3, "127.0.0.1:0");
    // Pids below 300 are given out once.
    let owner = FewNumbers::next(|pid| pid > 300);
    let number = owner.0.id();
    let pidfd = pidfd_open(Pid::from_child(&owner.0), PidfdFlags::empty()).expect("a pidfd");
    let owned = deployment(shipped("round-robin"), &sockets).with(Role::Owner, pidfd);
    let attached = steering.attach(owned).expect("attached");
    is_whole(&steering, &attached, &sockets);
    daemon.kill();
    drop(owner);
    let other = FewNumbers::next(|pid| pid == number);
    daemon.again();
    until("it ended with its owner", || steering.list().expect("listed").is_empty());
    drop(other);
    let attached = attach(&steering, "round-robin", &sockets).expect("free");
    assert_eq!(attached.status, Status::Active);
    is_whole(&steering, &attached, &sockets);
    steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
}
