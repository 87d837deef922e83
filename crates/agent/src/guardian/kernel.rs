//! The backends of this machine's kernel.

use super::cpus::Cpus;
use super::keeper::{Backends, Keeper, processes_of};
use super::{Enclaves, GuardianError, Kind};
use crate::fair::{self, Fair};
use crate::model::{EnclaveWord, State};
use crate::rt::{self, Rt, RtError};
use crate::scx::{self, SchedulerExit, Scx, ScxError};
use crate::{Backend, EnclaveSpec, Moved};
use heddle_sys::processes::Process;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kernel's own backends.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelBackends;

impl Backends for KernelBackends {
    fn probe(&self, kind: Kind) -> Result<(), String> {
        match kind {
            Kind::Scx => scx::probe().map_err(|missing| missing.to_string()),
            Kind::Fair => fair::probe(),
            Kind::Rt => rt::probe().map_err(|missing| missing.to_string()),
        }
    }

    fn create(&self, kind: Kind, spec: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError> {
        Ok(match kind {
            Kind::Scx => Box::new(ScxKeeper {
                enclave: Some(Scx::create(spec)?),
                checked_at: Cell::default(),
            }),
            Kind::Fair => Box::new(create_fair(spec)?),
            Kind::Rt => Box::new(Rt::create(spec)?),
        })
    }

    fn undo(&self, kind: Kind, name: &str) -> Result<usize, GuardianError> {
        match kind {
            Kind::Fair => {
                let folder = Enclaves::here().folder(name)?;
                Fair::undo(folder.path()).map_err(GuardianError::system(GIVING_BACK))
            }
            Kind::Rt => Ok(Rt::undo(name)?),
            Kind::Scx => Ok(scx::undo(name)?),
        }
    }
}

const GIVING_BACK: &str = "not all threads could be given back";

fn create_fair(spec: &EnclaveSpec) -> Result<Fair, GuardianError> {
    let folder = Enclaves::here().folder(&spec.name)?;
    let failed = format!("cannot write to {}", folder.path().display());
    Fair::create(folder.path(), spec).map_err(GuardianError::system(failed))
}

/// Opens an enclave that another process has made, for its agent.
///
/// # Errors
/// If it does not exist, or has the kernel's fair scheduler, for which no agent decides.
pub fn open(kind: Kind, name: &str) -> Result<Arc<dyn Backend>, GuardianError> {
    Ok(match kind {
        Kind::Fair => {
            return Err(GuardianError::Failed(
                "the kernel's own scheduler decides for this enclave".into(),
            ));
        }
        Kind::Scx => Arc::new(Scx::open(name)?),
        Kind::Rt => Arc::new(Rt::open(name)?),
    })
}

/// As [`open`], for an agent that decides for `cpus` of the enclave only.
///
/// # Errors
/// As [`open`].
pub(super) fn open_on(
    kind: Kind,
    name: &str,
    cpus: &Cpus,
) -> Result<Arc<dyn Backend>, GuardianError> {
    match kind {
        Kind::Rt => Ok(Arc::new(Rt::open_on(name, cpus)?)),
        // Their enclaves keep their CPUs.
        Kind::Scx | Kind::Fair => open(kind, name),
    }
}

/// Returns the number of an enclave's threads in each state; none if this process may not read them.
#[must_use]
pub fn states(kind: Kind, name: &str) -> Option<BTreeMap<String, usize>> {
    if kind == Kind::Fair {
        return fair::states(Enclaves::here().folder(name).ok()?.path());
    }
    let backend = open(kind, name).ok()?;
    let mut states = BTreeMap::new();
    for thread in backend.threads() {
        let state = backend.thread(thread).state;
        if state != State::Free {
            *states.entry(format!("{state:?}").to_lowercase()).or_insert(0) += 1;
        }
    }
    Some(states)
}

impl Keeper for Fair {
    fn enclave(&self) -> EnclaveWord {
        EnclaveWord::default()
    }

    fn members(&self) -> Vec<Process> {
        Fair::members(self)
    }

    fn join(&self, tid: u32) -> Result<(), GuardianError> {
        self.join_process(tid).map(drop)
    }

    fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
        let failed = format!("cannot put the threads of process {pid} into the enclave");
        Fair::join(self, pid).map_err(GuardianError::system(failed))
    }

    fn give_back(&self) -> Result<usize, GuardianError> {
        Fair::give_back(self).map_err(GuardianError::system(GIVING_BACK))
    }
}

impl Keeper for Rt {
    fn enclave(&self) -> EnclaveWord {
        Backend::enclave(self)
    }

    fn members(&self) -> Vec<Process> {
        processes_of(self)
    }

    fn join(&self, tid: u32) -> Result<(), GuardianError> {
        Ok(Rt::join(self, tid)?)
    }

    fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
        match Rt::join_process(self, pid) {
            Err(RtError::NoThread(_)) => Ok(0),
            joined => Ok(joined?),
        }
    }

    fn give_back(&self) -> Result<usize, GuardianError> {
        Ok(Rt::give_back(self)?)
    }

    fn check_patience(&self) {
        Rt::check_patience(self);
    }

    fn set_online(&self, online: &Cpus) {
        Rt::set_online(self, online);
    }

    fn grow(&mut self, cpus: &Cpus) -> Result<(), GuardianError> {
        Ok(Rt::grow(self, cpus)?)
    }

    fn shrink(&mut self, cpus: &Cpus) -> Moved {
        Rt::shrink(self, cpus)
    }
}

/// Removes the enclave when it is dropped, which [`Scx`] does not do by itself.
struct ScxKeeper {
    enclave: Option<Scx>,
    /// When unmanaged threads were last released.
    checked_at: Cell<Option<Instant>>,
}

/// How often to release unmanaged threads: long before one of them has waited for half a minute.
const RELEASE_EVERY: Duration = Duration::from_secs(2);

impl ScxKeeper {
    fn enclave_in_use(&self) -> &Scx {
        // Taken out only when this is dropped.
        self.enclave.as_ref().expect("an enclave until the end")
    }
}

impl Keeper for ScxKeeper {
    fn enclave(&self) -> EnclaveWord {
        Backend::enclave(self.enclave_in_use())
    }

    fn join(&self, tid: u32) -> Result<(), GuardianError> {
        Ok(self.enclave_in_use().join(tid).map(drop)?)
    }

    fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
        match std::path::Path::new(&format!("/proc/{pid}")).exists() {
            true => Ok(self.enclave_in_use().join_process(pid)?),
            false => Ok(0),
        }
    }

    fn give_back(&self) -> Result<usize, GuardianError> {
        Ok(self.enclave_in_use().give_back()?)
    }

    fn ended(&self) -> Option<SchedulerExit> {
        let described = |ended: SchedulerExit| {
            let why = format!("the kernel ended the sched_ext scheduler: {}", ended.why);
            SchedulerExit { why, ..ended }
        };
        self.enclave_in_use().ended().map(described)
    }

    fn members(&self) -> Vec<Process> {
        match self.enclave_in_use().is_loaded() {
            true => processes_of(self.enclave_in_use()),
            false => self.enclave_in_use().remaining_members(),
        }
    }

    fn check_patience(&self) {
        self.enclave_in_use().record_members();
    }

    fn release_unmanaged(&self) {
        if self.checked_at.get().is_none_or(|checked_at| checked_at.elapsed() >= RELEASE_EVERY) {
            self.checked_at.set(Some(Instant::now()));
            self.enclave_in_use().release_unmanaged();
        }
    }
}

impl Drop for ScxKeeper {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.enclave.take().map(Scx::remove) {
            eprintln!("heddle: the enclave could not be removed: {error}");
        }
    }
}

impl From<RtError> for GuardianError {
    fn from(error: RtError) -> Self {
        match error {
            RtError::System { what, source } => GuardianError::System { what, source },
            RtError::Spec(text) => GuardianError::Usage(text),
            other => GuardianError::Failed(other.to_string()),
        }
    }
}

impl From<ScxError> for GuardianError {
    fn from(error: ScxError) -> Self {
        match error {
            ScxError::System { what, source } => GuardianError::System { what, source },
            ScxError::Spec(text) => GuardianError::Usage(text),
            other => GuardianError::Failed(other.to_string()),
        }
    }
}
