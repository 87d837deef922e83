//! Skyloft's artefact beside a batch application: the rules of its `sq_lcbe` scheduler, which differ from those that
//! the paper describes and that `shinjuku-shenango` implements.
//!
//! - Requests have some CPUs of their own from the start, and get others one at a time, at most one in [`ADJUST`].
//! - They get one when the request at the head of the queue has run before, and for less than [`SHARE`] of the time
//!   since it came: only a long request asks for a CPU, and late.
//! - A CPU that they have got is theirs until the run ends.

use heddle_core::{Class, CpuId, CpuSet, Cx, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{Resched, TaskId, TaskList, Var};

/// The requests' own CPUs (`guaranteed_cpus` in `run_synthetic_lcbe.sh`).
const GUARANTEED: usize = 4;

/// How often they may get another (`adjust_quantum`).
const ADJUST: Ns = Ns::from_us(20);

/// `congestion_thresh`, calibrated in tenths on the batch's share at the lowest load. The artefact's default, 0.05,
/// leaves requests so few CPUs here that their p99 is two to five times the published one.
const SHARE: f64 = 0.3;

const QUANTUM: Ns = Ns::from_us(30);

/// How often the dispatcher looks for congestion. It polls; this is short beside [`ADJUST`].
const LOOK: Ns = Ns::from_us(5);

/// The policy.
pub(super) struct SkyloftLcbe;

#[derive(Default)]
pub(super) struct Queues {
    requests: TaskList,
    batch: TaskList,
    /// The CPUs of requests.
    own: CpuSet,
    adjusted: Ns,
}

/// When a request came, when it was last started, and for how long it has run.
#[derive(Default)]
pub(super) struct Times {
    came: Var<Ns>,
    started: Var<Ns>,
    ran: Var<Ns>,
}

fn is_request(cx: &Cx<'_, Times>, task: TaskId) -> bool {
    cx.task(task).class() == Class::LC
}

impl Queues {
    fn is_congested(&self, cx: &Cx<'_, Times>) -> bool {
        self.requests.front().is_some_and(|head| {
            let Times { came, ran, .. } = &cx.task(head).policy;
            let (ran, since) = (ran.get(), cx.now() - came.get());
            ran > Ns::ZERO && (ran.0 as f64) < SHARE * since.0 as f64
        })
    }

    /// Gives the first CPU of the batch to the requests if that is `cpu` and they are congested.
    fn claim(&mut self, cx: &Cx<'_, Times>) -> bool {
        let first = (0..).map(CpuId).find(|&cpu| !self.own.contains(cpu));
        let due = cx.now() > self.adjusted + ADJUST;
        let claims = first == Some(cx.cpu) && due && self.is_congested(cx);
        if claims {
            self.own.insert(cx.cpu);
            self.adjusted = cx.now();
        }
        claims
    }
}

impl Policy for SkyloftLcbe {
    type Task = Times;
    type Queue = Queues;

    const NAME: &'static str = "skyloft-lcbe";
    const MODEL: Model = Model::Central;
    /// A CPU of requests is idle while only batch tasks wait.
    const WORK_CONSERVING: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(SkyloftLcbe)
    }

    fn queue(&self) -> Queues {
        Queues { own: CpuSet::first(GUARANTEED), ..Queues::default() }
    }

    fn len(&self, queue: &Queues) -> usize {
        queue.requests.len() + queue.batch.len()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(LOOK)
    }

    fn enqueue(&self, cx: &Cx<'_, Times>, queue: &mut Queues, task: TaskId, why: Enqueue) {
        if !is_request(cx, task) {
            return queue.batch.push_back(cx.tasks, task);
        }
        let Times { came, started, ran } = &cx.task(task).policy;
        match why {
            Enqueue::Preempted => ran.set(ran.get() + (cx.now() - started.get())),
            _ => {
                came.set(cx.now());
                ran.set(Ns::ZERO);
            }
        }
        queue.requests.push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, Times>, queue: &mut Queues) -> Option<TaskId> {
        if !queue.own.contains(cx.cpu) {
            return queue.batch.pop_front(cx.tasks);
        }
        let task = queue.requests.pop_front(cx.tasks)?;
        cx.task(task).policy.started.set(cx.now());
        Some(task)
    }

    fn tick(&self, cx: &Cx<'_, Times>, queue: &mut Queues, task: TaskId, ran: Ns) -> Resched {
        match is_request(cx, task) {
            true if ran >= QUANTUM => Resched::Now,
            true => Resched::After(QUANTUM - ran),
            false if queue.claim(cx) => Resched::Now,
            false => Resched::After(LOOK),
        }
    }
}
