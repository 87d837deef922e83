//! What the guardian needs of a backend beyond [`Backend`]: making enclaves, putting threads in, giving them back.

use super::{GuardianError, Kind};
use crate::model::EnclaveWord;
use crate::scx::Ended;
use crate::{Backend, EnclaveSpec};
use heddle_sys::processes::Process;
use std::collections::BTreeSet;

/// An enclave, in its guardian's hands. When this is dropped, the enclave is removed and its threads are the default scheduler's.
pub trait Keeper: Send {
    /// What is so of the enclave.
    fn enclave(&self) -> EnclaveWord;
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
    /// How the kernel has ended the backend under the enclave; none while it works.
    fn ended(&self) -> Option<Ended> {
        None
    }
    /// The processes that have threads in the enclave, or had when the backend was ended.
    fn members(&self) -> Vec<Process>;
    /// Makes the enclave an orphan if its agent hangs, where the kernel's half does not do that. Called several times a second.
    fn look(&self) {}
    /// Sees to it that threads that nobody schedules harm nobody, whosever they are. Called several times a second, also without an agent.
    fn look_around(&self) {}
}

/// The processes that have threads in an enclave.
pub(super) fn processes_of(backend: &dyn Backend) -> Vec<Process> {
    let threads = backend.threads().into_iter();
    let processes: BTreeSet<u32> = threads.map(|thread| backend.thread(thread).tgid).collect();
    processes.into_iter().filter_map(Process::of).collect()
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
    /// sched_ext if it works here; else the kernel's fair scheduler if that can express the policy; else real-time priorities.
    #[default]
    Auto,
    /// This one or none.
    Only(Kind),
}

/// The backend to use, and what to say of the choice; `no_fair` is why the kernel's fair scheduler cannot do what is asked for, if so.
///
/// # Errors
/// None works here.
pub fn choose(
    backends: &dyn Backends,
    wanted: Wanted,
    no_fair: Option<String>,
) -> Result<(Kind, Option<String>), GuardianError> {
    let probe = |kind| match (kind, &no_fair) {
        (Kind::Fair, Some(why)) => Err(why.clone()),
        _ => backends.probe(kind),
    };
    if let Wanted::Only(kind) = wanted {
        let failed =
            |why| GuardianError::Failed(format!("the {kind} backend does not work here: {why}"));
        return probe(kind).map(|()| (kind, None)).map_err(failed);
    }
    let Err(no_scx) = probe(Kind::Scx) else { return Ok((Kind::Scx, None)) };
    let Err(no_fair) = probe(Kind::Fair) else {
        return Ok((
            Kind::Fair,
            Some(format!(
                "using the fair backend, because scx does not work here ({no_scx}): the kernel's own scheduler carries the policy out, by nice values, slices and weights"
            )),
        ));
    };
    match probe(Kind::Rt) {
        Ok(()) => Ok((
            Kind::Rt,
            Some(format!(
                "using the rt backend, because scx does not work here ({no_scx}), nor fair ({no_fair}): managed threads are above ordinary ones, and those that wait still run on CPUs that are idle"
            )),
        )),
        Err(no_rt) => Err(GuardianError::Failed(format!(
            "no backend works here. scx: {no_scx}. fair: {no_fair}. rt: {no_rt}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        scx: Result<(), String>,
        fair: Result<(), String>,
        rt: Result<(), String>,
    }

    impl Backends for Fake {
        fn probe(&self, kind: Kind) -> Result<(), String> {
            match kind {
                Kind::Scx => self.scx.clone(),
                Kind::Fair => self.fair.clone(),
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

    fn no(why: &str) -> Result<(), String> {
        Err(why.to_owned())
    }

    #[test]
    fn auto_prefers_scx_then_what_the_kernel_can_do_itself_and_says_why() {
        let all = Fake { scx: Ok(()), fair: Ok(()), rt: Ok(()) };
        assert_eq!(choose(&all, Wanted::Auto, None).unwrap(), (Kind::Scx, None));
        let only = |kind| choose(&all, Wanted::Only(kind), None).unwrap();
        assert_eq!(only(Kind::Rt), (Kind::Rt, None));
        assert_eq!(only(Kind::Fair), (Kind::Fair, None));

        let stock = Fake { scx: no("no sched_ext"), fair: Ok(()), rt: Ok(()) };
        let chosen = |no_fair: Option<&str>| {
            let (kind, said) = choose(&stock, Wanted::Auto, no_fair.map(str::to_owned)).unwrap();
            (kind, said.unwrap())
        };
        let (kind, said) = chosen(None);
        assert_eq!(kind, Kind::Fair);
        assert!(said.contains("no sched_ext") && !said.contains('\n'), "{said}");
        let (kind, said) = chosen(Some("it orders by size"));
        assert_eq!(kind, Kind::Rt);
        assert!(said.contains("no sched_ext") && said.contains("it orders by size"), "{said}");
    }

    #[test]
    fn what_does_not_work_is_said() {
        let none = Fake { scx: no("a"), fair: no("b"), rt: no("c") };
        let refused = |wanted, no_fair| choose(&none, wanted, no_fair).unwrap_err().to_string();
        assert!(refused(Wanted::Auto, None).contains("scx: a. fair: b. rt: c"));
        let scx = refused(Wanted::Only(Kind::Scx), None);
        assert_eq!(scx, "the scx backend does not work here: a");
        let fair = refused(Wanted::Only(Kind::Fair), Some("sizes".into()));
        assert_eq!(fair, "the fair backend does not work here: sizes");
    }
}
