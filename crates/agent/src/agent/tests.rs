//! Agents that really run, on simulated machines.

use super::*;
use crate::model::machine::{Machine, ModelEnclave, Spec};
use heddle_core::{CpuId, Ns, TaskId};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn enclave(cpus: usize) -> (Machine, Arc<ModelEnclave>) {
    let machine = Machine::flat(cpus);
    let enclave = machine.enclave(Spec::of((0..cpus as u16).map(CpuId))).unwrap();
    (machine, Arc::new(enclave))
}

/// Every thread on a CPU sleeps and wakes, until each has done so `times` times. The order is arbitrary: with an
/// agent on each CPU, two of them read messages at once, and as no thread is preempted, one may wait behind any
/// other.
fn take_turns(machine: &Machine, threads: &[TaskId], times: usize) {
    let mut had = vec![0; threads.len()];
    for turn in 1..=times {
        let start = Instant::now();
        while had.iter().any(|&had| had < turn) {
            let words = || threads.iter().map(|&thread| machine.thread(thread)).collect::<Vec<_>>();
            assert!(start.elapsed() < PATIENCE, "a thread is lost: {had:?} turns, {:#?}", words());
            for (had, &thread) in had.iter_mut().zip(threads) {
                *had += usize::from(machine.block(thread) && machine.wake(thread));
            }
            std::thread::yield_now();
        }
    }
}

/// Stops the agent even if an assertion fails.
struct Stop<'a>(&'a Control);
impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn with_agent(
    options: Options,
    enclave: &Arc<ModelEnclave>,
    test: impl FnOnce(&Control),
) -> Summary {
    let control = Control::default();
    std::thread::scope(|scope| {
        let agent = scope.spawn(|| serve(enclave.clone(), options, &control));
        let stop = Stop(&control);
        test(&control);
        drop(stop);
        agent.join().unwrap().unwrap()
    })
}

const MODES: [AgentMode; 3] =
    [AgentMode::Central { spin: false }, AgentMode::Central { spin: true }, AgentMode::Local];

#[test]
fn threads_take_turns_in_every_agent_mode() {
    for (mode, policy) in MODES.into_iter().flat_map(|p| [(p, "fifo"), (p, "work-stealing")]) {
        let (machine, enclave) = enclave(2);
        let threads: Vec<_> = (0..6).map(|_| machine.spawn(1, true)).collect();
        let ended = with_agent(Options { mode, ..Options::simulated(policy) }, &enclave, |_| {
            take_turns(&machine, &threads, 20);
        });
        assert_eq!(ended.reason, EndReason::Stopped);
        // A turn from an offer that ends before the agent looks is not counted.
        let counts = &ended.tally.counts;
        assert_ne!(counts.committed() + counts.taken, 0, "{mode:?} {policy}");
        machine.audit().unwrap();
    }
}

/// CPU 0 is the one on which an agent spins first.
#[test]
fn threads_of_an_offline_cpu_run_elsewhere_and_the_cpu_is_used_when_it_is_back() {
    for (mode, policy) in MODES.into_iter().flat_map(|p| [(p, "fifo"), (p, "work-stealing")]) {
        let (machine, enclave) = enclave(3);
        let threads: Vec<_> = (0..6).map(|_| machine.spawn(1, true)).collect();
        with_agent(Options { mode, ..Options::simulated(policy) }, &enclave, |_| {
            take_turns(&machine, &threads, 5);
            for cpu in [0, 1, 2].map(CpuId) {
                machine.set_online(cpu, false);
                take_turns(&machine, &threads, 5);
                assert_eq!(machine.running(cpu), None, "{mode:?} {policy}");
                machine.set_online(cpu, true);
                let is_used = || {
                    machine.set_time(machine.time() + Ns::from_ms(1));
                    (0..3).all(|cpu| is_in_use(&machine, &enclave, mode, CpuId(cpu)))
                };
                heddle_test_support::until(&format!("{mode:?} {policy} uses {cpu}"), is_used);
            }
        });
        machine.audit().unwrap();
    }
}

