//! A policy of your own under user-level threads: the class that has had the least CPU time runs next.
//!
//! `cargo run --release -p heddle --example own_policy`

use heddle::policy::{
    self, Cx, Enqueue, Model, ParamError, Params, Policy, Resched, TaskId, TaskList, Var,
};
use heddle::{Builder, Class, Ns, Runtime, RuntimeBuilder};

/// One queue for latency-critical tasks, one for all others. A central policy: all CPUs share both.
struct FairClasses {
    quantum: Ns,
}

/// The tasks that wait, and the time that each class has had.
#[derive(Default)]
struct Queue {
    waiting: [TaskList; 2],
    had: [Ns; 2],
}

/// What the policy remembers of a task.
#[derive(Default)]
struct Turn {
    /// How much of its class's time is due to the turn that the task has now.
    counted: Var<Ns>,
}

fn class_of(cx: &Cx<'_, Turn>, task: TaskId) -> usize {
    usize::from(cx.task(task).attrs().class != Class::LC)
}

impl Policy for FairClasses {
    type Task = Turn;
    type Queue = Queue;

    const NAME: &'static str = "fair-classes";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(FairClasses { quantum: params.ns("quantum", Ns::from_us(200))? })
    }

    fn queue(&self) -> Queue {
        Queue::default()
    }

    fn len(&self, queue: &Queue) -> usize {
        queue.waiting.iter().map(TaskList::len).sum()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    fn enqueue(&self, cx: &Cx<'_, Turn>, queue: &mut Queue, task: TaskId, _: Enqueue) {
        queue.waiting[class_of(cx, task)].push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, Turn>, queue: &mut Queue) -> Option<TaskId> {
        let behind = usize::from(queue.had[1] < queue.had[0]);
        let task = [behind, 1 - behind]
            .into_iter()
            .find_map(|class| queue.waiting[class].pop_front(cx.tasks))?;
        cx.task(task).policy.counted.set(Ns::ZERO);
        Some(task)
    }

    fn tick(&self, cx: &Cx<'_, Turn>, queue: &mut Queue, task: TaskId, ran: Ns) -> Resched {
        let counted = &cx.task(task).policy.counted;
        queue.had[class_of(cx, task)] += ran - counted.get();
        counted.set(ran);
        match ran < self.quantum {
            true => Resched::After(self.quantum - ran),
            false => Resched::Now,
        }
    }
}

/// Runs a scan and some short requests; the values of both.
fn serve(runtime: &Runtime) -> (u64, Vec<u64>) {
    runtime.run(|| {
        let scan = Builder::new().class(Class::BE).name("scan");
        let scan = scan.spawn(|| (0..20_000_000u64).sum()).expect("memory for a stack");
        let requests: Vec<_> = (0..100).map(|i| heddle::spawn(move || i * i)).collect();
        let answers = requests.into_iter().map(|request| request.join().unwrap()).collect();
        (scan.join().unwrap(), answers)
    })
}

/// Runs the program under the policy, with parameters as a user would write them.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = policy::build::<FairClasses>("fair-classes:quantum=100us")?;
    let runtime = RuntimeBuilder::new().workers(1).build_with(policy)?;
    let (sum, answers) = serve(&runtime);
    println!("{}: the scan says {sum}, the last request {}", runtime.policy(), answers[99]);
    Ok(())
}
