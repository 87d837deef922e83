//! Threads of a service: tasks that live as long as the run, and what [`ServiceState`] says that they do.

use super::jobs::{Job, Kind};
use super::{ARRIVALS, Engine, FIRST_CPU};
use crate::error::SimError;
use crate::replay::{Replay, ServiceError, ServiceState, Wake};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, TaskId};

impl<'s, P: Policy> Engine<'s, P> {
    /// Replays a service instead of the scenario's arrivals.
    pub(crate) fn replay(mut self, service: ServiceState<'s>) -> Result<Replay, SimError> {
        self.admit_threads(&service)?;
        let limit = service.limit();
        self.timetable.set(ARRIVALS, service.next());
        self.service = Some(service);
        while !self.service().is_complete() {
            let (now, source) = self.timetable.next();
            // An instant that is never reached is beyond the limit, too.
            if now > limit {
                self.view.now = limit;
                break;
            }
            self.view.now = now;
            match source {
                ARRIVALS => self.service_event(),
                cpu if cpu >= FIRST_CPU => self.cpu_event(CpuId((cpu - FIRST_CPU) as u16)),
                _ => self.timer_sent(),
            }
        }
        Ok(self.finish_replay())
    }

    fn service(&mut self) -> &mut ServiceState<'s> {
        self.service.as_mut().expect("only a replay has threads")
    }

    /// Creates a task for each thread; all are blocked.
    fn admit_threads(&mut self, service: &ServiceState<'s>) -> Result<(), SimError> {
        let all = self.cpus.len();
        let restricted = |cpus: &heddle_core::CpuSet| cpus.len() < all;
        for (i, thread) in service.threads().iter().enumerate() {
            if P::MODEL == Model::Central && restricted(&thread.cpus) {
                let (policy, thread) = (P::NAME, service.thread(i));
                return Err(ServiceError::Restricted { policy, thread }.into());
            }
            // They start out spread over their CPUs.
            let home = thread.cpus.iter().nth(i % thread.cpus.len()).unwrap_or_default();
            self.add(thread.attrs, Job { kind: Kind::Thread, home, ..Job::default() });
        }
        let sets = service.threads().iter().map(|thread| thread.cpus);
        if service.threads().iter().any(|thread| restricted(&thread.cpus)) {
            self.affinity.restrict(sets.collect());
        }
        Ok(())
    }

    /// A request arrives, or a time that a thread waited for is over.
    fn service_event(&mut self) {
        let now = self.view.now;
        let wake = self.service().event(now);
        self.await_service();
        if let Some(wake) = wake {
            self.wake_thread(wake);
        }
    }

    fn await_service(&mut self) {
        let next = self.service().next();
        self.timetable.set(ARRIVALS, next);
    }

    fn wake_thread(&mut self, Wake { thread, burst, arrived }: Wake) {
        let task = TaskId(thread as u32);
        let job = self.jobs.get_mut(task);
        job.remaining = burst;
        if let Some(arrived) = arrived {
            (job.arrived, job.started) = (arrived, false);
        }
        let why = if job.warm { Enqueue::Wakeup } else { Enqueue::New };
        self.deliver(task, why);
    }

    /// The burst of the thread on `cpu` ends: it runs on, or blocks.
    pub(super) fn burst_ends(&mut self, cpu: CpuId, task: TaskId) {
        let (now, waited) = (self.view.now, self.jobs.get(task).wait);
        let more = self.service().burst_ends(task.index(), now, waited);
        self.await_service();
        if let Some(more) = more {
            // What it has run of its turn stays in `remaining` until it leaves the CPU (I2).
            self.jobs.get_mut(task).remaining += more;
            self.cpus[cpu.index()].ends = now + more;
            return self.schedule(cpu);
        }
        self.leave(cpu);
        self.on(cpu).block(task);
        self.pick(cpu, Ns::ZERO);
        self.offer_again(cpu);
    }

    /// Counts what still runs, and ends the replay.
    fn finish_replay(mut self) -> Replay {
        let now = self.view.now;
        for cpu in &mut self.cpus {
            if let Some(task) = cpu.task {
                let ran = now - cpu.began;
                self.jobs.get_mut(task).ran += ran;
                cpu.worked += ran;
            }
        }
        let threads = (0..self.jobs.len() as u32).map(TaskId);
        let ran: Vec<Ns> = threads.map(|task| self.jobs.get(task).ran).collect();
        let busy = self.cpus.iter().map(|cpu| cpu.worked).collect();
        self.service.expect("it is replayed").finish(now, &ran, busy)
    }
}