/// Its guardian gives an enclave other CPUs between two agents.
#[test]
fn threads_take_turns_on_the_cpus_that_an_enclave_has_after_each_resize() {
    for (mode, policy) in MODES.into_iter().flat_map(|p| [(p, "fifo"), (p, "work-stealing")]) {
        let (machine, mut enclave) = enclave(4);
        let threads: Vec<_> = (0..6).map(|_| machine.spawn(1, true)).collect();
        for cpus in [&[0, 1][..], &[1, 2, 3], &[3], &[0, 1, 2, 3]] {
            let resized = machine.resize(&enclave, cpus.iter().map(|&cpu| CpuId(cpu)));
            enclave = Arc::new(resized.unwrap());
            let ended =
                with_agent(Options { mode, ..Options::simulated(policy) }, &enclave, |control| {
                    take_turns(&machine, &threads, 5);
                    for cpu in (0..4).filter(|cpu| !cpus.contains(cpu)) {
                        assert_eq!(machine.running(CpuId(cpu)), None, "{mode:?} {policy} {cpus:?}");
                    }
                    control.leave();
                });
            assert_eq!(ended.reason, EndReason::Left);
            machine.audit().unwrap();
        }
    }
}

/// Whether a thread or, for all but one of the CPUs, a spinning agent has `cpu`.
fn is_in_use(machine: &Machine, enclave: &ModelEnclave, mode: AgentMode, cpu: CpuId) -> bool {
    let has_none = |cpu: &CpuId| machine.running(*cpu).is_none();
    let spins = mode == AgentMode::Central { spin: true };
    let others = (0..enclave.cpus().len() as u16).map(CpuId).filter(|&other| other != cpu);
    !has_none(&cpu) || spins && others.filter(has_none).count() == 0
}

#[test]
fn a_spinning_agent_moves_from_an_offline_cpu() {
    let (machine, enclave) = enclave(3);
    let threads: Vec<_> = (0..6).map(|_| machine.spawn(1, true)).collect();
    let mode = AgentMode::Central { spin: true };
    let busy = || (0..3).filter(|&cpu| machine.running(CpuId(cpu)).is_some()).count();
    with_agent(Options { mode, ..Options::simulated("fifo") }, &enclave, |_| {
        heddle_test_support::until("the agent has CPU 0", || busy() == 2);
        machine.set_online(CpuId(0), false);
        heddle_test_support::until("it has another", || {
            take_turns(&machine, &threads, 1);
            busy() == 1
        });
    });
    machine.audit().unwrap();
}

#[test]
fn an_agent_does_not_spin_where_no_thread_could_run_then() {
    let (machine, enclave) = enclave(2);
    let threads: Vec<_> = (0..3).map(|_| machine.spawn(1, true)).collect();
    let mode = AgentMode::Central { spin: true };
    with_agent(Options { mode, ..Options::simulated("fifo") }, &enclave, |_| {
        take_turns(&machine, &threads, 5);
        machine.set_online(CpuId(0), false);
        take_turns(&machine, &threads, 5);
    });
    machine.audit().unwrap();
}

#[test]
fn other_processes_read_what_an_agent_reports() {
    let pages = || heddle_telemetry::find(std::process::id()).unwrap_or_default().into_iter();
    let page = || pages().find(|page| page.labels().ends_with("service=turns"));
    let (machine, enclave) = enclave(1);
    let threads: Vec<_> = (0..2).map(|_| machine.spawn(1, true)).collect();
    let folder = tempfile::tempdir().unwrap();
    let report = Some(folder.path().join("status.json"));
    let options = Options { report, enclave: Some("turns".into()), ..Options::simulated("fifo") };
    with_agent(options, &enclave, |_| {
        heddle_test_support::until("the agent has a page", || page().is_some());
        let page = page().unwrap();
        assert_eq!(page.labels(), "layer=agent,policy=fifo,service=turns");
        // An agent leaves its numbers for the writer in its rounds, of which it has none while nothing happens.
        heddle_test_support::until("the page says what was committed", || {
            take_turns(&machine, &threads, 1);
            let committed = page.counters().into_iter().find(|one| one.name.contains("committed"));
            committed.is_some_and(|one| one.value >= 10)
        });
    });
    assert!(page().is_none());
}
