//! One agent after another, without a thread noticing more than a pause.

use super::control::{Answer, Peer};
use super::options::check_policy;
use super::record::Stage;
use super::start::Guardian;
use super::talk::{Order, Said};
use super::{GuardianError, process::AgentProcess};
use rustix::fs::{FileType, fstat};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Guardian {
    /// The program that `peer` sent becomes the agent, with `policy` if one is given. What can fail without the old agent is tried
    /// before it is told to leave; should the new one fail after that, the threads are given back.
    pub(super) fn upgrade(
        &mut self,
        policy: Option<String>,
        peer: &Peer,
    ) -> Result<Answer, GuardianError> {
        let policy = policy.unwrap_or_else(|| self.record.policy.clone());
        check_policy(&policy)?;
        let program = program_of(peer)?;
        let new = self.ready_agent(Some(program), &policy).map_err(|error| {
            GuardianError::Failed(format!("{error}; the agent that was there goes on"))
        })?;
        let before = self.keeper()?.enclave();
        self.record.stage = Stage::Upgrading;
        let gap_us = self.hand_over(new)?;
        // What follows it, should it die.
        self.agent_program = program.try_clone().ok();
        self.record.policy = policy;
        self.record.upgrades += 1;
        self.record.last_gap_us = Some(gap_us);
        self.write()?;
        Ok(Answer::Upgraded {
            gap_us,
            agent: self.record.agent.unwrap_or(0),
            policy: self.record.policy.clone(),
            failed: self.keeper()?.enclave().failed_since(&before),
        })
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

/// What the peer wants to have run. It runs with our privileges, so only our own user and root may say what; and what others may
/// write to, they would say. The file that was looked at is the one that runs.
fn program_of(peer: &Peer) -> Result<&OwnedFd, GuardianError> {
    let refused =
        |text: &str| Err(GuardianError::Failed(format!("the upgrade is refused: {text}")));
    if ![0, geteuid().as_raw()].contains(&peer.uid) {
        return refused("its asker has fewer privileges than the guardian; ask as root");
    }
    let Some(program) = &peer.program else {
        return refused(
            "no program came with it (an older heddle?); ask with the binary that is to be the agent",
        );
    };
    let stat = fstat(program).map_err(GuardianError::system("cannot look at the new program"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refused("what came with it is no program");
    }
    if ![0, geteuid().as_raw()].contains(&stat.st_uid) {
        return refused("the program is another user's, who may change it; chown it to root");
    }
    if stat.st_mode & 0o022 != 0 {
        return refused("other users may write to the program; chmod go-w it");
    }
    Ok(program)
}
