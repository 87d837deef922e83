//! One agent after another, without a thread noticing more than a pause.

use super::control::Answer;
use super::options::check_policy;
use super::record::Stage;
use super::start::Guardian;
use super::talk::{Order, Said};
use super::{GuardianError, process::AgentProcess};
use std::ffi::OsString;
use std::time::Instant;

impl Guardian {
    /// The binary of process `peer` becomes the agent, with `policy` if one is given. What can fail without the old agent is tried before
    /// it is told to leave; should the new one fail after that, the threads are given back.
    pub(super) fn upgrade(
        &mut self,
        policy: Option<String>,
        peer: u32,
    ) -> Result<Answer, GuardianError> {
        let policy = policy.unwrap_or_else(|| self.record.policy.clone());
        check_policy(&policy)?;
        let new = self.ready_agent(&self.command_of(peer), &policy).map_err(|error| {
            GuardianError::Failed(format!("{error}; the agent that was there goes on"))
        })?;
        let failed = self.keeper.backend().enclave().failed;
        self.record.stage = Stage::Upgrading;
        let gap_us = self.hand_over(new)?;
        self.record.policy = policy;
        self.record.upgrades += 1;
        self.record.last_gap_us = Some(gap_us);
        self.write()?;
        Ok(Answer::Upgraded {
            gap_us,
            agent: self.record.agent.unwrap_or(0),
            policy: self.record.policy.clone(),
            failed: self.keeper.backend().enclave().failed - failed,
        })
    }

    /// Our agent's command with the asker's binary. It waits for the answer, so its file is there.
    fn command_of(&self, peer: u32) -> Vec<OsString> {
        let arguments = self.options.agent.iter().skip(1).cloned();
        std::iter::once(format!("/proc/{peer}/exe").into()).chain(arguments).collect()
    }

    fn hand_over(&mut self, new: AgentProcess) -> Result<u64, GuardianError> {
        // It ends only when its successor has attached: its end takes time, and would be part of the gap.
        let mut old = self.agent.take();
        if let Some(old) = &mut old {
            self.leave(old);
        }
        let left = Instant::now();
        self.agent = Some(new);
        if let Err(error) = self.attach() {
            self.agent_gone(Some(format!("its successor could not attach: {error}")))?;
            return Err(GuardianError::Failed(format!(
                "the new agent could not attach, and the threads were given back to the default scheduler: {error}"
            )));
        }
        Ok(u64::try_from(left.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The old agent detaches; one that does not is ended, and the new one finds out what that means.
    fn leave(&mut self, old: &mut AgentProcess) {
        old.order(Order::Leave);
        if let Err(error) = self.expect(old, &Said::Left) {
            self.say(&format!("the old agent did not leave in order: {error}"));
            old.end();
        }
    }
}
