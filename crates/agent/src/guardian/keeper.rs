//! What the guardian needs of a backend beyond [`Backend`]: making enclaves, putting threads in, giving them back.

use super::{GuardianError, Kind};
use crate::{Backend, EnclaveSpec};

/// An enclave, in its guardian's hands. When this is dropped, the enclave is removed and its threads are the default scheduler's.
pub trait Keeper: Send {
    /// The enclave as agents see it.
    fn backend(&self) -> &dyn Backend;
    /// Puts a thread in. Its children follow it. The thread may be stopped; it may have ended.
    ///
    /// # Errors
    /// The kernel's.
    fn join(&self, tid: u32) -> Result<(), GuardianError>;
    /// Puts all threads of a process in. The number of those that came; none where there is no such process.
    ///
    /// # Errors
    /// The kernel's.
    fn join_process(&self, pid: u32) -> Result<usize, GuardianError>;
    /// Gives all threads back to the default scheduler, as they were. The number of them. May be called again.
    ///
    /// # Errors
    /// Where threads could not be given back.
    fn give_back(&self) -> Result<usize, GuardianError>;
    /// Makes the enclave an orphan if its agent hangs, where the kernel's half does not do that. Called several times a second.
    fn look(&self) {}
    /// Sees to it that threads that nobody schedules harm nobody, whosever they are. Called several times a second, also without an agent.
    fn look_around(&self) {}
}

/// The backends that there are: of the kernel, or of a test.
pub trait Backends: Send + Sync {
    /// Why `kind` does not work here.
    ///
    /// # Errors
    /// A sentence.
    fn probe(&self, kind: Kind) -> Result<(), String>;
    /// Makes an enclave.
    ///
    /// # Errors
    /// The kernel's; CPUs of another enclave.
    fn create(&self, kind: Kind, spec: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError>;
    /// Removes what a dead guardian and its dead agent left of an enclave. The number of threads given back.
    ///
    /// # Errors
    /// The kernel's.
    fn undo(&self, kind: Kind, name: &str) -> Result<usize, GuardianError>;
}

/// Which backend is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// sched_ext if it works here, else real-time priorities.
    #[default]
    Auto,
    /// This one or none.
    Only(Kind),
}

/// The backend to use, and what to say of the choice.
///
/// # Errors
/// None works here.
pub fn choose(
    backends: &dyn Backends,
    wanted: Wanted,
) -> Result<(Kind, Option<String>), GuardianError> {
    let failed =
        |kind, why| GuardianError::Failed(format!("the {kind} backend does not work here: {why}"));
    if let Wanted::Only(kind) = wanted {
        return match backends.probe(kind) {
            Ok(()) => Ok((kind, None)),
            Err(why) => Err(failed(kind, why)),
        };
    }
    let Err(no_scx) = backends.probe(Kind::Scx) else { return Ok((Kind::Scx, None)) };
    match backends.probe(Kind::Rt) {
        Ok(()) => Ok((
            Kind::Rt,
            Some(format!(
                "using the rt backend, because scx does not work here ({no_scx}): managed threads are above ordinary ones, and those that wait still run on CPUs that are idle"
            )),
        )),
        Err(no_rt) => {
            Err(GuardianError::Failed(format!("no backend works here. scx: {no_scx}. rt: {no_rt}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        scx: Result<(), String>,
        rt: Result<(), String>,
    }

    impl Backends for Fake {
        fn probe(&self, kind: Kind) -> Result<(), String> {
            match kind {
                Kind::Scx => self.scx.clone(),
                Kind::Rt => self.rt.clone(),
            }
        }
        fn create(&self, _: Kind, _: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError> {
            unreachable!("nothing is made")
        }
        fn undo(&self, _: Kind, _: &str) -> Result<usize, GuardianError> {
            Ok(0)
        }
    }

    #[test]
    fn auto_prefers_scx_and_says_why_not() {
        let no = |why: &str| Err::<(), _>(why.to_owned());
        let both = Fake { scx: Ok(()), rt: Ok(()) };
        assert_eq!(choose(&both, Wanted::Auto).unwrap(), (Kind::Scx, None));
        assert_eq!(choose(&both, Wanted::Only(Kind::Rt)).unwrap(), (Kind::Rt, None));
        let weak = Fake { scx: no("no sched_ext"), rt: Ok(()) };
        let (kind, said) = choose(&weak, Wanted::Auto).unwrap();
        let said = said.unwrap();
        assert_eq!(kind, Kind::Rt);
        assert!(said.contains("no sched_ext") && !said.contains('\n'), "{said}");
        let error = choose(&weak, Wanted::Only(Kind::Scx)).unwrap_err().to_string();
        assert_eq!(error, "the scx backend does not work here: no sched_ext");
        let none = Fake { scx: no("a"), rt: no("b") };
        assert!(choose(&none, Wanted::Auto).unwrap_err().to_string().contains("scx: a. rt: b"));
    }
}
