//! One VM per core at a time under any events, and each thread's budget in each period.

use super::*;
use crate::testkit::{self, PolicyHarness};
use alloc::string::ToString;
use heddle_core::{Class, TaskAttrs};
use proptest::prelude::*;
use std::vec::Vec;

const TASKS: u32 = 16;

fn us(n: u64) -> Ns {
    Ns::from_us(n)
}

/// A harness that records what runs. Two CPUs per core, two cores per node.
struct Machine {
    harness: PolicyHarness<CoreEdf>,
    now: Ns,
    running: Vec<Option<(u32, Ns)>>,
    asleep: Vec<u32>,
    got: [Ns; TASKS as usize],
}

impl Machine {
    fn new(params: &str, cpus: usize) -> Machine {
        Machine {
            harness: PolicyHarness::new(&alloc::format!("core-edf:{params}"), cpus),
            now: Ns::ZERO,
            running: (0..cpus).map(|_| None).collect(),
            asleep: Vec::new(),
            got: [Ns::ZERO; TASKS as usize],
        }
    }

    fn vm(&self, task: u32) -> Class {
        self.harness.cx(0).task(TaskId(task)).attrs().class
    }

    fn spawn(&mut self, cpu: u16, task: u32, vm: u8) {
        self.harness.init(task, TaskAttrs { class: Class(vm), ..TaskAttrs::default() });
        self.harness.enqueue(cpu, task, Enqueue::New);
    }

    fn wake(&mut self, cpu: u16) {
        if let Some(task) = self.asleep.pop() {
            self.harness.enqueue(cpu, task, Enqueue::Wakeup);
            if let Some(cpu) = self.harness.preempt(cpu, task) {
                self.leave(cpu, Leave::Preempted);
            }
        }
    }

    fn pick(&mut self, cpu: u16) {
        if self.running[usize::from(cpu)].is_none() {
            let task = self.harness.dequeue(cpu);
            self.running[usize::from(cpu)] = task.map(|task| (task, self.now));
        }
    }

    fn leave(&mut self, cpu: u16, how: Leave) -> Option<u32> {
        let (task, _) = self.running[usize::from(cpu)].take()?;
        match how {
            Leave::Preempted => self.harness.enqueue(cpu, task, Enqueue::Preempted),
            Leave::Yield => self.harness.enqueue(cpu, task, Enqueue::Yield),
            Leave::CommitFailed => self.harness.enqueue(cpu, task, Enqueue::CommitFailed),
            Leave::Block => {
                self.harness.block(cpu, task);
                self.asleep.push(task);
            }
            Leave::Exit => self.harness.exit(cpu, task),
        }
        Some(task)
    }

    fn tick(&mut self, cpu: u16) {
        let Some((task, since)) = self.running[usize::from(cpu)] else { return };
        if self.harness.tick(cpu, task, self.now - since) == Resched::Now {
            self.leave(cpu, Leave::Preempted);
        }
    }

    /// Time passes; every CPU ticks, and picks if it is idle.
    fn step(&mut self, time: Ns) {
        self.now += time;
        self.harness.set_now(self.now);
        for (task, _) in self.running.iter().flatten() {
            self.got[*task as usize] += time;
        }
        let cpus = 0..self.running.len() as u16;
        cpus.clone().for_each(|cpu| self.tick(cpu));
        cpus.for_each(|cpu| self.pick(cpu));
        self.assert_one_vm_a_core();
    }

    fn assert_one_vm_a_core(&self) {
        for core in self.running.chunks(2) {
            let mut vms: Vec<_> = core.iter().flatten().map(|&(task, _)| self.vm(task)).collect();
            vms.dedup();
            assert!(vms.len() <= 1, "E1: {vms:?} on one core");
        }
    }

