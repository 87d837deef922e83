//! Replacing one agent by another, at the cost of a short pause for threads.

use super::control::{Answer, Peer};
use super::keeper::Keeper;
use super::options::check_policy;
use super::protocol::{AgentReply, Order};
use super::record::Stage;
use super::start::Guardian;
use super::{GuardianError, process::AgentProcess};
use heddle_core::Layer;
use heddle_sys::usdt;
use rustix::fs::{FileType, fstat};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Guardian {
    /// Replaces the agent by the program that `peer` sent, with `policy` if one is given. What can fail without the
    /// old agent is tried before the old agent leaves; if the new one fails after that, the threads are given back.
    pub(super) fn upgrade(
        &mut self,
        policy: Option<String>,
        peer: &Peer,
    ) -> Result<Answer, GuardianError> {
        let policy = policy.unwrap_or_else(|| self.record.policy.clone());
        check_policy(&policy)?;
        let program = program_of(peer)?;
        let new = self
            .ready_agent(Some(program), &policy)
            .map_err(|error| GuardianError::Failed(format!("{error}; the old agent goes on")))?;
        let before = self.keeper()?.enclave();
        self.set_stage(Stage::Upgrading);
        let gap_us = self.hand_over(new, |_| {})?;
        // The program of a successor, if this agent dies.
        self.agent_program = program.try_clone().ok();
        self.record.policy = policy;
        self.record.upgrades += 1;
        self.record.last_gap_us = Some(gap_us);
        let agent = self.record.agent.unwrap_or(0);
        usdt::policy_replaced(Layer::Agent, agent, &self.record.policy);
        self.write()?;
        Ok(Answer::Upgraded {
            gap_us,
            agent,
            policy: self.record.policy.clone(),
            failed: self.keeper()?.enclave().failed_since(&before),
        })
    }

    /// Replaces the agent by `new`. What is done to the enclave while it has no agent is `between`. Returns how long
    /// that was, in microseconds.
    pub(super) fn hand_over(
        &mut self,
        new: AgentProcess,
        between: impl FnOnce(&mut dyn Keeper),
    ) -> Result<u64, GuardianError> {
        // The old process ends only when its successor has attached: its end takes time that would be part of the
        // gap.
        let mut old = self.agent.take();
        if let Some(old) = &mut old {
            self.leave(old);
        }
        let left = Instant::now();
        if let Some(keeper) = &mut self.keeper {
            between(&mut **keeper);
        }
        self.agent = Some(new);
        if let Err(error) = self.attach() {
            self.agent_gone(Some(format!("its successor could not attach: {error}")))?;
            return Err(GuardianError::Failed(format!(
                "the new agent could not attach, and the threads were given back to the default scheduler: {error}"
            )));
        }
        Ok(u64::try_from(left.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Makes the old agent detach. One that does not is killed, and the new one finds out from the status words.
    fn leave(&mut self, old: &mut AgentProcess) {
        old.order(Order::Leave);
        if let Err(error) = self.expect(old, &AgentReply::Left) {
            self.say(&format!("the old agent did not leave in order: {error}"));
            old.end();
        }
    }
}

/// Returns the program that the peer sent. It will run with our privileges, so only our own user and root may
/// choose it, and no other user may be able to change it. The file that was checked is the one that runs.
fn program_of(peer: &Peer) -> Result<&OwnedFd, GuardianError> {
    let refused =
        |text: &str| Err(GuardianError::Failed(format!("the upgrade is refused: {text}")));
    if ![0, geteuid().as_raw()].contains(&peer.uid) {
        return refused("the caller has fewer privileges than the guardian; run it as root");
    }
    let Some(program) = &peer.program else {
        return refused(
            "no program was sent with it (an older heddle?); run it with the binary that is to be the agent",
        );
    };
    let stat = fstat(program).map_err(GuardianError::system("cannot stat the new program"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refused("the file sent with it is not a program");
    }
    if ![0, geteuid().as_raw()].contains(&stat.st_uid) {
        return refused("the program belongs to another user, who may change it; chown it to root");
    }
    if stat.st_mode & 0o022 != 0 {
        return refused("the program is writable by other users; chmod go-w it");
    }
    Ok(program)
}
