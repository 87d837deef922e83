//! CPUs that go and come, and agents that are in another thread's way.

use super::testbed::{Testbed, Worker, expect, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Kind, Outcome, State};
use heddle_core::CpuId;

/// A CPU that is offline until this is dropped.
struct Offline(u32);

impl Offline {
    fn new(cpu: u32) -> Offline {
        let this = Offline(cpu);
        this.set("0");
        this
    }

    fn set(&self, to: &str) {
        std::fs::write(format!("/sys/devices/system/cpu/cpu{}/online", self.0), to).unwrap();
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        self.set("1");
    }
}

#[test]
fn a_cpu_goes_offline_under_its_thread_and_comes_back() {
    let Some(testbed) = Testbed::new("offline", &[1, 2]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.run(task, 1, &worker);
    // In a thread of its own: Linux 6.16 waits until an agent has given the thread another CPU.
    let offline = std::thread::spawn(|| Offline::new(2));
    assert_eq!(expect(&testbed.scx, Kind::ThreadPreempted).thread, task);
    until("the CPU goes offline", || !testbed.scx.cpu(CpuId(1)).online);
    until("it is parked", || testbed.state(task) == State::Parked);
    while testbed.scx.next(testbed.scx.default_queue()).is_some() {}
    assert_eq!(testbed.try_one(testbed.txn(task, 1)), Outcome::CpuOffline);
    testbed.run(task, 0, &worker);

    drop(offline.join().unwrap());
    assert!(testbed.scx.cpu(CpuId(1)).online && testbed.scx.is_loaded());
    testbed.park(task, 0);
    testbed.run(task, 1, &worker);
    assert_eq!(testbed.scx.cpu(CpuId(1)).current, Some(task));
}

#[test]
fn a_thread_that_waits_for_the_cpu_of_a_spinning_agent_is_counted() {
    let Some(testbed) = Testbed::new("handoff", &[1]) else { return };
    // A thread of the agent's process, so the kernel takes it for the agent.
    let agent = Worker::spinning();
    agent.pin(1);
    until("the agent has the CPU", || {
        testbed.scx.cpu(CpuId(0)).occupant == heddle_agent::model::CpuOccupant::Agent
    });
    let before = testbed.scx.cpu(CpuId(0)).handoff;
    let mut other = std::process::Command::new("taskset").args(["2", "true"]).spawn().unwrap();
    until("it is counted", || testbed.scx.cpu(CpuId(0)).handoff > before);
    drop(agent);
    other.wait().unwrap();
}
