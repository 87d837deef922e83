//! What a policy requires of its hook, and hooks that cannot provide it.

use crate::Policy;
use core::fmt;

/// What a hook can do for a policy, or why it cannot.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Takes a running task off its CPU: [`Policy::quantum`] and [`Policy::PREEMPTS`].
    pub preemption: Result<(), &'static str>,
    /// Reports the end of each turn to the policy as it happens: [`Policy::COUNTS_RUNNING`].
    pub ends: Result<(), &'static str>,
}

impl Abilities {
    /// All abilities.
    pub const ALL: Abilities = Abilities { preemption: Ok(()), ends: Ok(()) };

    /// Returns whether `policy` can run here.
    ///
    /// # Errors
    /// The ability that the policy needs and this hook lacks.
    pub fn suffice<P: Policy>(&self, policy: &P) -> Result<(), Lacks> {
        let lacks = |need, why| Lacks { policy: P::NAME, need, why };
        if P::PREEMPTS || policy.quantum().is_some() {
            self.preemption.map_err(|why| lacks("preempts running tasks", why))?;
        }
        if P::COUNTS_RUNNING {
            self.ends.map_err(|why| lacks("counts the tasks that run on each CPU", why))?;
        }
        Ok(())
    }
}

/// Why a hook refuses a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    /// The policy's name.
    pub policy: &'static str,
    /// What the policy does, as a verb phrase.
    pub need: &'static str,
    /// Why the hook cannot do that, as a sentence without its full stop.
    pub why: &'static str,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy `{}` {}, but {}", self.policy, self.need, self.why)
    }
}

impl core::error::Error for Lacks {}