    fn tasks(&self) -> Vec<Option<u32>> {
        self.running.iter().map(|run| run.map(|(task, _)| task)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Leave {
    Preempted,
    Yield,
    CommitFailed,
    Block,
    Exit,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Spawn { cpu: u16, vm: u8 },
    Wake { cpu: u16 },
    Pick { cpu: u16 },
    Leave { cpu: u16, how: Leave },
    Tick { cpu: u16 },
    Step { us: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = || 0..8u16;
    let how = || {
        use Leave::*;
        prop::sample::select(&[Preempted, Yield, CommitFailed, Block, Exit][..])
    };
    prop_oneof![
        2 => (cpu(), 0..4u8).prop_map(|(cpu, vm)| Event::Spawn { cpu, vm }),
        1 => cpu().prop_map(|cpu| Event::Wake { cpu }),
        4 => cpu().prop_map(|cpu| Event::Pick { cpu }),
        2 => (cpu(), how()).prop_map(|(cpu, how)| Event::Leave { cpu, how }),
        2 => cpu().prop_map(|cpu| Event::Tick { cpu }),
        2 => (0..40u64).prop_map(|us| Event::Step { us }),
    ]
}

proptest! {
    /// E1 under any sequence of events on four cores; in the end, every task exits.
    #[test]
    fn siblings_never_run_two_vms(events in prop::collection::vec(event(), 0..300)) {
        let mut machine = Machine::new("period=100us,budget=20us,slice=10us", 8);
        let mut free: Vec<u32> = (0..TASKS).collect();
        for event in events {
            match event {
                Event::Spawn { cpu, vm } => if let Some(task) = free.pop() {
                    machine.spawn(cpu, task, vm);
                },
                Event::Wake { cpu } => machine.wake(cpu),
                Event::Pick { cpu } => machine.pick(cpu),
                Event::Leave { cpu, how } => {
                    let task = machine.leave(cpu, how);
                    free.extend(task.filter(|_| matches!(how, Leave::Exit)));
                }
                Event::Tick { cpu } => machine.tick(cpu),
                Event::Step { us: time } => machine.step(us(time)),
            }
            machine.assert_one_vm_a_core();
        }
        (0..TASKS).for_each(|_| machine.wake(0));
        for _ in 0..TASKS {
            (0..8).for_each(|cpu| free.extend(machine.leave(cpu, Leave::Exit)));
            machine.step(us(1));
        }
        (0..8).for_each(|cpu| free.extend(machine.leave(cpu, Leave::Exit)));
        prop_assert_eq!(free.len(), TASKS as usize, "none is stranded");
    }
}

#[test]
fn keeps_the_rules_of_every_policy() {
    testkit::check::<CoreEdf>("core-edf:period=100us,budget=20us,slice=5us");
    // The kit's last phase is too short to show fairness at the scale of the defaults.
    let default = || crate::build::<CoreEdf>("core-edf").unwrap();
    testkit::check_with(default, testkit::Promises { fair: false });
}

#[test]
fn reads_its_parameters() {
    testkit::check_params::<CoreEdf>();
    let error = crate::build::<CoreEdf>("core-edf:period=1ms,budget=2ms").unwrap_err().to_string();
    assert!(error.contains("`2ms` is not at most as long as `period`"), "{error}");
}

#[test]
fn each_thread_gets_its_budget_in_each_period_and_all_the_rest_in_turn() {
    let mut machine = Machine::new("period=100us,budget=15us,slice=5us", 2);
    (0..4).for_each(|task| machine.spawn(0, task, task as u8));
    for period in 1..=50 {
        (0..100).for_each(|_| machine.step(us(1)));
        for task in 0..4 {
            // At most a quantum late: a core may take that long to drain.
            let got = machine.got[task];
            assert!(got + us(5) >= us(15) * period, "{got} for task {task} in period {period}");
        }
    }
    let total: u64 = machine.got[..4].iter().map(|got| got.0).sum();
    assert!(total >= us(4_990).0, "no CPU time is lost where each VM has one thread");
    assert!(machine.got[..4].iter().all(|got| got.0.abs_diff(total / 4) < us(30).0));
}

#[test]
fn threads_of_one_vm_share_a_core_and_those_of_two_take_turns() {
    let mut machine = Machine::new("period=100us,budget=20us,slice=5us", 2);
    [(0, 7), (1, 7), (2, 8), (3, 8)].into_iter().for_each(|(task, vm)| machine.spawn(0, task, vm));
    machine.step(us(1));
    assert_eq!(machine.tasks(), [Some(0), Some(1)]);
    (0..20).for_each(|_| machine.step(us(1)));
    assert_eq!(machine.tasks(), [Some(2), Some(3)]);
}

#[test]
fn an_earlier_deadline_of_another_vm_drains_the_core() {
    let mut machine = Machine::new("period=100us,budget=50us,slice=10us", 2);
    machine.spawn(0, 2, 8);
    machine.pick(0);
    machine.step(us(10));
    machine.leave(0, Leave::Block);
    machine.step(us(2));
    machine.spawn(0, 0, 7);
    machine.spawn(0, 1, 7);
    machine.step(us(1));
    machine.wake(0);
    assert_eq!(machine.tasks(), [Some(0), None], "the later of two equal deadlines made way");
    machine.pick(1);
    assert_eq!(machine.tasks(), [Some(0), None], "forced to idle while the core drains");
    machine.step(us(9));
    assert_eq!(machine.tasks(), [Some(0), None], "no quantum has passed yet");
    machine.step(us(1));
    assert_eq!(machine.tasks(), [Some(2), None]);
}

#[test]
fn a_new_thread_goes_where_fewest_live_and_an_idle_core_takes_over_near_before_far() {
    let mut machine = Machine::new("", 8);
    (0..8).for_each(|task| machine.spawn(2, task, task as u8));
    let home =
        |machine: &Machine, task| machine.harness.cx(0).task(TaskId(task)).policy.home.get() - 1;
    let homes: Vec<_> = (0..8).map(|task| home(&machine, task)).collect();
    assert_eq!(homes, [2, 0, 4, 6, 2, 0, 4, 6]);
    for _ in 0..2 {
        machine.pick(0);
        machine.leave(0, Leave::Exit);
    }
    machine.pick(0);
    assert_eq!(machine.tasks()[0], Some(0), "of the same node");
    assert_eq!(home(&machine, 0), 0, "where it stays");
    machine.leave(0, Leave::Exit);
    machine.pick(0);
    machine.leave(0, Leave::Exit);
    machine.pick(0);
    assert_eq!(machine.tasks()[0], Some(2), "of the other");
}

#[test]
fn a_late_wakeup_gets_only_its_share_of_the_period() {
    let mut machine = Machine::new("period=100us,budget=20us,slice=10us", 2);
    machine.spawn(0, 0, 1);
    machine.pick(0);
    machine.leave(0, Leave::Block);
    let deadline = |machine: &Machine| machine.harness.cx(0).task(TaskId(0)).policy.deadline.get();
    assert_eq!(deadline(&machine), us(100));
    machine.step(us(90));
    machine.wake(0);
    assert_eq!(deadline(&machine), us(190), "20 us in the last 10 of a period are too much");
    machine.pick(0);
    machine.step(us(15));
    machine.leave(0, Leave::Block);
    machine.step(us(50));
    machine.wake(0);
    assert_eq!(deadline(&machine), us(190), "5 us in 35 are not");
}
