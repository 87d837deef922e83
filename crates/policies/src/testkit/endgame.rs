//! The end of every run: others keep arriving and no task may starve; then all exit and none may be
//! lost.

use super::Violation;
use super::events::{Commit, Leave};
use super::ledger::{Run, TaskLocation};
use super::machine::{Machine, Step};
use heddle_core::{CpuId, Enqueue, Ns, Policy};
use std::vec::Vec;

/// How often all CPUs take a task before one that still waits counts as starved.
const TURNS: usize = 4_096;
/// How often all CPUs may ask in vain before a waiting task counts as lost.
const PATIENCE: usize = 1_000;

impl<P: Policy> Machine<P> {
    /// Every running task sleeps and wakes at once, so that others keep arriving; still, all tasks that
    /// wait now must get a turn. Each runs long enough in between for a fair policy to even out what
    /// earlier events let one task have.
    pub(super) fn churn(&mut self) -> Step {
        let mut waiting: Vec<_> = self.ledger.waiting().collect();
        for _ in 0..TURNS {
            let Some(_) = waiting.first() else { return Ok(()) };
            for cpu in self.all_cpus() {
                self.nap(cpu)?;
                let picked = self.pick(cpu, Commit::Runs)?;
                waiting.retain(|&task| Some(task) != picked);
                self.pass(Ns::from_us(100));
                self.settle()?;
            }
        }
        Err(Violation::Starved(waiting[0]))
    }

    fn nap(&mut self, cpu: CpuId) -> Step {
        let Some(Run { task, .. }) = self.ledger.running[cpu.index()] else { return Ok(()) };
        self.leave(cpu, Leave::Block)?;
        self.admit(cpu, task, Enqueue::Wakeup)?;
        self.settle()
    }

    /// Every task wakes, runs once and exits.
    pub(super) fn drain(&mut self) -> Step {
        let asleep: Vec<_> = self.ledger.all(|at| at == TaskLocation::Asleep).collect();
        asleep.into_iter().try_for_each(|task| self.admit(CpuId(0), task, Enqueue::Wakeup))?;
        let mut vain = 0;
        while let Some(task) = self.ledger.first_waiting() {
            self.settle()?;
            vain = if self.round()? { 0 } else { vain + 1 };
            if vain == PATIENCE {
                return Err(Violation::Lost(task));
            }
        }
        self.round()?;
        self.settle()
    }

    /// Ends what runs and lets every CPU ask; returns whether anything was proposed.
    fn round(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        for cpu in self.all_cpus() {
            self.leave(cpu, Leave::Exit)?;
            self.settle()?;
            any |= self.pick(cpu, Commit::Runs)?.is_some();
        }
        self.pass(Ns::from_us(100));
        Ok(any)
    }
}
