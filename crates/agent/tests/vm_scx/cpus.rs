//! CPUs that go and come, and agents that are in somebody's way.

use super::bench::{Bench, Worker, expect, until};
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
    let Some(bench) = Bench::new("offline", &[1, 2]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.run(task, 1, &worker);
    let offline = Offline::new(2);
    assert_eq!(expect(&bench.scx, Kind::ThreadPreempted).thread, task);
    assert!(!bench.scx.cpu(CpuId(1)).online);
    until("it is parked", || bench.state(task) == State::Parked);
    while bench.scx.next(bench.scx.default_queue()).is_some() {}
    assert_eq!(bench.try_one(bench.txn(task, 1)), Outcome::CpuOffline);
    bench.run(task, 0, &worker);

    drop(offline);
    assert!(bench.scx.cpu(CpuId(1)).online && bench.scx.is_loaded());
    bench.park(task, 0);
    bench.run(task, 1, &worker);
    assert_eq!(bench.scx.cpu(CpuId(1)).current, Some(task));
}

#[test]
fn somebody_who_waits_for_the_cpu_of_a_spinning_agent_is_counted() {
    let Some(bench) = Bench::new("handoff", &[1]) else { return };
    // Of the agent's process, so it is the agent to the kernel.
    let agent = Worker::spinning();
    agent.pin(1);
    until("the agent has the CPU", || {
        bench.scx.cpu(CpuId(0)).occupant == heddle_agent::model::Occupant::Agent
    });
    let before = bench.scx.cpu(CpuId(0)).handoff;
    let mut other = std::process::Command::new("taskset").args(["2", "true"]).spawn().unwrap();
    until("it is counted", || bench.scx.cpu(CpuId(0)).handoff > before);
    drop(agent);
    other.wait().unwrap();
}
