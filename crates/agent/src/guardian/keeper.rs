//! What the guardian needs of a backend beyond [`Backend`]: making enclaves, adding threads, giving them back.

use super::cpus::Cpus;
use super::{GuardianError, Kind};
use crate::model::EnclaveWord;
use crate::scx::SchedulerExit;
use crate::{Backend, EnclaveSpec, Moved};
use heddle_sys::processes::Process;
use std::collections::BTreeSet;

/// The guardian's handle of an enclave. Dropping it removes the enclave and gives its threads back to the default
/// scheduler.
pub trait Keeper: Send {
    /// Returns the enclave's status word.
    fn enclave(&self) -> EnclaveWord;
    /// Adds a thread, and with it its future children. The thread may be stopped or may have ended.
    ///
    /// # Errors
    /// The kernel's errors.
    fn join(&self, tid: u32) -> Result<(), GuardianError>;
    /// Adds all threads of a process. Returns how many joined; zero if there is no such process.
    ///
    /// # Errors
    /// The kernel's errors.
    fn join_process(&self, pid: u32) -> Result<usize, GuardianError>;
    /// Gives all threads back to the default scheduler, as they were before. Returns how many. May be called again.
    ///
    /// # Errors
    /// If threads could not be given back.
    fn give_back(&self) -> Result<usize, GuardianError>;
    /// Returns why the kernel has ended the backend under the enclave; none while it works.
    fn ended(&self) -> Option<SchedulerExit> {
        None
    }
    /// Returns the processes that have threads in the enclave, or had when the backend ended.
    fn members(&self) -> Vec<Process>;
    /// Makes the enclave an orphan if its agent hangs, for backends whose kernel side does not. Called several
    /// times a second.
    fn check_patience(&self) {}
    /// Reports to the enclave which of the machine's CPUs are online, for backends whose kernel side does not see it.
    /// Called several times a second.
    fn set_online(&self, _: &Cpus) {}
    /// Gives unmanaged threads of the backend's class, of any user, to the default scheduler, so that they do no
    /// harm. Called several times a second, also without an agent.
    fn release_unmanaged(&self) {}
    /// Adds CPUs to the enclave. Its present agent does not use them.
    ///
    /// # Errors
    /// If another enclave has one of them, or the backend cannot do this; nothing has changed then.
    fn grow(&mut self, _: &Cpus) -> Result<(), GuardianError> {
        Err(GuardianError::Failed(
            "this backend cannot change the CPUs of a running enclave: end it with `heddle agent stop` and start it \
             again with `heddle agent run --cpus`, or use --backend rt"
                .into(),
        ))
    }
    /// Takes all CPUs but these from the enclave, which has no agent at that moment. Threads on the others move.
    fn shrink(&mut self, _: &Cpus) -> Moved {
        Moved::default()
    }
}

/// Returns the processes that have threads in an enclave.
pub(super) fn processes_of(backend: &dyn Backend) -> Vec<Process> {
    let threads = backend.threads().into_iter();
    let processes: BTreeSet<u32> = threads.map(|thread| backend.thread(thread).tgid).collect();
    processes.into_iter().filter_map(Process::of).collect()
}

/// The available backends: the kernel's, or a test's.
pub trait Backends: Send + Sync {
    /// Checks whether `kind` works here.
    ///
    /// # Errors
    /// The reason, as a sentence.
    fn probe(&self, kind: Kind) -> Result<(), String>;
    /// Makes an enclave.
    ///
    /// # Errors
    /// The kernel's errors, or a CPU of another enclave.
    fn create(&self, kind: Kind, spec: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError>;
    /// Removes what a dead guardian and its dead agent left of an enclave. Returns the number of threads given
    /// back.
    ///
    /// # Errors
    /// The kernel's errors.
    fn undo(&self, kind: Kind, name: &str) -> Result<usize, GuardianError>;
}

/// The requested backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// sched_ext if it works here; else the kernel's fair scheduler if that can express the policy; else real-time
    /// priorities.
    #[default]
    Auto,
    /// This backend or none.
    Only(Kind),
}

/// Chooses the backend. Also returns a note on the choice. `no_fair` is the reason why the kernel's fair scheduler
/// cannot do what is asked for, if there is one.
///
/// # Errors
/// If none works here.
pub fn choose(
    backends: &dyn Backends,
    wanted: BackendChoice,
    no_fair: Option<String>,
) -> Result<(Kind, Option<String>), GuardianError> {
    let probe = |kind| match (kind, &no_fair) {
        (Kind::Fair, Some(why)) => Err(why.clone()),
        _ => backends.probe(kind),
    };
    if let BackendChoice::Only(kind) = wanted {
        let failed =
            |why| GuardianError::Failed(format!("the {kind} backend does not work here: {why}"));
        return probe(kind).map(|()| (kind, None)).map_err(failed);
    }
    let Err(no_scx) = probe(Kind::Scx) else { return Ok((Kind::Scx, None)) };
    let Err(no_fair) = probe(Kind::Fair) else {
        return Ok((
            Kind::Fair,
            Some(format!(
                "using the fair backend, because scx does not work here ({no_scx}): \
                 the kernel's own scheduler carries the policy out, by nice values, slices and weights"
            )),
        ));
    };
    match probe(Kind::Rt) {
        Ok(()) => Ok((
            Kind::Rt,
            Some(format!(
                "using the rt backend, because scx does not work here ({no_scx}), nor fair ({no_fair}): \
                 managed threads have priority over ordinary ones, and waiting ones still run on idle CPUs"
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
    fn auto_prefers_scx_then_fair_then_rt_and_gives_the_reason() {
        let all = Fake { scx: Ok(()), fair: Ok(()), rt: Ok(()) };
        assert_eq!(choose(&all, BackendChoice::Auto, None).unwrap(), (Kind::Scx, None));
        let only = |kind| choose(&all, BackendChoice::Only(kind), None).unwrap();
        assert_eq!(only(Kind::Rt), (Kind::Rt, None));
        assert_eq!(only(Kind::Fair), (Kind::Fair, None));

        let stock = Fake { scx: no("no sched_ext"), fair: Ok(()), rt: Ok(()) };
        let chosen = |no_fair: Option<&str>| {
            let (kind, said) =
                choose(&stock, BackendChoice::Auto, no_fair.map(str::to_owned)).unwrap();
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
    fn an_unusable_backend_is_refused_with_the_reason() {
        let none = Fake { scx: no("a"), fair: no("b"), rt: no("c") };
        let refused = |wanted, no_fair| choose(&none, wanted, no_fair).unwrap_err().to_string();
        assert!(refused(BackendChoice::Auto, None).contains("scx: a. fair: b. rt: c"));
        let scx = refused(BackendChoice::Only(Kind::Scx), None);
        assert_eq!(scx, "the scx backend does not work here: a");
        let fair = refused(BackendChoice::Only(Kind::Fair), Some("sizes".into()));
        assert_eq!(fair, "the fair backend does not work here: sizes");
    }
}
