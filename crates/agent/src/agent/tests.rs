//! Agents that really run, on simulated machines.

use super::*;
use crate::model::State;
use crate::model::machine::{Machine, ModelEnclave, Spec};
use heddle_core::{CpuId, TaskId};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn enclave(cpus: usize) -> (Machine, Arc<ModelEnclave>) {
    let machine = Machine::flat(cpus);
    let enclave = machine.enclave(Spec::of((0..cpus as u16).map(CpuId))).unwrap();
    (machine, Arc::new(enclave))
}

fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < PATIENCE, "it never came to be");
        std::thread::yield_now();
    }
}

fn is_on_cpu(machine: &Machine, thread: TaskId) -> bool {
    machine.thread(thread).state == State::OnCpu
}

/// Stops the agent also where an assertion fails.
struct Stop<'a>(&'a Control);
impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn with_agent(options: Options, enclave: &Arc<ModelEnclave>, test: impl FnOnce(&Control)) -> Ended {
    let control = Control::default();
    std::thread::scope(|scope| {
        let agent = scope.spawn(|| serve(enclave.clone(), options, &control));
        let stop = Stop(&control);
        test(&control);
        drop(stop);
        agent.join().unwrap().unwrap()
    })
}

const PLACES: [Place; 3] =
    [Place::Central { spin: false }, Place::Central { spin: true }, Place::Local];

#[test]
fn threads_take_turns_whoever_decides() {
    for (place, policy) in PLACES.into_iter().flat_map(|p| [(p, "fifo"), (p, "work-stealing")]) {
        let (machine, enclave) = enclave(2);
        let threads: Vec<_> = (0..6).map(|_| machine.spawn(1, true)).collect();
        let ended = with_agent(Options { place, ..Options::simulated(policy) }, &enclave, |_| {
            for _ in 0..20 {
                for &thread in &threads {
                    until(|| is_on_cpu(&machine, thread));
                    machine.block(thread);
                    machine.wake(thread);
                }
            }
        });
        assert_eq!(ended.why, Why::Stopped);
        assert!(ended.tally.counts.committed() >= 120, "{place:?} {policy}");
        machine.audit().unwrap();
    }
}
