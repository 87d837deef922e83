//! Every policy of the registry as the agent of a simulated machine with costs and slow interrupts.

use heddle_agent::Backend;
use heddle_agent::model::machine::{Arrival, Machine, ModelEnclave, Spec};
use heddle_agent::model::world::{Costs, Step, Totals, World};
use heddle_agent::model::{CpuOccupant, State, ThreadWord};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, CpuSet, Ns, Policy, Rng, TaskId};
use heddle_policies::{Visitor, names, with_policy};

const CPUS: usize = 8;
const END: Ns = Ns::from_ms(40);

struct Run<'a> {
    seed: u64,
    costs: Costs,
    people: &'a dyn Fn(&mut World) -> Vec<TaskId>,
}

struct RunResult {
    work_conserving: bool,
    totals: Totals,
    words: Vec<ThreadWord>,
}

impl Visitor for Run<'_> {
    type Out = RunResult;

    fn visit<P: Policy>(self, policy: P) -> RunResult {
        let enclave = enclave();
        let settings = Settings { threads: 256, ..Settings::default() };
        let mut agent = Scheduler::new(policy, &enclave, settings);
        agent.adopt();
        let mut world = World::new(&enclave, self.costs, self.seed);
        let threads = (self.people)(&mut world);
        let totals = world.run(&mut || agent.round(), END);
        enclave.machine().audit().unwrap();
        let words = threads.iter().map(|&thread| enclave.thread(thread)).collect();
        RunResult { work_conserving: P::WORK_CONSERVING, totals, words }
    }
}

fn enclave() -> ModelEnclave {
    let machine = Machine::flat(CPUS).arriving(Arrival::ByHand);
    let enclave = machine.enclave(Spec::of((0..CPUS as u16).map(CpuId))).unwrap();
    enclave.attach().unwrap();
    enclave
}

fn run_policy(name: &str, seed: u64, people: &dyn Fn(&mut World) -> Vec<TaskId>) -> RunResult {
    with_policy(name, Run { seed, costs: Costs::fixed(), people }).unwrap()
}

/// Returns between 1 and `most` microseconds.
fn some_us(rng: &Rng, most: usize) -> Ns {
    Ns::from_us(1 + rng.below(most) as u64)
}

/// A thread that works, sleeps, and sometimes yields.
fn person() -> impl FnMut(&Rng) -> Step + Send {
    let mut works = false;
    move |rng| {
        works = !works;
        match rng.below(8) {
            _ if works => Step::Run(some_us(rng, 100)),
            0 => Step::Yield,
            _ => Step::Sleep(some_us(rng, 300)),
        }
    }
}

#[test]
fn no_thread_is_lost_and_all_have_their_turns() {
    let people = |world: &mut World| (0..24).map(|_| world.spawn(person())).collect();
    for (name, seed) in names().flat_map(|name| [(name, 1), (name, 2)]) {
        let seen = run_policy(name, seed, &people);
        assert!(seen.totals.steps > 100, "{name}: {:?}", seen.totals);
        for word in &seen.words {
            assert_ne!(word.state, State::Free, "{name}: {word:?}");
            assert!(word.runtime > Ns::ZERO, "{name} has forgotten {word:?}");
        }
    }
}

#[test]
fn no_cpu_rests_for_long_while_a_thread_waits() {
    let hogs = |world: &mut World| {
        let hog = || |_: &Rng| Step::Run(Ns::from_us(200));
        (0..CPUS + 3).map(|_| world.spawn(hog())).collect()
    };
    for name in names() {
        let seen = run_policy(name, 1, &hogs);
        let worked: u64 = seen.words.iter().map(|word| word.runtime.0).sum();
        let share = worked as f64 / (END.0 * CPUS as u64) as f64;
        // Run time on a CPU at the end is not in the words yet: at most one stretch, which is long without
        // preemption.
        let on_cpu = seen.words.iter().filter(|word| word.state == State::OnCpu);
        let stretch: u64 = on_cpu.map(|word| (END - word.on_at).0).sum();
        let share = share + stretch as f64 / (END.0 * CPUS as u64) as f64;
        assert!(!seen.work_conserving || share > 0.8, "{name}: {share} of the CPUs' time");
    }
}

#[test]
fn threads_that_end_make_room_for_others() {
    let people = |world: &mut World| {
        for _ in 0..200 {
            let mut left = 3;
            world.spawn(move |rng| {
                left -= 1;
                if left == 0 { Step::Exit } else { Step::Run(some_us(rng, 50)) }
            });
        }
        Vec::new()
    };
    for name in names() {
        let seen = run_policy(name, 3, &people);
        assert_eq!(seen.totals.exits, 200, "{name}: {:?}", seen.totals);
    }
}

/// CPUs get occupied, affinities change, CPUs go offline: in the end, every thread still has its turns.
#[test]
fn disturbances_pass() {
    let people = |world: &mut World| {
        let threads: Vec<TaskId> = (0..16).map(|_| world.spawn(person())).collect();
        for round in 0..100u64 {
            let cpu = CpuId((round % CPUS as u64) as u16);
            let (at, thread) = (Ns::from_us(100 * round), threads[round as usize % 16]);
            let some = CpuSet::first(1 + (round % 5) as usize);
            world.at(at, move |machine| {
                machine.occupy(cpu, CpuOccupant::Ordinary);
                machine.set_affinity(thread, some);
            });
            world.at(at + Ns::from_us(70), move |machine| {
                machine.release(cpu);
                machine.set_online(cpu, round % 3 != 0);
            });
            world.at(at + Ns::from_us(900), move |machine| {
                machine.set_online(cpu, true);
                machine.set_affinity(thread, CpuSet::first(CPUS));
            });
        }
        threads
    };
    let later = Ns::from_ms(20);
    for name in names() {
        let seen = run_policy(name, 4, &people);
        for word in &seen.words {
            let alive = word.on_at > later || word.runnable_at > later;
            assert!(alive, "{name} has forgotten {word:?}: {:?}", seen.totals);
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let people = |world: &mut World| (0..24).map(|_| world.spawn(person())).collect();
    for name in ["fifo", "work-stealing", "shinjuku"] {
        let [one, two, other] = [5, 5, 6].map(|seed| run_policy(name, seed, &people));
        assert_eq!((one.totals, one.words), (two.totals, two.words), "{name}");
        assert_ne!(two.totals, other.totals, "{name}");
    }
}
