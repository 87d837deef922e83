//! Restarts of agents that have died: a limited number in a minute.

use super::start::Guardian;
use super::target::{JoinReport, Target, join_target};
use super::{GuardianError, Stage};
use heddle_sys::processes::Process;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The time in which restarts are counted.
const WITHIN: Duration = Duration::from_secs(60);

/// The times of recent restarts.
#[derive(Debug)]
pub(super) struct Restarts {
    limit: usize,
    at: VecDeque<Instant>,
}

impl Restarts {
    /// Allows `limit` restarts in a minute; 0: none.
    pub fn new(limit: u32) -> Restarts {
        Restarts { limit: limit as usize, at: VecDeque::new() }
    }

    /// Whether one more restart is allowed `now`; if so, counts it.
    fn one_more(&mut self, now: Instant) -> bool {
        while self.at.front().is_some_and(|at| now.duration_since(*at) >= WITHIN) {
            self.at.pop_front();
        }
        let allowed = self.at.len() < self.limit;
        if allowed {
            self.at.push_back(now);
        }
        allowed
    }
}

impl Guardian {
    /// Replaces an agent that has died, for the reason `why`, if that is allowed. The error is appended to the
    /// reason.
    ///
    /// Meanwhile the threads belong to the default scheduler. The enclave is made anew, so that nothing of the dead
    /// agent remains in it, and the processes that had threads in it join again with all of theirs.
    pub(super) fn restart(&mut self, members: &[Process], why: &str) -> Result<(), String> {
        if !self.restarts.one_more(Instant::now()) {
            return Err(match self.options.restarts {
                0 => String::new(),
                limit => format!("; it has died more than {limit} times within a minute"),
            });
        }
        let taken = self
            .follow(members)
            .map_err(|error| format!("; a new one could not be started: {error}"))?;
        self.record.restarts += 1;
        self.record.last_death = Some(why.to_owned());
        self.say(&format!(
            "the agent of enclave `{}` is gone ({why}); \
             a new one schedules {taken} (restart {} of at most {} within a minute)",
            self.record.name,
            self.restarts.at.len(),
            self.restarts.limit
        ));
        self.write().map_err(|error| format!("; {error}"))
    }

    fn follow(&mut self, members: &[Process]) -> Result<JoinReport, GuardianError> {
        self.set_stage(Stage::Restarting);
        self.write()?;
        // The dead agent's last report must not pass for its successor's.
        let _ = std::fs::remove_file(self.folder.status());
        // A CPU belongs to one enclave at a time.
        drop(self.keeper.take());
        self.keeper = Some(self.backends.create(self.record.backend, &self.spec)?);
        let policy = self.record.policy.clone();
        let program = self.agent_program.take();
        let agent = self.ready_agent(program.as_ref(), &policy);
        self.agent_program = program;
        self.agent = Some(agent?);
        self.attach()?;
        self.come_again(members)
    }

    fn come_again(&self, members: &[Process]) -> Result<JoinReport, GuardianError> {
        let (mut all, mut seen) = (JoinReport::default(), BTreeSet::new());
        for process in members.iter().filter(|process| process.lives()) {
            let target = Target::Pid(process.pid);
            let JoinReport { processes, refused } =
                join_target(self.keeper()?, &target, &self.own(), &mut seen)?;
            all.processes.extend(processes);
            all.refused.extend(refused);
        }
        Ok(all)
    }

    /// Returns the processes that have threads in the enclave.
    pub(super) fn members(&self) -> Vec<Process> {
        self.keeper().map_or_else(|_| Vec::new(), |keeper| keeper.members())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_limited_within_a_minute() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut restarts = Restarts::new(2);
        let allowed = [0, 1, 2, 59, 60, 60, 61, 62, 121].map(|s| restarts.one_more(at(s)));
        assert_eq!(allowed, [true, true, false, false, true, false, true, false, true]);
        assert!(!Restarts::new(0).one_more(begin));
    }
}
