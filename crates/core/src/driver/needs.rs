//! What a policy needs of its hook, and hooks that cannot offer it.

use crate::Policy;
use core::fmt;

/// What a hook can do for a policy, or why not.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Takes a running task off its CPU: [`Policy::quantum`] and [`Policy::PREEMPTS`].
    pub preemption: Result<(), &'static str>,
    /// Tells the policy of the end of each turn as it comes: [`Policy::COUNTS_RUNNING`].
    pub ends: Result<(), &'static str>,
}

impl Abilities {
    /// Everything.
    pub const ALL: Abilities = Abilities { preemption: Ok(()), ends: Ok(()) };

    /// Whether `policy` can run here.
    ///
    /// # Errors
    /// What it needs and this hook lacks.
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
    /// Why the hook has no use for that, as a sentence without its full stop.
    pub why: &'static str,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy `{}` {}, but {}", self.policy, self.need, self.why)
    }
}

impl core::error::Error for Lacks {}
