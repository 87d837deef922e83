//! A custom policy, simulated before it runs anywhere else: last come, first served; each newcomer
//! preempts.
//!
//! `cargo run --release -p heddle-sim --example own_policy`

use heddle_core::{CpuId, Cx, Enqueue, Model, ParamError, Params, Policy, TaskId, TaskList};
use heddle_sim::workload::Mix;
use heddle_sim::{Outcome, Scenario, run, run_policy};

/// A stack of tasks. The newcomer runs at once, on the CPUs in turn.
struct Stack;

impl Policy for Stack {
    type Task = ();
    type Queue = (TaskList, u16);

    const NAME: &'static str = "stack";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Stack)
    }

    fn queue(&self) -> Self::Queue {
        (TaskList::default(), 0)
    }

    fn len(&self, queue: &Self::Queue) -> usize {
        queue.0.len()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut Self::Queue, task: TaskId, why: Enqueue) {
        match why {
            // Behind the newcomer that took its CPU.
            Enqueue::Preempted => queue.0.push_back(cx.tasks, task),
            _ => queue.0.push_front(cx.tasks, task),
        }
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut Self::Queue) -> Option<TaskId> {
        queue.0.pop_front(cx.tasks)
    }

    fn preempt(&self, cx: &Cx<'_, ()>, queue: &mut Self::Queue, _: TaskId) -> Option<CpuId> {
        queue.1 = (queue.1 + 1) % cx.topology().len() as u16;
        Some(CpuId(queue.1))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mix: Mix = "shinjuku-99.5-0.5".parse()?;
    let scenario = |policy: &str| Scenario {
        requests: 200_000,
        ..Scenario::ideal(policy, 8, mix.clone(), 0.6)
    };
    println!("{:<28} {:>12} {:>16}", "policy", "p99", "p99.9 slowdown");
    let show = |name: &str, outcome: &Outcome| {
        let (p99, slowdown) = (outcome.all.response.p99(), outcome.slowdown_p999.value);
        println!("{name:<28} {p99:>12} {slowdown:>16.1}");
    };
    show("stack", &run_policy(&scenario("stack"), Stack)?);
    for policy in ["fifo", "round-robin:quantum=30us", "two-queue:quantum=5us"] {
        show(policy, &run(&scenario(policy))?);
    }
    Ok(())
}
