//! Enclaves that get other CPUs while they live: a successor that knows the new CPUs replaces the agent, as in an
//! upgrade.
//!
//! What can be refused comes first: the added CPUs are recorded as this enclave's and taken, so that no other enclave
//! gets them, and the successor loads. Only when the old agent has left are CPUs given up.

use super::GuardianError;
use super::control::Answer;
use super::cpus::{self, Cpus, MachineCpus};
use super::record::Stage;
use super::start::Guardian;
use super::{clean, cleaned};
use crate::Moved;

impl Guardian {
    /// Gives the enclave `wanted` instead of its present CPUs. If that is refused, or the successor cannot start, the
    /// old agent goes on with the old CPUs; if the successor fails after that, the threads are given back.
    pub(super) fn resize(&mut self, wanted: Cpus) -> Result<Answer, GuardianError> {
        let before = self.record.cpus.clone();
        if wanted == before {
            return Ok(self.resized(None, 0, Moved::default()));
        }
        self.options.check_cpus(&wanted, &MachineCpus::here()?)?;
        self.claim(&wanted)?;
        self.spec.cpus = wanted.iter().copied().collect();
        let (policy, program) = (self.record.policy.clone(), self.agent_program.take());
        let new = self.ready_agent(program.as_ref(), &policy);
        self.agent_program = program;
        let new = match new {
            Ok(new) => new,
            Err(error) => {
                self.spec.cpus = before.iter().copied().collect();
                self.release(&before)?;
                return Err(GuardianError::Failed(format!(
                    "{error}; the old agent goes on, on CPUs {}",
                    cpus::format(&before)
                )));
            }
        };
        let word = self.keeper()?.enclave();
        self.set_stage(Stage::Upgrading);
        let (mut moved, kept) = (Moved::default(), wanted.clone());
        self.record.cpus = wanted;
        let gap_us = self.hand_over(new, |keeper| moved = keeper.shrink(&kept))?;
        self.record.resizes += 1;
        self.write()?;
        let failed = self.keeper()?.enclave().failed_since(&word);
        Ok(self.resized(Some(gap_us), failed, moved))
    }

    /// Takes the CPUs of `wanted` that the enclave does not have, and keeps the others.
    fn claim(&mut self, wanted: &Cpus) -> Result<(), GuardianError> {
        for done in clean(&self.enclaves, self.backends) {
            self.say(&cleaned(&done));
        }
        let before = self.record.cpus.clone();
        let all: Cpus = before.union(wanted).copied().collect();
        let one_at_a_time = self.enclaves.lock()?;
        self.enclaves.check_overlap(&all, &self.record.name)?;
        self.record.cpus = all;
        let taken = self.write().and_then(|()| match &mut self.keeper {
            Some(keeper) => keeper.grow(&self.record.cpus),
            None => Ok(()),
        });
        drop(one_at_a_time);
        taken.or_else(|error| {
            self.record.cpus = before;
            self.write()?;
            Err(error)
        })
    }

    /// Gives up the CPUs that were taken in vain.
    fn release(&mut self, before: &Cpus) -> Result<(), GuardianError> {
        if let Some(keeper) = &mut self.keeper {
            keeper.shrink(before);
        }
        self.record.cpus = before.clone();
        self.write()
    }

    fn resized(&self, gap_us: Option<u64>, failed: u64, moved: Moved) -> Answer {
        let Moved { moved, outside } = moved;
        let (cpus, agent) = (self.record.cpus.clone(), self.record.agent.unwrap_or(0));
        Answer::Resized { cpus, gap_us, agent, failed, moved, outside }
    }
}
